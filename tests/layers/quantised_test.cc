#include "layers/quantised.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <vector>

#include "layers/noise.h"
#include "qkv/error.h"
#include "runtime/half.h"
#include "runtime/threads.h"
#include "support/rng.h"

namespace qkv::test {
namespace {

using testing::HasSubstr;

// A Q4_1 or Q8_0 matrix of random integers, scales and offsets.
struct RandomMatrix {
  std::vector<std::byte> bytes;
  QuantisedMatrix view;

  RandomMatrix(QuantisedType type, int64_t rows, int64_t cols, uint64_t seed) {
    const auto [elements, size] = BlockOf(type);
    Rng rng(seed);
    bytes.resize(static_cast<size_t>(rows * cols / elements * size));
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(rng.Below(256));
    for (size_t block = 0; block < bytes.size(); block += static_cast<size_t>(size)) {
      for (size_t at = 0; at <= 2; at += 2) {
        const Float16 half = ToFloat16(static_cast<float>(rng.Symmetric()));
        std::memcpy(&bytes[block + at], &half, sizeof half);
      }
    }
    view = {type, rows, cols, bytes.data()};
  }
};

std::vector<float> Values(int64_t count) {
  Rng rng(1);
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = static_cast<float>(rng.Symmetric());
  return values;
}

class QuantisedLayer : public testing::Test {
 protected:
  ~QuantisedLayer() override { SetThreads(threads_); }

 private:
  int threads_ = Threads();
};

TEST_F(QuantisedLayer, MultipliesSeveralMatricesSideBySide) {
  constexpr int64_t kCols = 576, kM = 3;
  const RandomMatrix q(QuantisedType::kQ4_1, 130, kCols, 1), k(QuantisedType::kQ8_0, 3, kCols, 2);
  const std::vector<float> x = Values(kM * kCols);
  std::vector<float> out(kM * 133), dense(133 * kCols);
  MultiplyQuantised(std::vector{q.view, k.view}, x.data(), kM, out.data());
  Dequantise(q.view, 0, 130, DType::kF32, dense.data());
  Dequantise(k.view, 0, 3, DType::kF32, dense.data() + 130 * kCols);
  for (size_t i = 0; i < kM; ++i) {
    for (size_t r = 0; r < 133; ++r) {
      double sum = 0, size = 0;
      for (size_t c = 0; c < kCols; ++c) {
        const double term = double{dense[r * kCols + c]} * x[i * kCols + c];
        sum += term, size += std::abs(term);
      }
      ASSERT_NEAR(out[i * 133 + r], sum, 5e-5 * size) << i << " " << r;
    }
  }
}

// Not even the number of rows of x, or which matrices go together.
TEST_F(QuantisedLayer, TheSameBitsHoweverItIsDivided) {
  constexpr int64_t kCols = 576, kM = 4, kRows = 1001;
  const RandomMatrix one(QuantisedType::kQ4_1, kRows, kCols, 1), two(QuantisedType::kQ4_1, 64, kCols, 2);
  const std::vector<float> x = Values(kM * kCols);
  std::vector<float> expected(kM * kRows);
  SetThreads(1);
  MultiplyQuantised(one.view, x.data(), kM, expected.data());
  for (const int threads : {1, 2, 3, 7}) {
    SetThreads(threads);
    std::vector<float> out(kM * kRows), both(kM * (kRows + 64));
    MultiplyQuantised(one.view, x.data(), kM, out.data());
    EXPECT_EQ(out, expected) << threads;
    MultiplyQuantised(std::vector{two.view, one.view}, x.data(), kM, both.data());
    for (int64_t i = 0; i < kM; ++i) {
      std::vector<float> alone(kRows);
      MultiplyQuantised(one.view, x.data() + i * kCols, 1, alone.data());
      EXPECT_TRUE(std::equal(alone.begin(), alone.end(), expected.begin() + i * kRows)) << threads << " " << i;
      EXPECT_TRUE(std::equal(alone.begin(), alone.end(), both.begin() + i * (kRows + 64) + 64)) << threads;
    }
  }
}

TEST_F(QuantisedLayer, NothingToDo) {
  const RandomMatrix some(QuantisedType::kQ4_1, 8, 64, 1), none(QuantisedType::kQ4_1, 0, 64, 1);
  MultiplyQuantised(some.view, nullptr, 0, nullptr);
  MultiplyQuantised(std::span<const QuantisedMatrix>(), nullptr, 1, nullptr);
  const std::vector<float> x = Values(64);
  MultiplyQuantised(none.view, x.data(), 1, nullptr);
  Dequantise(some.view, 8, 0, DType::kF32, nullptr);
}

TEST_F(QuantisedLayer, DequantisesRowsInBothTypes) {
  constexpr int64_t kRows = 200, kCols = 96;
  const RandomMatrix matrix(QuantisedType::kQ4_1, kRows, kCols, 1);
  std::vector<float> all(kRows * kCols), some(150 * kCols);
  std::vector<BFloat16> halves(kRows * kCols);
  Dequantise(matrix.view, 0, kRows, DType::kF32, all.data());
  Dequantise(matrix.view, 50, 150, DType::kF32, some.data());
  Dequantise(matrix.view, 0, kRows, DType::kBF16, halves.data());
  EXPECT_TRUE(std::equal(some.begin(), some.end(), all.begin() + 50 * kCols));
  for (size_t i = 0; i < all.size(); ++i) ASSERT_EQ(halves[i].bits, ToBFloat16(all[i]).bits) << i;
}

TEST_F(QuantisedLayer, RefusesRowsThatAreNotThere) {
  const RandomMatrix matrix(QuantisedType::kQ4_1, 8, 64, 1);
  std::vector<float> out(64 * 8);
  const auto error = [&](int64_t first, int64_t rows, DType dtype) {
    try {
      Dequantise(matrix.view, first, rows, dtype, out.data());
    } catch (const Error& e) {
      return std::string(e.what());
    }
    return std::string("no error");
  };
  EXPECT_EQ(error(7, 2, DType::kF32), "rows: rows outside the matrix, expected 0 to 8, got 2 from 7");
  EXPECT_THAT(error(-1, 2, DType::kF32), HasSubstr("got 2 from -1"));
  EXPECT_THAT(error(8, 1, DType::kF32), HasSubstr("got 1 from 8"));
  EXPECT_THAT(error(std::numeric_limits<int64_t>::max(), 1, DType::kF32), HasSubstr("rows outside the matrix"));
  EXPECT_THAT(error(0, 1, DType::kF16),
              HasSubstr("dtype: wrong type to dequantise to, expected float32 or bfloat16"));
}

}  // namespace
}  // namespace qkv::test
