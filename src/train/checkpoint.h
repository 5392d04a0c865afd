// A run on disk: everything that going on with the same bits needs.
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

#include "train/decoder_config.h"
#include "train/options.h"
#include "train/trainer.h"

namespace qkv::train {

// What a checkpoint says about its run beside the state.
struct CheckpointInfo {
  DecoderConfig config;
  TrainOptions options;
  int64_t log_bytes = 0;  // of the run's log when it was written
};

struct LoadedCheckpoint {
  TrainState state;
  CheckpointInfo info;
};

// The checkpoints of a folder, one safetensors file a step, each with a checksum over all that it holds.
class Checkpoints {
 public:
  explicit Checkpoints(std::filesystem::path folder) : folder_(std::move(folder)) {}

  std::vector<int64_t> Steps() const;  // of the checkpoints that are there, ascending
  std::filesystem::path PathOf(int64_t step) const;

  // Whole or not at all. Error{kIo} naming the file: what was there before is still there.
  void Write(const TrainState& state, const CheckpointInfo& info) const;

  // The last one. Error{kFile} naming it where it is damaged, and the one before it, which remains when the damaged
  // file is moved away.
  LoadedCheckpoint ReadLast() const;

  void RemoveAllButLast(int64_t keep) const;
  void RemoveUnfinished() const;  // what a killed write left

 private:
  std::filesystem::path folder_;
};

}  // namespace qkv::train
