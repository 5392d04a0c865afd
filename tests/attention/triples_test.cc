// float32 as triples on AMX's tiles, beside double precision and beside float32's own chains.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <vector>

#include "attention/forward.h"
#include "attention_call.h"
#include "kernels/problem.h"
#include "kernels/triples.h"
#include "support/option_set.h"
#include "support/oracle.h"

namespace qkv::test {
namespace {

// All tests of this program try triples on small calls.
class OnSmallCalls : public testing::Environment {
  void SetUp() override { SetLeastForTriples({kMaxBlockRows + 1, kMaxBlockRows + 1, 1}); }
};
[[maybe_unused]] const testing::Environment* const on_small_calls =
    testing::AddGlobalTestEnvironment(new OnSmallCalls);

constexpr int64_t kHeads = 2, kGroup = 2, kQueries = 150, kKeys = 700, kD = 64;

struct Inputs {
  Array<float> q, k, v;

  explicit Inputs(double size)
      : q(Array<float>::Random({1, kHeads * kGroup, kQueries, kD}, 1, size)),
        k(Array<float>::Random({1, kHeads, kKeys, kD}, 2, size)),
        v(Array<float>::Random({1, kHeads, kKeys, kD}, 3, size)) {}
};

Array<double> InDouble(const Array<float>& from) {
  return Array<double>(from.shape, [&](int64_t i) { return from[i]; });
}

// Without lse: calls that want one do not take triples.
template <class T>
Array<T> Out(const Array<T>& q, const Array<T>& k, const Array<T>& v, const AttentionOptions& options) {
  Array<T> out({q.shape[0], q.shape[1], q.shape[2], v.shape[3]}, 7);
  Attention(q.in(), k.in(), v.in(), options, out.out());
  return out;
}

Array<double> Reference(const Inputs& in, const AttentionOptions& options = {}) {
  return Out(InDouble(in.q), InDouble(in.k), InDouble(in.v), options);
}

double RmsError(const Array<float>& values, const Array<double>& expected) {
  double squares = 0;
  for (int64_t i = 0; i < values.shape.elements(); ++i) {
    const double error = static_cast<double>(values[i]) - expected[i];
    squares += error * error;
  }
  return std::sqrt(squares / static_cast<double>(values.shape.elements()));
}

class Triples : public testing::Test {
 protected:
  void SetUp() override {
    const std::vector<Isa> isas = SupportedIsas();
    if (!HasTripleKernels(isas.back())) GTEST_SKIP() << "no tiles on this machine";
  }
  void TearDown() override { ForceIsa(SupportedIsas().back()); }

  static Array<float> On(Isa isa, const Inputs& in, const AttentionOptions& options = {}) {
    ForceIsa(isa);
    return Out(in.q, in.k, in.v, options);
  }
};

TEST_F(Triples, ErrorsAreNotAboveThoseOfFloat32sChains) {
  for (const double size : {0.3, 1.0, 3.0}) {
    const Inputs in(size);
    const Array<double> exact = Reference(in);
    const Array<float> triples = On(Isa::kAmx, in), chains = On(Isa::kAvx512, in);
    EXPECT_NE(triples.values, chains.values) << "not made of triples";
    EXPECT_LE(RmsError(triples, exact), RmsError(chains, exact)) << "size " << size;
  }
}

TEST_F(Triples, LighterKeysKeepTheirDigits) {
  // Key 40 outweighs the others by up to e^60 and has no value of its own.
  for (const float below : {10.0f, 20.0f, 60.0f}) {
    Inputs in(1);
    for (float& value : in.q.values) value = 1;
    std::fill(in.k.values.begin(), in.k.values.end(), 0.0f);
    for (int64_t h = 0; h < kHeads; ++h) {
      for (int64_t c = 0; c < kD; ++c) {
        in.k[(h * kKeys + 40) * kD + c] = below * 8 / kD;
        in.v[(h * kKeys + 40) * kD + c] = 0;
      }
    }
    for (float& value : in.v.values) value = std::abs(value) * 1e-9f;
    const Array<double> exact = Reference(in);
    const Array<float> triples = On(Isa::kAmx, in);
    for (int64_t i = 0; i < triples.shape.elements(); ++i) {
      ASSERT_NEAR(triples[i] / exact[i], 1, 2e-6) << below << " at " << i;
    }
  }
}

// Sets of options that take triples, against plain attention in double.
OptionSet DrawForTriples(Rng& rng, Types types) {
  constexpr int64_t kBudget = 2'000'000;
  FixedLevels fixed = NothingFixed();
  for (const Factor none :
       {Factor::kLeft, Factor::kRight, Factor::kMaskShape, Factor::kBiasShape, Factor::kAlibi, Factor::kDropout,
        Factor::kLse}) {
    fixed[static_cast<size_t>(none)] = 0;
  }
  fixed[static_cast<size_t>(Factor::kTypes)] = static_cast<int>(types);
  fixed[static_cast<size_t>(Factor::kIsa)] = static_cast<int>(SupportedIsas().size()) - 1;
  OptionSet set = DrawOptionSet(rng, kBudget, fixed);
  while (set.tq() * set.q_heads() / set.kv_heads() <= kMaxBlockRows) set = DrawOptionSet(rng, kBudget, fixed);
  return set;
}

TEST_F(Triples, AgreeWithTheOracle) {
  Rng rng(11);
  for (int n = 0; n < 600; ++n) {
    const OptionSet set = DrawForTriples(rng, n % 3 == 2 ? Types::kF16 : Types::kF32);
    ASSERT_EQ(set.Name(Factor::kAlibi) + set.Name(Factor::kLse) + set.Name(Factor::kLeft), "nonenoneopen");
    EXPECT_EQ(CheckOptionSet(set), "");
  }
}

// Queries that triples do not stand for are multiplied in float32, the whole head with them; keys and values, the rows
// with them that see them.
void ExpectFloat32(Array<float>& of, int64_t at, float number, const Inputs& in) {
  const float before = of[at];
  of[at] = number;
  ForceIsa(Isa::kAmx);
  const Array<float> triples = Out(in.q, in.k, in.v, {});
  ForceIsa(Isa::kAvx512);
  const Array<float> chains = Out(in.q, in.k, in.v, {});
  of[at] = before;
  const int64_t head = kGroup * kQueries * kD;
  const size_t bytes = static_cast<size_t>(head) * sizeof(float);
  EXPECT_EQ(0, std::memcmp(&triples[0], &chains[0], bytes)) << number;
  EXPECT_NE(0, std::memcmp(&triples[head], &chains[head], bytes)) << "the other head";
}

TEST_F(Triples, HeadsWithNumbersThatHaveNoTriplesAreMadeInFloat32) {
  Inputs in(1);
  const float infinity = HUGE_VALF, nan = std::numeric_limits<float>::quiet_NaN();
  for (const float number : {nan, infinity, -infinity, 3e38f, -1e19f, 1e-40f}) {
    ExpectFloat32(in.q, 100 * kD + 3, number, in);
    ExpectFloat32(in.k, 600 * kD + 63, number, in);
    ExpectFloat32(in.v, 699 * kD, number, in);
  }
  ExpectFloat32(in.v, 5, 1e-19f, in);
}

// The rows from `first` on see what triples do not stand for, those before it do not.
void ExpectFloat32From(int64_t first, const Inputs& in, const Inputs& clean, const AttentionOptions& options) {
  ForceIsa(Isa::kAmx);
  const Array<float> some = Out(in.q, in.k, in.v, options), none = Out(clean.q, clean.k, clean.v, options);
  ForceIsa(Isa::kAvx512);
  const Array<float> chains = Out(in.q, in.k, in.v, options);
  for (int64_t h = 0; h < kHeads * kGroup; ++h) {
    const int64_t begin = h * kQueries * kD, middle = begin + first * kD, end = begin + kQueries * kD;
    const auto same = [&](const Array<float>& one, int64_t from, int64_t to) {
      return std::memcmp(&some[from], &one[from], static_cast<size_t>(to - from) * sizeof(float)) == 0;
    };
    EXPECT_TRUE(same(none, begin, middle)) << "head " << h;
    EXPECT_TRUE(same(chains, middle, end)) << "head " << h;
    EXPECT_TRUE(first == 0 || !same(chains, begin, middle)) << "not made of triples";
  }
}

TEST_F(Triples, RowsThatDoNotSeeOddNumbersKeepTheirBits) {
  const Inputs clean(1);
  AttentionOptions options;
  options.causal = Causal::kBottomRight;
  constexpr int64_t kOffset = kKeys - kQueries;  // query i sees keys to i + kOffset
  for (const int64_t first : {int64_t{0}, int64_t{1}, int64_t{95}, int64_t{96}, kQueries - 1}) {
    for (const float number : {HUGE_VALF, std::numeric_limits<float>::quiet_NaN(), 2e18f, 1e-39f}) {
      Inputs in = clean, in_values = clean;
      for (int64_t h = 0; h < kHeads; ++h) {
        const int64_t at = (h * kKeys + kOffset + first) * kD;
        in.k[at + 7] = number;
        in_values.v[at + 63] = number;
      }
      ExpectFloat32From(first, in, clean, options);
      ExpectFloat32From(first, in_values, clean, options);
    }
  }
}

Capture Captured(Isa isa, const Inputs& in) {
  ForceIsa(isa);
  AttentionOptions options;
  options.causal = Causal::kBottomRight;
  CaptureRequest request;
  request.top_k = 4, request.entropy = request.received = true;
  Array<float> out(in.q.shape, 7);
  return AttentionWithCapture(in.q.in(), in.k.in(), in.v.in(), options, request, out.out());
}

TEST_F(Triples, CapturedWeightsAreOfTheScoresThatMadeTheOutput) {
  const Capture triples = Captured(Isa::kAmx, Inputs(1)), chains = Captured(Isa::kAvx512, Inputs(1));
  EXPECT_NE(triples.entropy, chains.entropy) << "not made of triples";
  for (int64_t h = 0; h < kHeads * kGroup; ++h) {
    const auto first = triples.received.begin() + h * kKeys;
    EXPECT_NEAR(std::accumulate(first, first + kKeys, 0.0), kQueries, 1e-4) << "head " << h;
  }
}

TEST_F(Triples, CapturedRowsThatDoNotSeeOddNumbersKeepTheirBits) {
  constexpr int64_t kFirst = 97;  // the first query that sees an odd value
  const Inputs clean(1);
  Inputs in = clean;
  for (int64_t h = 0; h < kHeads; ++h) in.v[(h * kKeys + kKeys - kQueries + kFirst) * kD + 7] = 3e38f;
  const Capture some = Captured(Isa::kAmx, in), none = Captured(Isa::kAmx, clean);
  const Capture chains = Captured(Isa::kAvx512, in);
  for (int64_t row = 0; row < kHeads * kGroup * kQueries; ++row) {
    const Capture& same = row % kQueries < kFirst ? none : chains;
    const auto r = static_cast<size_t>(row);
    EXPECT_EQ(some.entropy[r], same.entropy[r]) << "row " << row;
    for (size_t k = 4 * r; k < 4 * r + 4; ++k) {
      EXPECT_EQ(some.top_keys[k], same.top_keys[k]) << "row " << row;
      EXPECT_EQ(some.top_weights[k], same.top_weights[k]) << "row " << row;
    }
  }
}

TEST_F(Triples, GrowingScoresGetNewBases) {
  Inputs in(1);
  for (float& value : in.q.values) value = 1;
  for (int64_t h = 0; h < kHeads; ++h) {
    for (int64_t j = 0; j < kKeys; ++j) {
      for (int64_t c = 0; c < kD; ++c) in.k[(h * kKeys + j) * kD + c] += 0.1f * static_cast<float>(j);
    }
  }
  EXPECT_LE(RmsError(On(Isa::kAmx, in), Reference(in)), 3 * RmsError(On(Isa::kAvx512, in), Reference(in)));
}

TEST_F(Triples, ChunksLogSumExpsAndMostRulesTakeFloat32sChains) {
  const Inputs in(1);
  const Array<float> slopes({kHeads * kGroup}, 0.1f);
  const auto same = [&](const char* what, const AttentionOptions& options) {
    EXPECT_EQ(On(Isa::kAmx, in, options).values, On(Isa::kAvx512, in, options).values) << what;
  };
  AttentionOptions options;
  options.chunked = true;
  same("chunked", options);
  options = {};
  options.alibi_slopes = slopes.in();
  same("ALiBi", options);
  options = {};
  options.dropout_p = 0.1f, options.seed = 1;
  same("dropout", options);
  options = {};
  options.window.left = 3;
  same("window", options);
  ForceIsa(Isa::kAmx);
  const Array<float> with_lse = Attend(in.q, in.k, in.v).out;
  EXPECT_EQ(with_lse.values, On(Isa::kAvx512, in).values);
}

}  // namespace
}  // namespace qkv::test
