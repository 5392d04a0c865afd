// The exchange with Hugging Face: a decoder as transformers' GPT-2 files hold it.
#pragma once

#include <filesystem>
#include <span>
#include <string>

#include "runtime/aligned.h"
#include "train/decoder_config.h"
#include "train/options.h"
#include "train/parameters.h"

namespace qkv::train {

// A parameter's name in GPT2LMHeadModel's files.
std::string StoredName(const std::string& parameter);

// config.json as transformers' GPT2LMHeadModel reads it; `stored` is the type of the tensors.
std::string ConfigJson(const DecoderConfig& config, Precision stored);

// config.json and model.safetensors in `folder`, which must be there; names as GPT2LMHeadModel saves them.
// parameters: a flat array of ParameterTable(config). Each file whole or not at all. Error{kIo} naming the
// file.
void WriteDecoder(const std::filesystem::path& folder, const DecoderConfig& config,
                  std::span<const float> parameters, Precision stored);

struct LoadedDecoder {
  DecoderConfig config;
  AlignedBuffer<float> parameters;
};

// A folder with a GPT-2 config.json and model.safetensors, ours or another's, of float32 or 16-bit tensors.
// Error{kFile} naming what is missing, damaged or not a GPT-2 that this trains: another activation, another
// inner width, cross-attention.
LoadedDecoder ReadDecoder(const std::filesystem::path& folder);

}  // namespace qkv::train
