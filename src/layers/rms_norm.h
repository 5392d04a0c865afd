// Root-mean-square normalisation with its own gain, over many rows at once.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace qkv {

class RmsNorm {
 public:
  // gain: one for each channel, copied.
  RmsNorm(std::span<const float> gain, float epsilon);

  // x, out: (rows, channels), contiguous; may be the same.
  void Forward(const float* x, int64_t rows, float* out) const;
  // Heads inside longer rows: `heads` times the channels from the start of each of `rows` rows, `stride` floats
  // apart, where they lie.
  void ForwardHeads(float* x, int64_t rows, int64_t stride, int64_t heads) const;

 private:
  std::vector<float> gain_;
  float epsilon_;
};

}  // namespace qkv
