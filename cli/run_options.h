// Options that every command which runs a model has: --dtype and --threads.
#pragma once

#include <optional>
#include <string>

#include "qkv/model.h"

namespace qkv::cli {

// Sets the number of threads, where one was given, and returns what to load a model with.
// Error{kInvalidArgument} naming the option.
ModelOptions MakeModelOptions(const std::optional<std::string>& dtype,
                              const std::optional<std::string>& threads);

// The model that --model names, else DefaultModel's, with a line on standard error where that is not the usual
// one.
std::string ChooseModel(const std::optional<std::string>& named, ModelUse use);

}  // namespace qkv::cli
