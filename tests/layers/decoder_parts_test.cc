// What decoders add to the layers: RMS norms, SwiGLU, and linear layers that stay quantised.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "kernels/gate.h"
#include "kernels/norm.h"
#include "layers/noise.h"
#include "layers/stored_linear.h"
#include "layers/rms_norm.h"
#include "layers/swiglu.h"
#include "runtime/cpu.h"
#include "runtime/half.h"
#include "support/guard.h"

namespace qkv {
namespace {

using test::Edge;
using test::GuardedBuffer;
using test::Noise;

class DecoderPartsOn : public testing::TestWithParam<Isa> {
 protected:
  void SetUp() override { ForceIsa(GetParam()); }
  void TearDown() override { ForceIsa(chosen_); }

 private:
  Isa chosen_ = ChosenIsa();
};

void CheckRms(int64_t rows, int64_t width, int64_t stride, Edge edge) {
  constexpr float kEpsilon = 1e-6f;
  const GuardedBuffer<float> x(Noise(1, rows * stride, 4), edge), gain(Noise(2, width, 2), edge);
  GuardedBuffer<float> out(rows * width, edge);
  RmsNormRows(x.data(), stride, rows, {gain.data(), width, kEpsilon}, out.data(), width);
  for (int64_t r = 0; r < rows; ++r) {
    double squares = 0;
    for (int64_t c = 0; c < width; ++c) squares += std::pow(static_cast<double>(x[r * stride + c]), 2);
    const double scale = 1 / std::sqrt(squares / static_cast<double>(width) + static_cast<double>(kEpsilon));
    for (int64_t c = 0; c < width; ++c) {
      ASSERT_NEAR(out[r * width + c], x[r * stride + c] * scale * gain[c], 2e-6) << width << " row " << r;
    }
  }
}

TEST_P(DecoderPartsOn, RmsNormIsItsFormula) {
  for (const Edge edge : {Edge::kBegin, Edge::kEnd}) {
    for (const int64_t width : {1, 7, 16, 64, 100, 576}) {
      CheckRms(3, width, width, edge);
      CheckRms(1, width, width + 5, edge);
    }
  }
}

TEST_P(DecoderPartsOn, SwiGluIsItsFormula) {
  for (const int64_t width : {1, 5, 16, 100}) {
    std::vector<float> values = Noise(3, 3 * 2 * width, 40);
    values[0] = 120;  // exp of it or of its negative overflows
    values[static_cast<size_t>(2 * width)] = -120;
    const GuardedBuffer<float> x(values, Edge::kEnd);
    GuardedBuffer<float> out(3 * width, Edge::kEnd);
    SwiGluRows(x.data(), 3, width, out.data());
    for (int64_t i = 0; i < 3 * width; ++i) {
      const double gate = x[i / width * 2 * width + i % width], up = x[i / width * 2 * width + width + i % width];
      const double expected = gate / (1 + std::exp(-gate)) * up;
      // The exponential's argument is rounded, which counts with the gate's size; then four roundings.
      const double bound = (4 + std::abs(gate)) * 6e-8 + 2e-7;
      ASSERT_NEAR(out[i], expected, bound * std::abs(expected) + 1e-30) << gate;
    }
  }
}

TEST_P(DecoderPartsOn, SwiGluPassesNaNOn) {
  const std::vector<float> x{std::numeric_limits<float>::quiet_NaN(), 1};
  float out = 0;
  SwiGluRows(x.data(), 1, 1, &out);
  EXPECT_TRUE(std::isnan(out));
}

INSTANTIATE_TEST_SUITE_P(Isas, DecoderPartsOn, testing::ValuesIn(SupportedIsas()),
                         [](const auto& parameter) { return std::string(NameOf(parameter.param)); });

TEST(RmsNorm, HeadsInsideRowsAreNormalisedWhereTheyLie) {
  const int64_t rows = 3, heads = 2, width = 8, stride = 20;
  const std::vector<float> gain = Noise(4, width, 2), x = Noise(5, rows * stride, 3);
  const RmsNorm norm(gain, 1e-6f);
  std::vector<float> got = x;
  norm.ForwardHeads(got.data(), rows, stride, heads);
  for (int64_t r = 0; r < rows; ++r) {
    std::vector<float> expected(static_cast<size_t>(heads * width));
    norm.Forward(x.data() + r * stride, heads, expected.data());
    const auto row = got.begin() + r * stride;
    EXPECT_TRUE(std::equal(expected.begin(), expected.end(), row));
    EXPECT_TRUE(std::equal(row + heads * width, row + stride, x.begin() + r * stride + heads * width));
  }
}

// Q8_0 blocks of noise: a scale and 32 signed bytes each.
struct Blocks {
  std::vector<std::byte> bytes;
  QuantisedMatrix matrix;

  Blocks(int64_t rows, int64_t cols, uint32_t seed) {
    const std::vector<float> noise = Noise(seed, rows * cols / 32 * 34, 254);
    for (size_t i = 0; i < noise.size(); ++i) {
      bytes.push_back(static_cast<std::byte>(static_cast<int8_t>(noise[i])));
      if (i % 34 != 1) continue;
      const Float16 scale = ToFloat16(0.002f + 0.00001f * std::abs(noise[i]));
      std::memcpy(&bytes[i - 1], &scale, sizeof scale);
    }
    matrix = {QuantisedType::kQ8_0, rows, cols, bytes.data()};
  }
};

// Few rows go through the blocks, many through bfloat16 made of them; both are the float32 product but for rounding.
TEST(StoredLinear, FewAndManyRowsAreTheFloatProduct) {
  const int64_t inputs = 64, first = 24, second = 10, outputs = first + second;
  const Blocks a(first, inputs, 1), b(second, inputs, 2);
  std::vector<float> weight(static_cast<size_t>(outputs * inputs));
  DequantiseRows(a.matrix, 0, first, DType::kF32, weight.data());
  DequantiseRows(b.matrix, 0, second, DType::kF32, weight.data() + first * inputs);
  AlignedBuffer<float> bias(outputs);
  const std::vector<float> offsets = Noise(6, outputs);
  std::copy(offsets.begin(), offsets.end(), bias.data());
  const Linear exact(inputs, LinearPart{weight.data(), offsets.data(), outputs}, Activation::kGeluTanh);
  const StoredLinear stored({{a.matrix, b.matrix}, std::move(bias), Activation::kGeluTanh});
  EXPECT_EQ(stored.outputs(), outputs);
  for (const int64_t rows : {1, 3, 16, 17, 40}) {
    const std::vector<float> x = Noise(7, rows * inputs, 2);
    std::vector<float> got(static_cast<size_t>(rows * outputs), 5.0f), expected = got;
    stored.Forward(x.data(), rows, got.data());
    exact.Forward(x.data(), rows, expected.data());
    const float tolerance = rows <= StoredLinear::kFewRows ? 1e-4f : 2e-2f;  // bfloat16 has 8 bits
    EXPECT_THAT(got, testing::Pointwise(testing::FloatNear(tolerance), expected)) << rows;
  }
}

TEST(StoredLinear, AddsWhereItIsAsked) {
  const Blocks a(8, 32, 3);
  const StoredLinear stored({{a.matrix}, {}, Activation::kNone});
  const std::vector<float> x = Noise(8, 2 * 32, 2);
  std::vector<float> plain(16), added(16, 1.0f);
  stored.Forward(x.data(), 2, plain.data());
  stored.Forward(x.data(), 2, added.data(), Into::kAdd);
  for (size_t i = 0; i < 16; ++i) EXPECT_FLOAT_EQ(added[i], plain[i] + 1.0f);
}

}  // namespace
}  // namespace qkv
