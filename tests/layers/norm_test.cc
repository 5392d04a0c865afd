#include "kernels/norm.h"

#include <gtest/gtest.h>

#include <cmath>

#include "layers/noise.h"
#include "runtime/cpu.h"
#include "support/guard.h"

namespace qkv {
namespace {

using test::Edge;
using test::GuardedBuffer;
using test::Noise;

class LayerNormOn : public testing::TestWithParam<Isa> {
 protected:
  void SetUp() override { ForceIsa(GetParam()); }
  void TearDown() override { ForceIsa(chosen_); }

 private:
  Isa chosen_ = ChosenIsa();
};

void Check(int64_t rows, int64_t width, float offset, double tolerance, Edge edge) {
  SCOPED_TRACE(testing::Message() << rows << " x " << width << " around " << offset);
  constexpr float kEpsilon = 1e-12f;
  std::vector<float> values = Noise(1, rows * width, 4);
  for (float& value : values) value += offset;
  const GuardedBuffer<float> x(values, edge), gain(Noise(2, width, 2), edge), shift(Noise(3, width), edge);
  GuardedBuffer<float> out(rows * width, edge);
  LayerNormRows(x.data(), rows, {gain.data(), shift.data(), width, kEpsilon}, out.data());
  for (int64_t r = 0; r < rows; ++r) {
    const float* row = x.data() + r * width;
    double mean = 0, variance = 0;
    for (int64_t c = 0; c < width; ++c) mean += row[c] / static_cast<double>(width);
    for (int64_t c = 0; c < width; ++c)
      variance += (row[c] - mean) * (row[c] - mean) / static_cast<double>(width);
    for (int64_t c = 0; c < width; ++c) {
      const double expected = (row[c] - mean) / std::sqrt(variance + kEpsilon) * gain[c] + shift[c];
      ASSERT_NEAR(out[r * width + c], expected, tolerance) << "row " << r << " channel " << c;
    }
  }
}

TEST_P(LayerNormOn, IsWhatTheFormulaSays) {
  for (int64_t width : {2, 3, 7, 8, 15, 16, 17, 31, 32, 33, 47, 48, 64, 384, 385, 768}) {
    Check(3, width, 0, 4e-6, Edge::kEnd);
    Check(2, width, 0, 4e-6, Edge::kBegin);
  }
}

// The mean's own rounding, 1000 * 2^-24 * a few, divided by a deviation of about 1.
TEST_P(LayerNormOn, KeepsItsDigitsAroundALargeMean) { Check(2, 384, 1000, 1e-3, Edge::kEnd); }

TEST_P(LayerNormOn, AConstantRowGivesTheShift) {
  const std::vector<float> x(40, 3.0f), gain(40, 2.0f), shift = Noise(1, 40);
  std::vector<float> out(40);
  LayerNormRows(x.data(), 1, {gain.data(), shift.data(), 40, 1e-5f}, out.data());
  EXPECT_EQ(out, shift);
}

TEST_P(LayerNormOn, WorksInPlace) {
  const std::vector<float> gain = Noise(2, 100), shift = Noise(3, 100), x = Noise(1, 500);
  std::vector<float> apart(500), in_place = x;
  const LayerNormParameters parameters{gain.data(), shift.data(), 100, 1e-5f};
  LayerNormRows(x.data(), 5, parameters, apart.data());
  LayerNormRows(in_place.data(), 5, parameters, in_place.data());
  EXPECT_EQ(in_place, apart);
}

INSTANTIATE_TEST_SUITE_P(EveryIsa, LayerNormOn, testing::ValuesIn(SupportedIsas()),
                         [](const auto& parameter) { return std::string(NameOf(parameter.param)); });

}  // namespace
}  // namespace qkv
