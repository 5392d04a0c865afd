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

}  // namespace qkv::train
