// What a decoder in training writes, for the eye: a text that goes on from the same words every time.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "qkv/tokenizer.h"
#include "train/decoder_config.h"

namespace qkv::train {

struct Sample {
  std::string prompt, text;  // UTF-8; `text` goes on where `prompt` ends
};

class Sampler {
 public:
  // The prompt is the first words of `tokens`, at most half a context of them. The tokenizer is made anew for
  // every sample: a model owns its own.
  Sampler(const DecoderConfig& config, std::string tokenizer_json, const Tokenizer& tokenizer,
          std::span<const int32_t> tokens);

  // At most `most_tokens` more, as long as the context lasts. parameters: a flat array of
  // ParameterTable(config), which is only read. A function of parameters and seed (same threads, same
  // instruction set).
  Sample Write(std::span<const float> parameters, int64_t most_tokens, uint64_t seed) const;

 private:
  DecoderConfig config_;
  std::string tokenizer_json_, prompt_;
  std::vector<int64_t> prompt_ids_;
};

}  // namespace qkv::train
