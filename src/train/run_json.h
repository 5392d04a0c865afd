// A run's sizes and options as JSON: in checkpoints and run.json, and what --config files hold.
#pragma once

#include <string>

#include "train/decoder_config.h"
#include "train/options.h"

namespace qkv::train {

std::string RunJson(const DecoderConfig& config, const TrainOptions& options);

// Sets what the text names and leaves the rest. Error{kFile} naming `where` and the key: damaged JSON, an unknown key,
// a value of another kind.
void ReadRunJson(const std::string& text, const std::string& where, DecoderConfig& config, TrainOptions& options);

// The first key whose values differ, and both of them; empty keys where none does.
struct Difference {
  std::string key, first, second;
};
Difference FirstDifference(const DecoderConfig& first_config, const TrainOptions& first_options,
                           const DecoderConfig& second_config, const TrainOptions& second_options);

}  // namespace qkv::train
