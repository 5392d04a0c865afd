// Layer normalisation with its own parameters, over many rows at once.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace qkv {

class LayerNorm {
 public:
  // gain, shift: one for each channel, copied.
  LayerNorm(std::span<const float> gain, std::span<const float> shift, float epsilon);

  // x, out: (rows, channels), contiguous; may be the same.
  void Forward(const float* x, int64_t rows, float* out) const;
  // The same on the calling thread alone, for use inside a parallel task.
  void ForwardHere(const float* x, int64_t rows, float* out) const;

 private:
  std::vector<float> gain_, shift_;
  float epsilon_;
};

}  // namespace qkv
