// The size of a GPT-2 decoder (Radford et al. 2019): token and position embeddings, `layers` pre-norm blocks of
// causal multi-head attention and a feed-forward of four times the width with the tanh GELU, a last norm, and a
// projection to the vocabulary.
#pragma once

#include <cstdint>

namespace qkv::train {

enum class HeadWeight { kTied, kOwn };  // the last projection: the token embedding's table, or one of its own

struct DecoderConfig {
  int64_t layers = 6, heads = 6, width = 384;
  int64_t context = 256;  // positions: the longest sequence
  int64_t vocab = 256;
  float dropout = 0;  // on embeddings, attention weights and what each block adds to the residual stream
  float norm_epsilon = 1e-5f;
  HeadWeight head_weight = HeadWeight::kTied;

  int64_t head_width() const { return width / heads; }
  int64_t inner() const { return 4 * width; }
  bool operator==(const DecoderConfig&) const = default;
};

// Error{kInvalidArgument} naming the size that is wrong: not positive, a width that the heads cannot share, a
// dropout outside [0, 1), more parameters than memory can address.
void CheckConfig(const DecoderConfig& config);

}  // namespace qkv::train
