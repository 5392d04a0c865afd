// A training run in a folder, from texts to an exported model: started, stopped in any way, and resumed.
//
//   run.json          sizes, options and settings
//   run.lock          held by the process that trains
//   tokenizer.json    what the texts were encoded with
//   tokens/           train.safetensors, validation.safetensors
//   checkpoints/      the last few, step-00000500.safetensors
//   log.jsonl         a line a step: {"step", "loss", "gradient_norm", "lr", "tokens"}; validation losses and
//   samples between
//                   them
//   config.json, model.safetensors    the model as of the last checkpoint, as Hugging Face's GPT-2
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "qkv/progress.h"
#include "train/decoder_config.h"
#include "train/options.h"
#include "train/run_settings.h"
#include "train/sample.h"
#include "train/trainer.h"

namespace qkv::train {

enum class Start {
  kFresh,   // a folder that holds a run with a checkpoint is refused
  kResume,  // from the last checkpoint; afresh where there is none
};

struct RunOptions {
  std::filesystem::path folder;
  std::vector<std::filesystem::path> texts;
  std::string tokenizer_json;              // what tokenizer.json will hold
  std::string tokenizer_name = "tokenizer";  // what errors call it: its file
  DecoderConfig decoder;                   // vocab is the tokenizer's
  std::optional<int64_t> vocab;  // what the tokenizer must have, where that was said
  TrainOptions train;
  Start start = Start::kFresh;
  RunSettings settings;
  int64_t most_validation_tokens =
      65'536;                  // of one validation, so that it costs little; the last one takes all
  int64_t sample_tokens = 64;  // of each text that the model writes, at most
};

// What a run tells while it goes on. Called from the thread that called Run.
struct RunEvents {
  std::function<void(int64_t step)> started;  // steps done before; after resuming more than 0
  std::function<void(const StepReport&)> stepped;
  std::function<void(int64_t step, double loss)> validated;  // nats per token, after `step` steps
  std::function<void(int64_t step, const Sample&)> sampled;
  std::function<void(int64_t step)> saved;  // a checkpoint and the exported model
  std::function<bool()> wants_stop;         // asked between steps; then the run is saved
  Progress encoding;                        // of the texts; bytes
};

struct RunResult {
  int64_t steps = 0;
  double validation_loss = 0;  // nats per token of the held-out part; NaN where there is none
  int64_t validation_tokens = 0, validation_bytes = 0;  // of the part that it was measured on
  bool stopped = false;                                 // before its last step
};

// Error{kInvalidArgument}: options that contradict each other or the run in the folder, a folder that holds a
// run without kResume or that another process trains in, too short a text; kFile: texts, tokenizer, a
// damaged checkpoint; kIo: naming what cannot be written; kNotFinite: the step, the last checkpoint stays.
RunResult Run(const RunOptions& options, const RunEvents& events);

// What a folder's run was started with, for resuming it without naming it again; false where it holds none.
// Error{kFile}: a damaged run.json.
bool ReadRunOptions(const std::filesystem::path& folder, DecoderConfig& config, TrainOptions& options,
                    RunSettings& settings);

}  // namespace qkv::train
