// Token and position embeddings in training.
#pragma once

#include <cstdint>
#include <span>

namespace qkv {

// Token embeddings (V, C) and position embeddings (at least `length`, C) of `length` tokens a sequence.
struct Embedding {
  int64_t vocab = 0, width = 0, length = 0;
};

// out (ids, C) = tokens[ids] + positions[place in the sequence]. Error{kInvalidArgument} for an id outside [0,
// V).
void EmbedForward(const Embedding& shape, std::span<const int32_t> ids, const float* tokens,
                  const float* positions, float* out);

// dtokens[ids] += dout and dpositions[place] += dout, summed in the order of the ids whatever the threads.
void EmbedBackward(const Embedding& shape, std::span<const int32_t> ids, const float* dout, float* dtokens,
                   float* dpositions);

}  // namespace qkv
