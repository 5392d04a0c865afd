// Quantised blocks on every instruction set: dequantised as the reference implementation does (golden/kernels),
// and products against plain loops in double.
#include "kernels/quantised.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <fstream>
#include <iterator>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "runtime/half.h"
#include "support/guard.h"
#include "support/rng.h"

namespace qkv::test {
namespace {

constexpr QuantisedType kTypes[] = {QuantisedType::kQ8_0, QuantisedType::kQ4_0, QuantisedType::kQ4_1,
                                    QuantisedType::kQ5_0, QuantisedType::kQ5_1, QuantisedType::kQ4_K,
                                    QuantisedType::kQ5_K, QuantisedType::kQ6_K};
constexpr int64_t kElements = 512;  // of each type in the golden file

struct Golden {
  QuantisedType type;
  std::vector<std::byte> blocks;
  std::vector<float> values;
};

std::vector<Golden> ReadGolden() {
  std::ifstream file(std::string(QKV_GOLDEN) + "/kernels/quantised.bin", std::ios::binary);
  const std::vector<char> bytes{std::istreambuf_iterator<char>(file), {}};
  std::vector<Golden> all;
  size_t at = 0;
  for (const QuantisedType type : kTypes) {
    Golden golden{type, {}, std::vector<float>(kElements)};
    golden.blocks.resize(static_cast<size_t>(kElements / BlockOf(type).elements * BlockOf(type).bytes));
    std::memcpy(golden.blocks.data(), bytes.data() + at, golden.blocks.size());
    at += golden.blocks.size();
    std::memcpy(golden.values.data(), bytes.data() + at, kElements * sizeof(float));
    at += kElements * sizeof(float);
    all.push_back(std::move(golden));
  }
  EXPECT_EQ(at, bytes.size());
  return all;
}

// Runs `check` on every instruction set.
template <class Check>
void OnEveryIsa(Check check) {
  const Isa chosen = ChosenIsa();
  for (const Isa isa : SupportedIsas()) {
    ForceIsa(isa);
    SCOPED_TRACE(NameOf(isa));
    check();
  }
  ForceIsa(chosen);
}

TEST(Quantised, DequantisesAsTheReference) {
  for (const Golden& golden : ReadGolden()) {
    const GuardedBuffer<std::byte> blocks{std::span(golden.blocks)};
    OnEveryIsa([&] {
      const QuantisedMatrix matrix{golden.type, 2, kElements / 2, blocks.data()};
      GuardedBuffer<float> floats(kElements);
      GuardedBuffer<BFloat16> halves(kElements);
      DequantiseRows(matrix, 0, 2, DType::kF32, floats.data());
      DequantiseRows(matrix, 0, 2, DType::kBF16, halves.data());
      for (int64_t i = 0; i < kElements; ++i) {
        const float expected = golden.values[static_cast<size_t>(i)];
        ASSERT_EQ(std::bit_cast<uint32_t>(floats[i]), std::bit_cast<uint32_t>(expected))
            << NameOf(golden.type) << " " << i << ": " << floats[i] << ", expected " << expected;
        ASSERT_EQ(halves[i].bits, ToBFloat16(expected).bits) << NameOf(golden.type) << " " << i;
      }
    });
  }
}

TEST(Quantised, DequantisesAnyRows) {
  for (const Golden& golden : ReadGolden()) {
    OnEveryIsa([&] {
      GuardedBuffer<float> second(kElements / 2);
      DequantiseRows({golden.type, 2, kElements / 2, golden.blocks.data()}, 1, 1, DType::kF32, second.data());
      EXPECT_TRUE(std::equal(second.begin(), second.end(), golden.values.begin() + kElements / 2))
          << NameOf(golden.type);
    });
  }
}

// ---- The vector

struct Vector {
  std::vector<float> x;
  GuardedBuffer<int16_t> q;
  GuardedBuffer<int8_t> split;
  GuardedBuffer<VectorScale> scales;

  explicit Vector(std::vector<float> values)
      : x(std::move(values)),
        q(static_cast<int64_t>(x.size())),
        split(SplitBytes(static_cast<int64_t>(x.size()))),
        scales(static_cast<int64_t>(x.size()) / kVectorGroup) {
    const GuardedBuffer<float> guarded{std::span<const float>(x)};
    QuantiseVector(guarded.data(), guarded.size(), q.data(), scales.data());
    if (MultipliesBytes(QuantisedType::kQ4_1)) SplitVector(q.data(), guarded.size(), split.data());
  }
  float At(int64_t i) const { return static_cast<float>(q[i]) * scales[i / kVectorGroup].scale; }
};

std::vector<float> RandomVector(int64_t count, uint64_t seed) {
  Rng rng(seed);
  std::vector<float> x(static_cast<size_t>(count));
  for (size_t i = 0; i < x.size(); ++i) {
    x[i] = static_cast<float>(rng.Symmetric() * std::pow(10, static_cast<double>(i / 32 % 5)));
  }
  return x;
}

TEST(QuantisedVector, RoundsToHalfAStep) {
  OnEveryIsa([] {
    const Vector vector(RandomVector(320, 3));
    for (int64_t g = 0; g < 10; ++g) {
      double sum = 0;
      for (int64_t i = 32 * g; i < 32 * (g + 1); ++i) {
        EXPECT_LE(std::abs(vector.At(i) - vector.x[static_cast<size_t>(i)]), vector.scales[g].scale * 0.502f);
        sum += vector.At(i);
      }
      EXPECT_NEAR(vector.scales[g].sum, sum, std::abs(sum) * 1e-6 + vector.scales[g].scale * 0.01);
    }
  });
}

TEST(QuantisedVector, ZerosAndTheSmallestAreZero) {
  OnEveryIsa([] {
    std::vector<float> x(64, 0.0f);
    x[40] = std::numeric_limits<float>::denorm_min();
    const Vector vector(x);
    for (int64_t i = 0; i < 64; ++i) EXPECT_EQ(vector.q[i], 0);
    for (int64_t g = 0; g < 2; ++g) EXPECT_EQ(vector.scales[g].sum, 0.0f);
  });
}

TEST(QuantisedVector, TheLargestFloatsStayFinite) {
  OnEveryIsa([] {
    const float most = std::numeric_limits<float>::max();
    std::vector<float> x(32, most);
    x[1] = -most;
    const Vector vector(x);
    EXPECT_EQ(vector.q[0], kVectorMost);
    EXPECT_EQ(vector.q[1], -kVectorMost);
    EXPECT_TRUE(std::isfinite(vector.scales[0].scale));
  });
}

TEST(QuantisedVector, WhatIsNotFiniteComesOut) {
  const float infinity = std::numeric_limits<float>::infinity();
  for (const float value : {infinity, -infinity, std::numeric_limits<float>::quiet_NaN()}) {
    OnEveryIsa([&] {
      for (const size_t at : {32, 47, 63}) {
        std::vector<float> x(96, 1.0f);
        x[at] = value;
        const Vector vector(x);
        EXPECT_TRUE(std::isfinite(vector.scales[0].sum));
        EXPECT_TRUE(std::isnan(vector.scales[1].scale) && std::isnan(vector.scales[1].sum));
        EXPECT_TRUE(std::isfinite(vector.scales[2].sum));
      }
    });
  }
}

TEST(QuantisedVector, IsSplitExactly) {
  if (!MultipliesBytes(QuantisedType::kQ4_1)) GTEST_SKIP() << "no instructions that multiply bytes here";
  const Vector vector(RandomVector(96, 4));
  for (int64_t i = 0; i < 96; ++i) {
    const int8_t* pair = vector.split.data() + i / 64 * 128;
    EXPECT_EQ(vector.q[i], 256 * pair[i % 64] + pair[64 + i % 64]);
  }
  for (int64_t i = 32; i < 64; ++i) EXPECT_EQ(vector.split[128 + i] | vector.split[192 + i], 0);
}

// ---- Products

// By bytes where the instruction set has them, and by words.
template <class Check>
void OnEveryWay(const QuantisedMatrix& matrix, Check check) {
  OnEveryIsa([&] {
    check([](const QuantisedMatrix& m, int64_t first, int64_t rows, const Vector& vector, float* out) {
      MultiplyQuantisedRows(m, first, rows, vector.q.data(), vector.scales.data(), out);
    });
    if (!MultipliesBytes(matrix.type)) return;
    SCOPED_TRACE("bytes");
    check([](const QuantisedMatrix& m, int64_t first, int64_t rows, const Vector& vector, float* out) {
      MultiplyQuantisedBytes(m, first, rows, vector.split.data(), vector.scales.data(), out);
    });
  });
}

// Blocks of random integers, with scales like a model's.
std::vector<std::byte> RandomBlocks(QuantisedType type, int64_t rows, int64_t cols) {
  const auto [elements, bytes] = BlockOf(type);
  Rng rng(11);
  std::vector<std::byte> blocks(static_cast<size_t>(rows * cols / elements * bytes));
  for (std::byte& byte : blocks) byte = static_cast<std::byte>(rng.Below(256));
  const auto put = [&](size_t at) {
    const Float16 half = ToFloat16(static_cast<float>(rng.Symmetric()) * 0.01f);
    std::memcpy(&blocks[at], &half, sizeof half);
  };
  const size_t first = type == QuantisedType::kQ6_K ? 208 : 0;
  for (size_t block = 0; block < blocks.size(); block += static_cast<size_t>(bytes)) {
    put(block + first);
    if (type != QuantisedType::kQ6_K) put(block + 2);  // an offset, or integers of no matter
  }
  return blocks;
}

void ExpectProducts(QuantisedType type, int64_t rows, int64_t cols) {
  const std::vector<std::byte> bytes = RandomBlocks(type, rows, cols);
  const GuardedBuffer<std::byte> blocks{std::span(bytes)};
  const QuantisedMatrix matrix{type, rows, cols, blocks.data()};
  std::vector<float> dense(static_cast<size_t>(rows * cols));
  DequantiseRows(matrix, 0, rows, DType::kF32, dense.data());
  OnEveryWay(matrix, [&](const auto& multiply) {
    const Vector vector(RandomVector(cols, 5));
    GuardedBuffer<float> out(rows);
    multiply(matrix, 0, rows, vector, out.data());
    for (int64_t r = 0; r < rows; ++r) {
      double sum = 0, exact = 0, size = 0;
      for (int64_t c = 0; c < cols; ++c) {
        const double weight = dense[static_cast<size_t>(r * cols + c)];
        sum += weight * vector.At(c);
        exact += weight * vector.x[static_cast<size_t>(c)];
        size += std::abs(weight * vector.x[static_cast<size_t>(c)]);
      }
      // Float32 sums over the groups, of terms whose offsets may cancel; and the vector's rounding.
      EXPECT_NEAR(out[r], sum, 4e-6 * size) << NameOf(type) << " row " << r;
      EXPECT_NEAR(out[r], exact, 5e-5 * size) << NameOf(type) << " row " << r;
    }
  });
}

TEST(QuantisedProducts, AreThoseOfTheDequantisedRows) {
  for (const QuantisedType type : kTypes) {
    ExpectProducts(type, 7, 768);  // a remainder of rows
    if (BlockOf(type).elements == 32) ExpectProducts(type, 5, 96);  // an odd number of groups
  }
}

TEST(QuantisedProducts, ARowsBitsDependOnItAlone) {
  constexpr int64_t kRows = 9, kCols = 512;
  for (const QuantisedType type : kTypes) {
    const std::vector<std::byte> blocks = RandomBlocks(type, kRows, kCols);
    const QuantisedMatrix matrix{type, kRows, kCols, blocks.data()};
    OnEveryWay(matrix, [&](const auto& multiply) {
      const Vector vector(RandomVector(kCols, 6));
      std::vector<float> all(kRows), parts(kRows);
      multiply(matrix, 0, kRows, vector, all.data());
      for (int64_t r = 0; r < kRows; r += 2) {
        multiply(matrix, r, std::min<int64_t>(2, kRows - r), vector, parts.data() + r);
      }
      EXPECT_EQ(all, parts) << NameOf(type);
    });
  }
}

// The largest integers of all: sums that a narrower type would not hold.
TEST(QuantisedProducts, DoNotOverflow) {
  for (const QuantisedType type : kTypes) {
    std::vector<std::byte> blocks(static_cast<size_t>(512 / BlockOf(type).elements * BlockOf(type).bytes),
                                  std::byte{type == QuantisedType::kQ8_0 ? uint8_t{0x80} : uint8_t{0xff}});
    const Float16 one = ToFloat16(1), zero = ToFloat16(0);
    for (size_t block = 0; block < blocks.size(); block += static_cast<size_t>(BlockOf(type).bytes)) {
      std::memcpy(&blocks[block + (type == QuantisedType::kQ6_K ? 208 : 0)], &one, sizeof one);
      const bool offset = type == QuantisedType::kQ4_1 || type == QuantisedType::kQ5_1 ||
                          type == QuantisedType::kQ4_K || type == QuantisedType::kQ5_K;
      if (offset) std::memcpy(&blocks[block + 2], &zero, sizeof zero);
    }
    const QuantisedMatrix matrix{type, 1, 512, blocks.data()};
    std::vector<float> dense(512);
    DequantiseRows(matrix, 0, 1, DType::kF32, dense.data());
    OnEveryWay(matrix, [&](const auto& multiply) {
      const Vector vector(std::vector<float>(512, -2.0f));
      float out = 0;
      multiply(matrix, 0, 1, vector, &out);
      double exact = 0;
      for (const float weight : dense) exact += weight * -2.0;
      EXPECT_NEAR(out, exact, std::abs(exact) * 1e-6) << NameOf(type);
    });
  }
}

TEST(QuantisedProducts, NaNInTheVectorComesOut) {
  for (const QuantisedType type : kTypes) {
    const std::vector<std::byte> blocks = RandomBlocks(type, 5, 256);
    const QuantisedMatrix matrix{type, 5, 256, blocks.data()};
    OnEveryWay(matrix, [&](const auto& multiply) {
      std::vector<float> x(256, 0.0f);
      x[200] = std::numeric_limits<float>::quiet_NaN();
      const Vector vector(x);
      std::vector<float> out(5);
      multiply(matrix, 0, 5, vector, out.data());
      for (const float value : out) EXPECT_TRUE(std::isnan(value)) << NameOf(type);
    });
  }
}

}  // namespace
}  // namespace qkv::test
