// A run's sizes and options as JSON: in checkpoints and run.json, and what --config files hold.
#pragma once

#include <set>
#include <string>

#include "train/decoder_config.h"
#include "train/options.h"
#include "train/run_settings.h"

namespace qkv::train {

std::string RunJson(const DecoderConfig& config, const TrainOptions& options);  // what a checkpoint holds
std::string RunJson(const DecoderConfig& config, const TrainOptions& options, const RunSettings& settings);

// Sets what the text names and leaves the rest; returns the keys that it names. Error{kFile} naming `where` and the
// key: damaged JSON, an unknown key, a value of another kind.
std::set<std::string> ReadRunJson(const std::string& text, const std::string& where, DecoderConfig& config,
                                  TrainOptions& options, RunSettings& settings);

// The first key whose values differ, and both of them; empty keys where none does.
struct Difference {
  std::string key, first, second;
};
Difference FirstDifference(const DecoderConfig& first_config, const TrainOptions& first_options,
                           const DecoderConfig& second_config, const TrainOptions& second_options);

}  // namespace qkv::train
