#include "train/run.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <optional>
#include <system_error>
#include <utility>

#include "qkv/error.h"
#include "runtime/mapped_file.h"
#include "runtime/write_file.h"
#include "text/tokenizer_json.h"
#include "train/checkpoint.h"
#include "train/export.h"
#include "train/run_json.h"
#include "train/run_lock.h"
#include "train/run_log.h"
#include "train/sample.h"
#include "train/shards.h"
#include "train/windows.h"

namespace qkv::train {
namespace {

namespace fs = std::filesystem;

struct Paths {
  fs::path folder;
  fs::path run() const { return folder / "run.json"; }
  fs::path tokenizer() const { return folder / "tokenizer.json"; }
  fs::path log() const { return folder / "log.jsonl"; }
  fs::path tokens() const { return folder / "tokens"; }
  fs::path train() const { return tokens() / "train.safetensors"; }
  fs::path validation() const { return tokens() / "validation.safetensors"; }
  fs::path checkpoints() const { return folder / "checkpoints"; }

  void RemoveUnfinished() const {  // what a killed run left of files that it was writing
    Checkpoints(checkpoints()).RemoveUnfinished();
    for (const fs::path& file : {run(), tokenizer(), train(), validation(), folder / "config.json",
                                 folder / "model.safetensors", folder / "loss.png"}) {
      qkv::RemoveUnfinished(file);
    }
  }
};

void MakeFolder(const fs::path& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) throw Error(ErrorCode::kIo, "cannot write: " + error.message(), folder.string());
}

void CheckRange(const char* option, int64_t value, int64_t least) {
  if (value >= least) return;
  throw Error(ErrorCode::kInvalidArgument, "out of range", option, fmt::format("at least {}", least),
              std::to_string(value));
}

void Check(const RunOptions& options) {
  CheckOptions(options.train);
  const RunSettings& settings = options.settings;
  if (!(settings.validation_share >= 0 && settings.validation_share < 1)) {
    throw Error(ErrorCode::kInvalidArgument, "out of range", "validation", "from 0 to below 1",
                fmt::format("{}", settings.validation_share));
  }
  CheckRange("validate_every", settings.validate_every, 1);
  CheckRange("sample_every", settings.sample_every, 0);
  CheckRange("checkpoint_every", settings.checkpoint_every, 1);
  CheckRange("keep", settings.keep, 1);
  CheckRange("most_validation_tokens", options.most_validation_tokens, 1);
  CheckRange("sample_tokens", options.sample_tokens, 1);
}

// What may differ when a run goes on: that it is longer.
// The flag that sets what run.json calls `key`; others come from --config alone.
std::string FlagOf(std::string key) {
  if (key == "final_lr") return "--lr";
  if (key == "length") return "--context";
  if (key == "vocab") return "--tokenizer";
  if (key == "precision") return "--dtype";
  for (const char* configured : {"norm_epsilon", "head_weight", "beta1", "beta2", "epsilon"}) {
    if (key == configured) return "--config, " + key;
  }
  std::replace(key.begin(), key.end(), '_', '-');
  return "--" + key;
}

void CheckSameRun(const CheckpointInfo& saved, const DecoderConfig& config, TrainOptions options) {
  if (options.steps < saved.options.steps) {
    throw Error(ErrorCode::kInvalidArgument, "a run cannot be made shorter", "--steps",
                fmt::format("at least {}", saved.options.steps), std::to_string(options.steps));
  }
  options.steps = saved.options.steps;
  const Difference difference = FirstDifference(saved.config, saved.options, config, options);
  if (difference.key.empty()) return;
  throw Error(ErrorCode::kInvalidArgument, "contradicts the run that is resumed", FlagOf(difference.key),
              difference.first, difference.second);
}

void CheckLengths(const RunOptions& options, std::span<const int32_t> train, std::span<const int32_t> validation) {
  const auto length = static_cast<size_t>(options.train.length);
  if (train.size() <= length) {
    throw Error(ErrorCode::kInvalidArgument, "the text is shorter than the context", options.texts.front().string(),
                fmt::format("more than {} tokens to learn from", length), std::to_string(train.size()));
  }
  if (options.settings.validation_share > 0 && validation.size() <= length) {
    throw Error(ErrorCode::kInvalidArgument, "the held-out part of the text is shorter than the context",
                "--validation", fmt::format("more than {} tokens held out, or a share of 0", length),
                std::to_string(validation.size()));
  }
}

// What the folder's shards must become; nothing where they are those of the source.
std::optional<EncodedTexts> EncodeWhatIsNew(const RunOptions& options, const Tokenizer& tokenizer,
                                            const std::string& source, const Progress& progress) {
  const Paths paths{options.folder};
  if (fs::exists(paths.train())) {
    const TokenShard train(paths.train());
    if (train.source() == source) {
      CheckLengths(options, train.tokens(), TokenShard(paths.validation()).tokens());
      return {};
    }
  }
  EncodedTexts encoded = EncodeTexts(options.texts, tokenizer, options.settings.validation_share, progress);
  CheckLengths(options, encoded.train, encoded.validation);
  return encoded;
}

// The folder made ready: tokenizer, options and tokens are there and agree with the options.
class Workspace {
 public:
  Workspace(const RunOptions& options, const DecoderConfig& config, std::unique_ptr<const Tokenizer> tokenizer,
            const std::string& source, const std::optional<EncodedTexts>& texts)
      : paths_{options.folder}, tokenizer_(std::move(tokenizer)) {
    MakeFolder(paths_.tokens());
    if (texts) WriteShards(*texts, source, paths_.train(), paths_.validation());
    WriteWholeFile(paths_.tokenizer(), options.tokenizer_json);
    WriteWholeFile(paths_.run(), RunJson(config, options.train, options.settings));
    train_.emplace(paths_.train());
    validation_.emplace(paths_.validation());
  }

  const Paths& paths() const { return paths_; }
  const Tokenizer& tokenizer() const { return *tokenizer_; }
  std::span<const int32_t> train() const { return train_->tokens(); }
  std::span<const int32_t> validation() const { return validation_->tokens(); }

 private:
  Paths paths_;
  std::unique_ptr<const Tokenizer> tokenizer_;
  std::optional<TokenShard> train_, validation_;
};

// Texts that differ from those of the run would give other batches: told before anything is written.
void CheckSameSource(const std::string& source, const Paths& paths) {
  if (!fs::exists(paths.train())) return;
  const TokenShard shard(paths.train());
  if (shard.source() == source) return;
  throw Error(ErrorCode::kInvalidArgument, "other texts or another tokenizer than the run's", "--resume",
              shard.source(), source);
}

struct Beginning {
  TrainState state;
  int64_t log_bytes = 0;
};

// A start that failed before its first checkpoint left nothing to lose; a model without checkpoints is a run whose
// checkpoints were removed.
void RefuseToOverwrite(const RunOptions& options) {
  const Paths paths{options.folder};
  const bool holds_model = fs::exists(paths.run()) && fs::exists(paths.folder / "model.safetensors");
  if (!holds_model && Checkpoints(paths.checkpoints()).Steps().empty()) return;
  throw Error(ErrorCode::kInvalidArgument, "the folder holds a run: --resume goes on with it",
              options.folder.string());
}

Beginning Begin(const RunOptions& options, const DecoderConfig& config, const std::string& source) {
  const Paths paths{options.folder};
  const Checkpoints checkpoints(paths.checkpoints());
  if (options.start == Start::kFresh) RefuseToOverwrite(options);
  if (checkpoints.Steps().empty()) return {InitialState(config, options.train.seed), 0};
  LoadedCheckpoint loaded = checkpoints.ReadLast();
  CheckSameRun(loaded.info, config, options.train);
  CheckSameSource(source, paths);
  return {std::move(loaded.state), loaded.info.log_bytes};
}

class Loop {
 public:
  Loop(const RunOptions& options, Workspace& workspace, Trainer trainer, int64_t log_bytes, const RunEvents& events)
      : options_(options),
        events_(events),
        workspace_(workspace),
        checkpoints_(workspace.paths().checkpoints()),
        batches_(workspace.train(), options.train.length, options.train.seed),
        log_(workspace.paths().log(), log_bytes),
        trainer_(std::move(trainer)) {
    if (options.settings.validation_share > 0) held_out_.emplace(workspace.validation(), options.train.length);
    if (options.settings.sample_every == 0) return;
    const auto shown = held_out_ ? workspace.validation() : workspace.train();
    sampler_.emplace(trainer_.config(), options.tokenizer_json, workspace.tokenizer(), shown);
  }

  RunResult Run() {
    saved_step_ = step() > 0 ? step() : -1;
    if (events_.started) events_.started(step());
    bool stop = false;
    while (step() < options_.train.steps && !stop) {
      const StepReport report = trainer_.Step(batches_);
      log_.Add(report);
      if (events_.stepped) events_.stepped(report);
      stop = events_.wants_stop && events_.wants_stop();
      // Before a stop as well: the log is then that of a run which was not stopped.
      const bool last = step() == options_.train.steps;  // all of the held-out part follows
      if (step() % options_.settings.validate_every == 0 && !last) Validate(options_.most_validation_tokens);
      if (sampler_ && step() % options_.settings.sample_every == 0) WriteSample();
      if (step() % options_.settings.checkpoint_every == 0) Save();
    }
    Save();
    RunResult result;
    result.steps = step();
    result.stopped = step() < options_.train.steps;
    // After the checkpoint, so that a finished run that is resumed writes this line anew and not twice.
    if (!result.stopped) Validate(std::numeric_limits<int64_t>::max());
    log_.Sync();
    result.validation_loss = validation_loss_;
    result.validation_tokens = validation_tokens_;
    result.validation_bytes = ValidationBytes();
    return result;
  }

 private:
  int64_t step() const { return trainer_.state().step; }

  void Validate(int64_t most_tokens) {
    if (!held_out_) return;
    const int64_t of_a_batch = options_.train.batch * options_.train.length;
    const int64_t all = std::max<int64_t>(held_out_->windows() / options_.train.batch, 1);
    const int64_t batches = std::clamp<int64_t>(most_tokens / of_a_batch, 1, all);
    validation_loss_ = trainer_.Evaluate(*held_out_, batches);
    validation_tokens_ = batches * of_a_batch;
    log_.AddValidation(step(), validation_loss_);
    if (events_.validated) events_.validated(step(), validation_loss_);
  }

  void WriteSample() {
    const auto seed = static_cast<uint64_t>(step());
    const Sample sample = sampler_->Write(Parameters(), options_.sample_tokens, seed);
    log_.AddSample(step(), sample);
    if (events_.sampled) events_.sampled(step(), sample);
  }

  std::span<const float> Parameters() const {
    const AlignedBuffer<float>& parameters = trainer_.state().parameters;
    return {parameters.data(), static_cast<size_t>(parameters.size())};
  }

  // Bytes of the text that the last validation predicted.
  int64_t ValidationBytes() const {
    if (!held_out_) return 0;
    const auto tokens = workspace_.validation();
    const size_t last = std::min(tokens.size(), static_cast<size_t>(validation_tokens_) + 1);
    const std::vector<int64_t> ids(tokens.begin() + 1, tokens.begin() + static_cast<int64_t>(last));
    return static_cast<int64_t>(workspace_.tokenizer().Decode(ids).size());
  }

  // A run may have been killed after any of these: one that goes on where there is nothing left to learn does the
  // rest of them.
  void Save() {
    if (step() != saved_step_) {
      checkpoints_.Write(trainer_.state(), {trainer_.config(), options_.train, log_.Sync()});
      saved_step_ = step();
    }
    checkpoints_.RemoveAllButLast(options_.settings.keep);
    if (step() == exported_step_) return;
    WriteDecoder(options_.folder, trainer_.config(), Parameters(), options_.settings.exported);
    exported_step_ = step();
    if (events_.saved) events_.saved(step());
  }

  const RunOptions& options_;
  const RunEvents& events_;
  const Workspace& workspace_;
  Checkpoints checkpoints_;
  ShuffledWindows batches_;
  std::optional<SequentialWindows> held_out_;
  std::optional<Sampler> sampler_;
  RunLog log_;
  Trainer trainer_;
  int64_t saved_step_ = -1, exported_step_ = -1, validation_tokens_ = 0;
  double validation_loss_ = std::numeric_limits<double>::quiet_NaN();
};

}  // namespace

bool ReadRunOptions(const fs::path& folder, DecoderConfig& config, TrainOptions& options, RunSettings& settings) {
  const fs::path file = Paths{folder}.run();
  if (!fs::exists(file)) return false;
  ReadRunJson(std::string(MappedFile(file).text()), file.string(), config, options, settings);
  return true;
}

RunResult Run(const RunOptions& options, const RunEvents& events) {
  Check(options);
  std::unique_ptr<const Tokenizer> tokenizer = TokenizerFromJson(options.tokenizer_json, options.tokenizer_name);
  DecoderConfig config = options.decoder;
  config.vocab = tokenizer->vocab_size();
  if (options.vocab && *options.vocab != config.vocab) {
    throw Error(ErrorCode::kInvalidArgument, "contradicts the tokenizer", "vocab", std::to_string(config.vocab),
                std::to_string(*options.vocab));
  }
  CheckConfig(config);
  // A folder that is not there is made when texts, sizes and memory are found to do.
  std::optional<RunLock> lock;
  if (fs::is_directory(options.folder)) lock.emplace(options.folder);
  if (lock && options.start == Start::kResume) Paths{options.folder}.RemoveUnfinished();
  const std::string source = SourceOf(options.texts, options.tokenizer_json, options.settings.validation_share);
  Beginning beginning = Begin(options, config, source);
  Trainer trainer(config, options.train, std::move(beginning.state));
  std::optional<EncodedTexts> texts = EncodeWhatIsNew(options, *tokenizer, source, events.encoding);
  if (!lock) {
    MakeFolder(options.folder);
    lock.emplace(options.folder);
    RefuseToOverwrite(options);  // another start may have been quicker
  }
  Workspace workspace(options, config, std::move(tokenizer), source, texts);
  texts.reset();
  return Loop(options, workspace, std::move(trainer), beginning.log_bytes, events).Run();
}

}  // namespace qkv::train
