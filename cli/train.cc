// qkv train: a causal multi-head attention model, learned from texts.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <numbers>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "cli/arguments.h"
#include "cli/command.h"
#include "cli/exit_status.h"
#include "cli/interrupt.h"
#include "cli/output.h"
#include "cli/terminal.h"
#include "cli/train_progress.h"
#include "qkv/error.h"
#include "runtime/mapped_file.h"
#include "text/bpe_trainer.h"
#include "train/run.h"
#include "train/run_json.h"
#include "train/run_log.h"
#include "view/loss_curve.h"

namespace qkv::cli {
namespace {

namespace fs = std::filesystem;

// The options as they were given.
struct TrainCommand {
  std::vector<std::string> texts;
  std::optional<std::string> out, config, layers, heads, width, context, batch, accumulate, steps, lr, warmup,
      dropout, weight_decay, clip, seed, dtype, export_dtype, tokenizer, validation, checkpoint_every,
      validate_every, sample_every, keep, threads;
  bool resume = false;
};

void SetCount(const char* option, const std::optional<std::string>& text, int64_t least, int64_t& value) {
  if (text) value = ParseCount(option, *text, least, INT64_MAX);
}
// What a real number of an option may be.
enum class Range { kNotNegative, kShare };

// Real is what the number is kept in: 0.999999999 is 1 as a float.
template <class Real>
void SetReal(const char* option, const std::optional<std::string>& text, Range range, Real& value) {
  if (!text) return;
  const auto number = static_cast<Real>(ParseReal(option, *text));
  if (number < 0 || !std::isfinite(number) || (range == Range::kShare && number >= 1)) {
    const std::string expected = range == Range::kShare
        ? fmt::format("from 0 to {}", std::nextafter(Real{1}, Real{0})) : "a number of at least 0";
    throw Error(ErrorCode::kInvalidArgument, "out of range", option, expected, Quote(*text));
  }
  value = number;
}

train::Precision ParsePrecision(const char* option, const std::string& name) {
  return ParseDType(option, name) == DType::kF32 ? train::Precision::kFloat32 : train::Precision::kBFloat16;
}

// A flag wins over --config, that over the run that is resumed, and that over what usually serves.
void SetSizes(const TrainCommand& command, train::DecoderConfig& config, train::TrainOptions& options) {
  SetCount("--layers", command.layers, 1, config.layers);
  SetCount("--heads", command.heads, 1, config.heads);
  SetCount("--width", command.width, 1, config.width);
  SetCount("--context", command.context, 1, config.context);
  SetCount("--batch", command.batch, 1, options.batch);
  SetCount("--accumulate", command.accumulate, 1, options.accumulate);
  SetCount("--steps", command.steps, 0, options.steps);
  SetCount("--warmup", command.warmup, 0, options.warmup_steps);
  SetReal("--lr", command.lr, Range::kNotNegative, options.learning_rate);
  if (command.lr) options.final_learning_rate = options.learning_rate / 10;
  SetReal("--dropout", command.dropout, Range::kShare, config.dropout);
  SetReal("--weight-decay", command.weight_decay, Range::kNotNegative, options.weight_decay);
  SetReal("--clip", command.clip, Range::kNotNegative, options.clip);
  if (command.seed) options.seed = static_cast<uint64_t>(ParseCount("--seed", *command.seed, 0, INT64_MAX));
  if (command.dtype) options.precision = ParsePrecision("--dtype", *command.dtype);
  options.length = config.context;
}

void SetSettings(const TrainCommand& command, train::RunSettings& settings) {
  SetReal("--validation", command.validation, Range::kShare, settings.validation_share);
  SetCount("--validate-every", command.validate_every, 1, settings.validate_every);
  SetCount("--sample-every", command.sample_every, 0, settings.sample_every);
  SetCount("--checkpoint-every", command.checkpoint_every, 1, settings.checkpoint_every);
  SetCount("--keep", command.keep, 1, settings.keep);
  if (command.export_dtype) settings.exported = ParsePrecision("--export-dtype", *command.export_dtype);
}

// The tokenizer: --tokenizer's, the resumed run's, or bytes.
void SetTokenizer(const TrainCommand& command, train::RunOptions& options) {
  fs::path file = options.folder / "tokenizer.json";
  if (command.tokenizer) file = *command.tokenizer;
  const bool bytes = command.tokenizer ? *command.tokenizer == "bytes" : !command.resume || !fs::exists(file);
  options.tokenizer_json = bytes ? ToTokenizerJson(ByteVocabulary()) : std::string(MappedFile(file).text());
  if (!bytes) options.tokenizer_name = file.string();
}

// --config's context is its length, unless --context wins over both; its vocab must be the tokenizer's.
void CheckNamed(const TrainCommand& command, const std::set<std::string>& named, train::RunOptions& options) {
  if (named.contains("vocab")) options.vocab = options.decoder.vocab;
  const int64_t context = options.decoder.context, length = options.train.length;
  if (!named.contains("length") || command.context || length == context) return;
  throw Error(ErrorCode::kInvalidArgument, "contradicts the context", *command.config + ": length",
              std::to_string(context), std::to_string(length));
}

// The run that is resumed, then --config, then flags: the later wins.
void ReadOptions(const TrainCommand& command, train::RunOptions& options) {
  const bool resumed = command.resume && train::ReadRunOptions(options.folder, options.decoder, options.train,
                                                               options.settings);
  std::set<std::string> named;
  if (command.config) {
    named = train::ReadRunJson(std::string(MappedFile(*command.config).text()), *command.config, options.decoder, options.train,
                               options.settings);
    CheckNamed(command, named, options);
  }
  SetSizes(command, options.decoder, options.train);
  SetSettings(command, options.settings);
  // What nobody named follows the steps, but not when a run that has its warm-up gets more of them.
  if (!resumed && !command.warmup && !named.contains("warmup")) {
    options.train.warmup_steps = std::min(options.train.warmup_steps, options.train.steps / 10);
  }
}

train::RunOptions MakeOptions(const TrainCommand& command) {
  if (!command.out || command.out->empty())
    throw Error(ErrorCode::kInvalidArgument, "no folder for the run (see qkv train --help)", "--out");
  if (command.texts.empty())
    throw Error(ErrorCode::kInvalidArgument, "no text to train on (see qkv train --help)");
  if (command.threads) UseThreads(*command.threads);
  train::RunOptions options;
  options.folder = *command.out;
  options.texts.assign(command.texts.begin(), command.texts.end());
  options.start = command.resume ? train::Start::kResume : train::Start::kFresh;
  ReadOptions(command, options);
  SetTokenizer(command, options);
  return options;
}

void DrawLosses(const fs::path& folder) {
  const train::LossCurves curves = train::ReadLossCurves(folder / "log.jsonl");
  view::WriteLossPicture({.title = "Training " + folder.filename().string(),
                          .unit = "loss, nats per token",
                          .train = {"train", curves.train_steps, curves.train_losses},
                          .validation = {"validation", curves.validation_steps, curves.validation_losses}},
                         folder / "loss.png");
}

std::string Summary(const train::RunResult& result, const fs::path& folder) {
  std::string text;
  if (!std::isnan(result.validation_loss) && result.validation_bytes > 0) {
    const double bits = result.validation_loss / std::numbers::ln2 *
                        static_cast<double>(result.validation_tokens) /
                        static_cast<double>(result.validation_bytes);
    text = fmt::format("validation loss {:.4f} nats per token, {:.4f} bits per byte, over {} tokens\n",
                       result.validation_loss, bits, result.validation_tokens);
  }
  return text +
         fmt::format("the model is in {0}: qkv generate --model {0} \"...\", qkv look --model {0} \"...\"\n",
                     folder.string());
}

void Train(const TrainCommand& command) {
  const train::RunOptions options = MakeOptions(command);
  const InterruptGuard guard;  // Ctrl-C finishes the step and saves
  TrainProgress progress(options.train.steps);
  train::RunEvents events;
  ProgressLine encoding("encoding the texts");
  events.encoding = encoding.Callback();
  events.started = [&](int64_t step) { progress.Started(step); };
  events.stepped = [&](const train::StepReport& report) { progress.Stepped(report); };
  events.validated = [&](int64_t step, double loss) { progress.Validated(step, loss); };
  events.sampled = [&](int64_t step, const train::Sample& sample) { progress.Sampled(step, sample); };
  events.saved = [&](int64_t) { DrawLosses(options.folder); };
  events.wants_stop = [] { return Interrupted(); };
  const train::RunResult result = train::Run(options, events);
  DrawLosses(options.folder);  // with the last validation
  if (result.stopped) {
    PrintNote(fmt::format("saved after step {}; --resume goes on", result.steps));
    ThrowIfInterrupted();
  }
  PrintText(Summary(result, options.folder));
}

Action Declare(CLI::App& parser) {
  const auto command = std::make_shared<TrainCommand>();
  const auto add = [&](const char* name, auto& value, const char* type, const char* help) {
    return parser.add_option(name, value, help)->type_name(type);
  };
  add("TEXT", command->texts, "", "Texts in UTF-8 to learn from");
  add("--out", command->out, "DIR",
      "The run's folder: checkpoints, log, loss curve and, in the end, the model");
  parser.add_flag("--resume", command->resume, "Go on with the run in --out, or begin where there is none")
      ->disable_flag_override();
  add("--config", command->config, "FILE",
      "Sizes and options as JSON, as run.json holds them; a flag wins over it");
  add("--tokenizer", command->tokenizer, "bytes|FILE",
      "A tokenizer.json (qkv tokenizer train), or bytes [bytes]");
  add("--layers", command->layers, "N", "Layers [6]");
  add("--heads", command->heads, "N", "Heads of a layer [6]");
  add("--width", command->width, "N", "The model's width, a multiple of the heads [384]");
  add("--context", command->context, "N", "Tokens that the model sees at once [256]");
  add("--batch", command->batch, "N", "Sequences of a batch [8]");
  add("--accumulate", command->accumulate, "N", "Batches of a step [1]");
  add("--steps", command->steps, "N", "Steps of the whole run [1000]");
  add("--lr", command->lr, "RATE", "The highest learning rate; the last is a tenth of it [0.001]");
  add("--warmup", command->warmup, "N", "Steps until the highest rate [100, at most a tenth of the steps]");
  add("--dropout", command->dropout, "P", "Dropout, in [0, 1) [0]");
  add("--weight-decay", command->weight_decay, "D", "Of matrices [0.1]");
  add("--clip", command->clip, "NORM", "The gradient's largest norm; 0: none [1]");
  add("--seed", command->seed, "N", "Of parameters, order and dropout [0]");
  add("--dtype", command->dtype, "f32|bf16", "What products are computed in [f32]");
  add("--export-dtype", command->export_dtype, "f32|bf16", "What the finished model is stored in [f32]");
  add("--validation", command->validation, "SHARE", "Of each text, at its end, held out [0.05]");
  add("--validate-every", command->validate_every, "N", "Steps between validations [100]");
  add("--sample-every", command->sample_every, "N", "Steps between texts that the model writes; 0: none [200]");
  add("--checkpoint-every", command->checkpoint_every, "N", "Steps between checkpoints [100]");
  add("--keep", command->keep, "N", "Checkpoints that are kept [3]");
  add("--threads", command->threads, "N", "Threads to use [QKV_NUM_THREADS, else all processors]");
  return [command] { Train(*command); };
}

}  // namespace

const Command kTrain{
    "train", "Train a causal attention model on texts",
    "Ctrl-C finishes the step and saves; --resume goes on, with the same bits as an unbroken run.\n\n"
    "Examples:\n"
    "  qkv train book.txt --out run --layers 4 --heads 4 --width 256 --steps 3000\n"
    "  qkv train book.txt --out run --resume\n"
    "  qkv tokenizer train book.txt --vocab 4096 --out tokenizer.json\n"
    "  qkv train book.txt --out run --tokenizer tokenizer.json --dtype bf16",
    Declare};

}  // namespace qkv::cli
