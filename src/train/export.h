// The exchange with Hugging Face: a decoder as transformers' GPT-2 files hold it.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <utility>

#include "runtime/aligned.h"
#include "train/decoder_config.h"
#include "train/options.h"
#include "train/parameters.h"

namespace qkv::train {

// config.json as transformers' GPT2LMHeadModel reads it.
std::string ConfigJson(const DecoderConfig& config, Precision stored);

// The tensors as a model.safetensors, names under "transformer." as GPT2LMHeadModel saves them, in float32 or
// bfloat16.
void WriteDecoder(const std::filesystem::path& folder, const DecoderConfig& config,
                  std::span<const float> parameters, Precision stored);

struct LoadedDecoder {
  DecoderConfig config;
  AlignedBuffer<float> parameters;
};

// A folder with a GPT-2 config.json and model.safetensors, ours or another's. Error{kFile} naming what is
// missing, damaged or not a GPT-2 that this trains (another activation, another inner width).
LoadedDecoder ReadDecoder(const std::filesystem::path& folder);

}  // namespace qkv::train
