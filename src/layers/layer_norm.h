// Layer normalisation with its own parameters, over many rows at once.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "qkv/tensor.h"

namespace qkv {

class LayerNorm {
 public:
  // gain, shift: one for each channel, copied.
  LayerNorm(std::span<const float> gain, std::span<const float> shift, float epsilon);

  // x, out: (rows, channels), contiguous; may be the same. rounded, where given: out in bfloat16 too.
  void Forward(const float* x, int64_t rows, float* out, BFloat16* rounded = nullptr) const;
  // The same on the calling thread alone, for use inside a parallel task.
  void ForwardHere(const float* x, int64_t rows, float* out, BFloat16* rounded = nullptr) const;

 private:
  std::vector<float> gain_, shift_;
  float epsilon_;
};

}  // namespace qkv
