// Queries, keys and values in one array of (rows, 3 C), and their gradients in another: what a projection to
// all three at once gives and takes.
#include <gtest/gtest.h>

#include <vector>

#include "layers/noise.h"
#include "qkv/attention_backward.h"
#include "qkv/error.h"

namespace qkv {
namespace {

using test::Noise;

constexpr int64_t kBatch = 2, kHeads = 3, kLength = 5, kD = 4, kC = kHeads * kD;
constexpr int64_t kCount = kBatch * kLength * kC;

Tensor Heads(float* first, int64_t row) {
  return {first, DType::kF32, Shape{kBatch, kHeads, kLength, kD}, {kLength * row, kD, row, 1}};
}

struct Gradients {
  std::vector<float> dq, dk, dv;
  bool operator==(const Gradients&) const = default;
};

// Of attention whose q, k and v are parts of `qkv`, with gradients written `apart` floats apart in rows of
// `row`.
Gradients GradientsOf(int64_t row, int64_t apart) {
  std::vector<float> qkv = Noise(1, 3 * kCount), dout = Noise(2, kCount), out(kCount),
                     lse(kBatch * kHeads * kLength);
  std::vector<float> grads(static_cast<size_t>(3 * (kBatch * kLength * row + apart)), -1.0f);
  const Tensor q = Heads(qkv.data(), 3 * kC), k = Heads(qkv.data() + kC, 3 * kC),
               v = Heads(qkv.data() + 2 * kC, 3 * kC);
  const Tensor l(lse.data(), DType::kF32, Shape{kBatch, kHeads, kLength});
  AttentionOptions options;
  options.causal = Causal::kTopLeft;
  Attention(q, k, v, options, Heads(out.data(), kC), &l);
  float* first = grads.data();
  AttentionBackward(Heads(dout.data(), kC), q, k, v, Heads(out.data(), kC), l, options,
                    {Heads(first, row), Heads(first + apart, row), Heads(first + 2 * apart, row), {}, {}});
  const auto gather = [&](int64_t part) {
    std::vector<float> values;
    for (int64_t r = 0; r < kBatch * kLength; ++r) {
      const float* from = first + part * apart + r * row;
      values.insert(values.end(), from, from + kC);
    }
    return values;
  };
  return {gather(0), gather(1), gather(2)};
}

TEST(SideBySide, GradientsMayShareTheRowsOfOneArray) {
  const Gradients separate = GradientsOf(kC, kBatch * kLength * kC);
  EXPECT_EQ(GradientsOf(3 * kC, kC), separate);
  EXPECT_EQ(GradientsOf(3 * kC + 2, kC), separate);  // a gap at the end of each row
}

TEST(SideBySide, ASharedElementIsRefused) {
  EXPECT_THROW(GradientsOf(3 * kC, kC - 1), Error);
  EXPECT_THROW(GradientsOf(3 * kC - 1, kC),
               Error);  // the values' last channel is the next row's first of the queries
  EXPECT_THROW(GradientsOf(3 * kC, 0), Error);
}

}  // namespace
}  // namespace qkv
