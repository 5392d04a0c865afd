// What users of attention libraries reported, each kind of fault as a test with its right value, on every
// instruction set and, where it matters, in every type.
#include <gtest/gtest.h>
#include <malloc.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <vector>

#include "attention_call.h"
#include "qkv/error.h"
#include "support/tolerance.h"

namespace qkv::test {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kClose = 4 * std::numeric_limits<float>::epsilon();

// Weights of one row of scores, read off values that are one-hot: q is 1, k holds the scores, scale is 1.
std::vector<float> WeightsOf(const std::vector<float>& scores, AttentionOptions options, float* lse = nullptr) {
  const int64_t n = static_cast<int64_t>(scores.size());
  const Array<float> q({1, 1, 1, 1}, 1.0f);
  const Array<float> k({1, 1, n, 1}, [&](int64_t j) { return scores[static_cast<size_t>(j)]; });
  const Array<float> v({1, 1, n, n}, [&](int64_t at) { return at / n == at % n; });
  options.scale = 1.0f;
  const Answer<float> answer = Attend(q, k, v, options);
  if (lse != nullptr) *lse = answer.lse[0];
  return answer.out.values;
}

void ExpectClose(const std::vector<float>& got, const std::vector<float>& expected, float bound = kClose) {
  ASSERT_EQ(got.size(), expected.size());
  for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], expected[i], bound) << i;
}

// ---- masks and softmax edges

TEST(Users, ABlockedRowIsZeroAndLeavesTheOthersAlone) {
  const auto q = Array<float>::Random({1, 2, 6, 8}, 1), k = Array<float>::Random({1, 2, 10, 8}, 2),
             v = Array<float>::Random({1, 2, 10, 8}, 3);
  Mask mask({6, 10}, std::vector<uint8_t>(60, 1));
  std::fill(mask.values.begin() + 50, mask.values.end(), uint8_t{0});
  AttentionOptions blocked;
  blocked.mask = mask.in();
  OnEveryIsa([&](Isa) {
    const Answer<float> answer = Attend(q, k, v, blocked), open = Attend(q, k, v);
    for (int64_t row = 0; row < 12; ++row) {
      const bool is_blocked = row % 6 == 5;
      EXPECT_EQ(answer.lse[row], is_blocked ? -kInfinity : open.lse[row]);
      for (int64_t c = 0; c < 8; ++c)
        EXPECT_EQ(answer.out[row * 8 + c], is_blocked ? 0 : open.out[row * 8 + c]);
    }
  });
}

TEST(Users, TheLowestFiniteMaskIsANumberAndDoesNotBlock) {
  OnEveryIsa([&](Isa) {
    for (int64_t tk : {4, 300, 1500}) {
      const auto q = Array<float>::Random({1, 1, 3, 4}, 1), k = Array<float>::Random({1, 1, tk, 4}, 2),
                 v = Array<float>::Random({1, 1, tk, 4}, 3);
      Array<float> bias({3, tk}, 0.0f);
      std::fill_n(bias.values.begin(), tk, std::numeric_limits<float>::lowest());
      AttentionOptions options;
      options.bias = bias.in();
      const Answer<float> answer = Attend(q, k, v, options);
      for (int64_t c = 0; c < 4; ++c) {
        double mean = 0;
        for (int64_t j = 0; j < tk; ++j) mean += v[j * 4 + c];
        EXPECT_NEAR(answer.out[c], mean / static_cast<double>(tk), 4e-7);
      }
      EXPECT_FLOAT_EQ(answer.lse[0], std::numeric_limits<float>::lowest());
    }
  });
}

TEST(Users, AskingForWeightsChangesNothingThoughAHeadIsBlocked) {
  const auto q = Array<float>::Random({1, 3, 5, 4}, 1), k = Array<float>::Random({1, 3, 5, 4}, 2),
             v = Array<float>::Random({1, 3, 5, 4}, 3);
  const Mask mask({3, 1, 1}, {1, 1, 0});
  AttentionOptions options;
  options.mask = mask.in();
  OnEveryIsa([&](Isa) {
    const Answer<float> plain = Attend(q, k, v, options);
    Array<float> out({1, 3, 5, 4}, 7);
    CaptureRequest request;
    request.rows = std::vector<int64_t>{0, 1, 2, 3, 4};
    request.top_k = 2;
    request.entropy = request.received = true;
    const Capture capture = AttentionWithCapture(q.in(), k.in(), v.in(), options, request, out.out());
    EXPECT_EQ(out.values, plain.out.values);
    for (size_t i = 50; i < 75; ++i) EXPECT_EQ(capture.row_values[i], 0);
    for (size_t i = 10; i < 15; ++i) EXPECT_EQ(capture.entropy[i], 0);
    for (size_t i = 20; i < 30; ++i) EXPECT_EQ(capture.top_keys[i], -1);
    EXPECT_NEAR(std::accumulate(capture.row_values.begin(), capture.row_values.end(), 0.0), 10, 1e-5);
  });
}

// Fresh memory holds NaN while one lives.
struct NanInFreshMemory {
  NanInFreshMemory() { mallopt(M_PERTURB, 0x100); }  // fills with the complement of the low byte
  ~NanInFreshMemory() { mallopt(M_PERTURB, 0); }
};

template <class T>
void ExpectNoWeightsInBlockedRow() {
  for (int64_t tk : {1, 40, 1500}) {
    const auto q = Array<T>::Random({1, 1, 3, 8}, 1), k = Array<T>::Random({1, 1, tk, 8}, 2),
               v = Array<T>::Random({1, 1, tk, 8}, 3);
    const Mask mask({3, 1}, {1, 0, 1});
    AttentionOptions options;
    options.mask = mask.in();
    Array<T> out({1, 1, 3, 8}, 7.0f);
    CaptureRequest request;
    request.rows = std::vector<int64_t>{0, 1};
    request.entropy = true;
    const NanInFreshMemory guard;
    const Capture capture = AttentionWithCapture(q.in(), k.in(), v.in(), options, request, out.out());
    for (int64_t j = 0; j < tk; ++j) ASSERT_EQ(capture.row_values[static_cast<size_t>(tk + j)], 0) << tk;
    EXPECT_EQ(capture.entropy[1], 0);
  }
}

TEST(Users, ABlockedRowHasNoWeightsWhateverTheMemoryHeld) {
  OnEveryIsa([&](Isa) {
    ExpectNoWeightsInBlockedRow<float>();
    ExpectNoWeightsInBlockedRow<BFloat16>();
    ExpectNoWeightsInBlockedRow<Float16>();
  });
}

// NaN and Inf in cache slots past each sequence's length, in blocked keys, and beside keys that other rows see.
template <class T>
void ExpectUnusedSlotsDoNotLeak(float poison) {
  for (int64_t d : {64, 5}) {
    const int64_t slots = 300;
    const Array<T> q({2, 1, 1, d}, 0.5f);
    auto k = Array<T>::Random({2, 1, slots, d}, 2), v = Array<T>::Random({2, 1, slots, d}, 3);
    auto zeros_k = k, zeros_v = v;
    AttentionOptions options;
    options.kv_lengths = std::vector<int64_t>{1, 270};
    for (int64_t at = 0; at < 2 * slots * d; ++at) {
      const int64_t slot = at / d % slots;
      if (slot < (*options.kv_lengths)[static_cast<size_t>(at / (slots * d))]) continue;
      k[at] = v[at] = FromFloat<T>(poison);
      zeros_k[at] = zeros_v[at] = FromFloat<T>(0);
    }
    const Answer<T> got = Attend(q, k, v, options), expected = Attend(q, zeros_k, zeros_v, options);
    EXPECT_EQ(
        0, std::memcmp(got.out.values.data(), expected.out.values.data(), sizeof(T) * got.out.values.size()));
    EXPECT_EQ(got.lse.values, expected.lse.values);
  }
}

TEST(Users, NanInUnusedCacheSlotsDoesNotLeak) {
  OnEveryIsa([&](Isa) {
    for (float poison : {kNan, kInfinity, -kInfinity}) {
      ExpectUnusedSlotsDoNotLeak<float>(poison);
      ExpectUnusedSlotsDoNotLeak<BFloat16>(poison);
      ExpectUnusedSlotsDoNotLeak<Float16>(poison);
      ExpectUnusedSlotsDoNotLeak<double>(poison);
    }
  });
}

TEST(Users, NanInAVisibleInputComesOut) {
  OnEveryIsa([&](Isa) {
    for (int64_t tk : {5, 700, 2100}) {
      auto q = Array<float>::Random({1, 1, 2, 4}, 1);
      const auto k = Array<float>::Random({1, 1, tk, 4}, 2), v = Array<float>::Random({1, 1, tk, 4}, 3);
      q[0] = kNan;
      // What row 0 sees ends long before row 1's keys do, whatever tiles they share.
      Mask mask({2, tk}, std::vector<uint8_t>(static_cast<size_t>(2 * tk), 1));
      std::fill(mask.values.begin() + 3, mask.values.begin() + tk, uint8_t{0});
      AttentionOptions options;
      options.mask = mask.in();
      const Answer<float> answer = Attend(q, k, v, options);
      EXPECT_TRUE(std::isnan(answer.lse[0]));
      for (int64_t c = 0; c < 4; ++c) EXPECT_TRUE(std::isnan(answer.out[c])) << "tk " << tk;
      for (int64_t c = 4; c < 8; ++c) EXPECT_TRUE(std::isfinite(answer.out[c]));
    }
  });
}

TEST(Users, SoftcapComesBeforeTheMask) {
  const Mask mask({2}, {1, 0});
  const Array<float> bias({2}, [](int64_t j) { return j == 0 ? 0 : -HUGE_VAL; });
  AttentionOptions masked, biased;
  masked.softcap = biased.softcap = 2.0f;
  masked.mask = mask.in();
  biased.bias = bias.in();
  OnEveryIsa([&](Isa) {
    EXPECT_EQ(WeightsOf({0, 0}, masked), (std::vector<float>{1, 0}));
    EXPECT_EQ(WeightsOf({0, 0}, biased), (std::vector<float>{1, 0}));
  });
}

TEST(Users, ATinySoftcapIsStillANumber) {
  AttentionOptions options;
  options.softcap = 1e-40f;
  OnEveryIsa([&](Isa) { ExpectClose(WeightsOf({0, 5, -3, 0}, options), {.25f, .25f, .25f, .25f}); });
}

TEST(Users, BlockedKeysLoseToVisibleOnesHoweverLow) {
  const std::vector<float> scores{-110208.05f, -110189.81f, -110206.52f, -110208.45f, -110192.60f, 0, 0, 0};
  const Mask mask({8}, {1, 1, 1, 1, 1, 0, 0, 0});
  AttentionOptions options;
  options.mask = mask.in();
  OnEveryIsa([&](Isa) { ExpectClose(WeightsOf(scores, options), {0, .942f, 0, 0, .058f, 0, 0, 0}, 2e-3f); });
}

TEST(Users, BlockedIsALogicalOrNotASum) {
  const Mask mask({7}, {1, 0, 0, 1, 0, 0, 0});
  AttentionOptions options;
  options.mask = mask.in();
  options.window.left = 0, options.window.right = 0;
  options.offset = std::vector<int64_t>{5};  // the window leaves key 5 alone, the mask blocks it
  OnEveryIsa([&](Isa) {
    float lse = 0;
    EXPECT_EQ(WeightsOf({6.6f, 0, 0, 0, 0, 0, 0}, options, &lse), std::vector<float>(7, 0));
    EXPECT_EQ(lse, -kInfinity);
  });
}

TEST(Users, AFloatMaskIsAdded) {
  const Array<float> bias({2}, [](int64_t j) { return j == 0 ? std::log(3.0) : 0; });
  AttentionOptions options;
  options.bias = bias.in();
  OnEveryIsa([&](Isa) { ExpectClose(WeightsOf({1, 1}, options), {.75f, .25f}); });
}

TEST(Users, MasksOfNumbersAreRefused) {
  const Array<float> q({1, 1, 2, 4}, 1), numbers({2, 2}, 1);
  const Array<int32_t> whole({2, 2}, 1);
  for (const ConstTensor& mask : {numbers.in(), whole.in()}) {
    AttentionOptions options;
    options.mask = mask;
    try {
      Attend(q, q, q, options);
      FAIL() << NameOf(mask.dtype);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kWrongType);
      EXPECT_EQ(error.where(), "mask");
    }
  }
}

TEST(Users, AnyByteButZeroIsTrueInAMask) {
  const Array<float> q = Array<float>::Random({1, 1, 2, 4}, 1), k = Array<float>::Random({1, 1, 40, 4}, 2);
  const Array<float> v = Array<float>::Random({1, 1, 40, 3}, 3);
  std::vector<uint8_t> ones(40), others(40);
  for (size_t j = 0; j < 40; ++j) {
    ones[j] = j % 3 != 0;
    others[j] = static_cast<uint8_t>(j % 3 * 127);  // 0, 127, 254
  }
  const Mask plain({1, 40}, ones), odd({1, 40}, others);
  AttentionOptions with_plain, with_odd;
  with_plain.mask = plain.in();
  with_odd.mask = odd.in();
  EXPECT_EQ(Attend(q, k, v, with_plain).out.values, Attend(q, k, v, with_odd).out.values);
}

TEST(Users, AMaskWhoseLastAxisIsOneIsPerRowAndNeverReadPast) {
  const auto q = Array<float>::Random({1, 1, 8, 8}, 1), k = Array<float>::Random({1, 1, 17, 8}, 2);
  const auto bias = Array<float>::Random({1, 1, 8, 1}, 3);
  AttentionOptions options;
  options.bias = bias.in();
  OnEveryIsa([&](Isa) {
    const Answer<float> with = Attend(q, k, k, options), without = Attend(q, k, k);
    ExpectClose(with.out.values, without.out.values, 1e-6f);
  });
}

// ---- geometry, layout, memory

std::vector<std::vector<int>> Seen(int64_t tq, int64_t tk, const AttentionOptions& options) {
  const Array<float> q({1, 1, tq, 1}, 0.0f), k({1, 1, tk, 1}, 0.0f);
  const Array<float> v({1, 1, tk, tk}, [&](int64_t at) { return at / tk == at % tk; });
  const Answer<float> answer = Attend(q, k, v, options);
  std::vector<std::vector<int>> seen(static_cast<size_t>(tq));
  for (int64_t at = 0; at < tq * tk; ++at) seen[static_cast<size_t>(at / tk)].push_back(answer.out[at] > 0);
  return seen;
}

TEST(Users, CausalAlignmentHasTwoNames) {
  AttentionOptions top, bottom;
  top.causal = Causal::kTopLeft, bottom.causal = Causal::kBottomRight;
  using Rows = std::vector<std::vector<int>>;
  OnEveryIsa([&](Isa) {
    EXPECT_EQ(Seen(2, 5, top), (Rows{{1, 0, 0, 0, 0}, {1, 1, 0, 0, 0}}));
    EXPECT_EQ(Seen(2, 5, bottom), (Rows{{1, 1, 1, 1, 0}, {1, 1, 1, 1, 1}}));
    EXPECT_EQ(Seen(5, 2, bottom), (Rows{{0, 0}, {0, 0}, {0, 0}, {1, 0}, {1, 1}}));
    EXPECT_EQ(Seen(1, 5, bottom), (Rows{{1, 1, 1, 1, 1}}));  // decoding
  });
}

TEST(Users, AWindowOfFourIsTheQueryAndThreeBeforeIt) {
  AttentionOptions options;
  options.causal = Causal::kBottomRight;
  options.window.left = 3;
  OnEveryIsa([&](Isa) {
    EXPECT_EQ(Seen(8, 8, options)[7], (std::vector<int>{0, 0, 0, 0, 1, 1, 1, 1}));
    EXPECT_EQ(Seen(1, 8, options)[0], (std::vector<int>{0, 0, 0, 0, 1, 1, 1, 1}));
  });
}

TEST(Users, GroupedHeadsReadTheKeyHeadOfTheirGroup) {
  const Array<float> q({1, 4, 1, 2}, 1.0f), k({1, 2, 3, 2}, 1.0f);
  const Array<float> v({1, 2, 3, 1}, [](int64_t at) { return at / 3; });
  OnEveryIsa([&](Isa) { ExpectClose(Attend(q, k, v).out.values, {0, 0, 1, 1}); });
}

TEST(Users, EmptyInGivesEmptyOutAndWrongHeadsAnError) {
  const Array<Float16> nine({7, 9, 0, 7}), seven({7, 7, 0, 7});
  EXPECT_THROW(Attend(nine, seven, seven), Error);
  const Array<Float16> same({7, 7, 0, 7});
  EXPECT_TRUE(Attend(same, seven, seven).out.values.empty());
  const Array<BFloat16> none({0, 0, 2, 4});
  EXPECT_TRUE(Attend(none, none, none).out.values.empty());
  const Array<float> q({1, 1, 2, 4}, 1.0f), no_keys({1, 1, 0, 4});
  const Answer<float> answer = Attend(q, no_keys, no_keys);
  EXPECT_EQ(answer.out.values, std::vector<float>(8, 0));
  EXPECT_EQ(answer.lse.values, std::vector<float>(2, -kInfinity));
}

TEST(Users, ACaptureOfNothingIsEmpty) {
  CaptureRequest request;
  request.top_k = 2;
  request.entropy = request.received = true;
  request.rows = std::vector<int64_t>{};
  for (const int64_t kv_heads : {0, 1}) {
    const Array<float> q({1, 0, 4, 2}), k({1, kv_heads, 3, 2}), v({1, kv_heads, 3, 5});
    Array<float> out({1, 0, 4, 5});
    const Capture capture = AttentionWithCapture(q.in(), k.in(), v.in(), {}, request, out.out());
    EXPECT_EQ(capture.queries, 4);
    EXPECT_TRUE(capture.top_keys.empty() && capture.entropy.empty() && capture.received.empty());
  }
  const Array<float> none({0, 2, 4, 2});
  Array<float> out({0, 2, 4, 2});
  const Capture capture = AttentionWithCapture(none.in(), none.in(), none.in(), {}, request, out.out());
  EXPECT_EQ(capture.queries, 4);
  EXPECT_EQ(capture.keys, 4);
}

TEST(Users, ANanRowHasNanEntropyAndListsNoKeysInEveryType) {
  CaptureRequest request;
  request.top_k = 2;
  request.entropy = true;
  const auto expect_nan = [&]<class T>(T) {
    Array<T> q({1, 1, 2, 1}, 1.0f), k({1, 1, 3, 1}, 1.0f), out({1, 1, 2, 1});
    q[0] = FromFloat<T>(kNan);
    const Capture capture = AttentionWithCapture(q.in(), k.in(), k.in(), {}, request, out.out());
    EXPECT_TRUE(std::isnan(capture.entropy[0]));
    EXPECT_NEAR(capture.entropy[1], std::log(3.0), 1e-6);
    EXPECT_EQ(capture.top_keys, (std::vector<int32_t>{-1, -1, 0, 1}));
  };
  OnEveryIsa([&](Isa) { expect_nan(float()), expect_nan(double()), expect_nan(Float16()), expect_nan(BFloat16()); });
}

TEST(Users, AWindowThatReachesPastAllPositionsIsOpen) {
  const auto q = Array<float>::Random({1, 1, 3, 4}, 1), k = Array<float>::Random({1, 1, 6, 4}, 2);
  AttentionOptions options;
  options.offset = std::vector<int64_t>{int64_t{1} << 61};
  const Answer<float> open = Attend(q, k, k, options);
  for (const int64_t sides : {(int64_t{1} << 61) + 2, std::numeric_limits<int64_t>::max()}) {
    options.window = {sides, sides};
    EXPECT_EQ(Attend(q, k, k, options).out.values, open.out.values);
  }
  options.offset = std::vector<int64_t>{-(int64_t{1} << 61)};  // nothing to the right but far away
  EXPECT_EQ(Attend(q, k, k, options).out.values, open.out.values);
}

TEST(Users, LookingAtNoHeadsIsNoSignal) {
  const Array<float> none({2, 0, 3, 4});
  Array<float> out({2, 0, 3, 4});
  CaptureRequest request;
  request.top_k = 2;
  request.entropy = request.received = true;
  request.rows = std::vector<int64_t>{0};
  EXPECT_TRUE(AttentionWithCapture(none.in(), none.in(), none.in(), {}, request, out.out()).top_keys.empty());
}

TEST(Users, PackedBatchesMayHoldEmptySequences) {
  const auto q = Array<float>::Random({2, 2, 4}, 1), k = Array<float>::Random({8, 2, 4}, 2);
  AttentionOptions options;
  options.cu_q = std::vector<int64_t>{0, 1, 1, 2};
  options.cu_kv = std::vector<int64_t>{0, 3, 3, 8};
  OnEveryIsa([&](Isa) { EXPECT_TRUE(std::isfinite(Attend(q, k, k, options).lse[0])); });
  options.cu_kv = std::vector<int64_t>{0, 8, 8, 8};  // the last sequence has a query and no keys
  const Answer<float> answer = Attend(q, k, k, options);
  EXPECT_EQ(answer.lse[1], -kInfinity);
  for (int64_t at = 8; at < 16; ++at) EXPECT_EQ(answer.out[at], 0);
}

TEST(Users, AnyHeadSizeWorks) {
  OnEveryIsa([&](Isa) {
    for (int64_t d : {1, 3, 17, 80, 112, 513}) {
      for (int64_t dv : {d, int64_t{1}, int64_t{100}}) {
        const Array<float> q({1, 1, 7, d}, 1.0f), k({1, 1, 9, d}, 1.0f);
        const Array<float> v({1, 1, 9, dv}, [&](int64_t at) { return static_cast<double>(at % dv); });
        const Answer<float> answer = Attend(q, k, v);
        for (int64_t at = 0; at < 7 * dv; ++at)
          ASSERT_NEAR(answer.out[at], static_cast<double>(at % dv), 1e-4) << d << " " << dv;
      }
    }
  });
}

template <class T> void ExpectAWideHeadWorks(double tolerance) {
  constexpr int64_t kQueries = 3, kKeys = 300, kWide = 12288;
  const auto q = Array<T>::Random({1, 1, kQueries, kWide}, 1), k = Array<T>::Random({1, 1, kKeys, kWide}, 2);
  const auto number = [](T x) -> double {
    if constexpr (std::is_same_v<T, float>) return x;
    else return ToFloat(x);
  };
  const Answer<T> answer = Attend(q, k, k);
  for (int64_t i = 0; i < kQueries; ++i) {
    double sum = 0, weights[kKeys];
    for (int64_t j = 0; j < kKeys; ++j) {
      double score = 0;
      for (int64_t c = 0; c < kWide; ++c) score += number(q[i * kWide + c]) * number(k[j * kWide + c]);
      sum += weights[j] = std::exp(score / std::sqrt(kWide));
    }
    EXPECT_NEAR(answer.lse[i], std::log(sum), 1e-5);
    for (int64_t c = 0; c < kWide; c += 97) {
      double out = 0;
      for (int64_t j = 0; j < kKeys; ++j) out += weights[j] / sum * number(k[j * kWide + c]);
      ASSERT_NEAR(number(answer.out[i * kWide + c]), out, tolerance) << i << " " << c;
    }
  }
}

TEST(Users, AHeadAsWideAsAWholeModelWorks) {
  OnEveryIsa([&](Isa) {
    ExpectAWideHeadWorks<float>(1e-5);
    ExpectAWideHeadWorks<BFloat16>(0.01);
  });
}

TEST(Users, ABatchOfDifferentPastsIsItsSequencesAlone) {
  const auto q = Array<float>::Random({2, 2, 1, 8}, 1), k = Array<float>::Random({2, 2, 6, 8}, 2);
  AttentionOptions options;
  options.causal = Causal::kBottomRight;
  options.kv_lengths = std::vector<int64_t>{4, 6};
  OnEveryIsa([&](Isa) {
    const Answer<float> both = Attend(q, k, k, options);
    for (int64_t b = 0; b < 2; ++b) {
      const Array<float> one_q({1, 2, 1, 8}, [&](int64_t at) { return q[b * 16 + at]; });
      const Array<float> one_k({1, 2, 6, 8}, [&](int64_t at) { return k[b * 96 + at]; });
      AttentionOptions own = options;
      own.kv_lengths = std::vector<int64_t>{(*options.kv_lengths)[static_cast<size_t>(b)]};
      const Answer<float> alone = Attend(one_q, one_k, one_k, own);
      for (int64_t at = 0; at < 16; ++at) EXPECT_EQ(both.out[b * 16 + at], alone.out[at]);
    }
  });
}

TEST(Users, EveryThreadCountSizesItsScratchAlike) {
  const auto q = Array<float>::Random({1, 4, 3, 16}, 1), k = Array<float>::Random({1, 2, 2048, 16}, 2);
  const std::vector<float> expected = Attend(q, k, k).out.values;
  for (int threads : {1, 2, 3, 5, 8, 16, 24, 32, 48}) {
    SetThreads(threads);
    EXPECT_EQ(Attend(q, k, k).out.values, expected) << threads;
  }
  SetThreads(2);
}

// ---- numerics, dropout

template <class T>
void ExpectNoOverflow() {
  const Array<T> q({1, 1, 2, 128}, 256.0f), k({1, 1, 300, 128}, 256.0f);
  const Array<T> v({1, 1, 300, 8}, [](int64_t at) { return at % 8; });
  const Answer<T> answer = Attend(q, k, v);
  for (int64_t at = 0; at < 16; ++at)
    EXPECT_NEAR(ToFloat(answer.out[at]), static_cast<double>(at % 8), 8 * Epsilon(DTypeOf<T>::value));
  EXPECT_NEAR(answer.lse[0], 741455.2 + std::log(300.0), 2);  // 128 roundings of a sixteenth or less
}

TEST(Users, SixteenBitScoresDoNotOverflow) {
  OnEveryIsa([&](Isa) {
    ExpectNoOverflow<Float16>();
    ExpectNoOverflow<BFloat16>();
  });
}

// Whole scores of any size are exact, so weights must be too, whichever tiles and splits the keys stand in.
TEST(Users, LargeScoresKeepTheirDifferences) {
  OnEveryIsa([&](Isa isa) {
    for (double base : {0.0, 1000.0, 99991.0}) {
      const int64_t tk = 2500;
      const Array<float> q({1, 1, 1, 1}, 1.0f);
      const Array<float> k({1, 1, tk, 1}, [&](int64_t j) { return base + static_cast<double>(j / 250); });
      const Array<float> v({1, 1, tk, 1}, [&](int64_t j) { return j / 250 == 9; });
      AttentionOptions options;
      options.scale = 1.0f;
      double others = 0;
      for (int n = 1; n < 10; ++n) others += std::exp(-n);
      EXPECT_NEAR(Attend(q, k, v, options).out[0], 1 / (1 + others), 4e-6) << NameOf(isa) << " " << base;
    }
  });
}

TEST(Users, TheSinkIsPartOfTheMaximum) {
  const Array<float> half({1}, 0.5f), large({1}, 100.0f);
  const Array<float> q({1, 1, 1, 1}, 1.0f), none({1, 1, 0, 1}), k({1, 1, 3, 1}, 0.0f);
  AttentionOptions options;
  OnEveryIsa([&](Isa) {
    options.sink = half.in();
    const Answer<float> empty = Attend(q, none, none, options);
    EXPECT_EQ(empty.out[0], 0);
    EXPECT_FLOAT_EQ(empty.lse[0], 0.5f);
    options.sink = large.in();
    EXPECT_FLOAT_EQ(Attend(q, k, k, options).lse[0], 100.0f);
  });
}

TEST(Users, Float64IsDoubleThroughout) {
  const Array<double> q({1, 1, 1, 3}, [](int64_t at) { return at + 1; });
  const Array<double> k({1, 1, 2, 3}, [](int64_t at) { return at / 3; });
  const Array<double> v({1, 1, 2, 1}, [](int64_t at) { return at; });
  const double weight = 1 / (1 + std::exp(-6 / std::sqrt(3.0)));  // of scores 0 and 6 / sqrt(3)
  EXPECT_NEAR(Attend(q, k, v).out[0], weight, 1e-15);
  AttentionOptions options;
  options.dropout_p = 0.1f;
  options.seed = 2017;  // keeps both keys
  EXPECT_NEAR(Attend(q, k, v, options).out[0], weight / (1 - static_cast<double>(0.1f)), 1e-15);
}

TEST(Users, ASinkAloneIsTheLogSumExpToTheBit) {
  const Array<float> q({1, 1, 1, 4}, 1.0f), none({1, 1, 0, 4});
  Rng rng(5);
  for (int n = 0; n < 200; ++n) {
    const Array<float> sink({1}, static_cast<float>(20 * rng.Symmetric()));
    AttentionOptions options;
    options.sink = sink.in();
    EXPECT_EQ(Attend(q, none, none, options).lse[0], sink[0]);
  }
}

TEST(Users, WithoutDropoutTwoCallsAgreeAndWithItTheSeedDecides) {
  const auto q = Array<float>::Random({1, 2, 20, 8}, 1), k = Array<float>::Random({1, 2, 30, 8}, 2);
  EXPECT_EQ(Attend(q, k, k).out.values, Attend(q, k, k).out.values);
  AttentionOptions options;
  options.dropout_p = 0.5f;
  options.seed = 1;
  const std::vector<float> one = Attend(q, k, k, options).out.values;
  EXPECT_EQ(Attend(q, k, k, options).out.values, one);
  options.seed = 2;
  EXPECT_NE(Attend(q, k, k, options).out.values, one);
}

// Constant values: each row's output is the share of weights kept, over 1 - p, so its mean over rows is near 1.
TEST(Users, DropoutKeepsItsShareAndTheMean) {
  const int64_t rows = 400, keys = 300;
  const Array<float> q({1, 1, rows, 1}, 0.0f), k({1, 1, keys, 1}, 0.0f), v({1, 1, keys, 1}, 1.0f);
  for (float p : {0.1f, 0.5f, 0.9f}) {
    AttentionOptions options;
    options.dropout_p = p;
    options.seed = 99;
    double mean = 0;
    for (float value : Attend(q, k, v, options).out.values) mean += value / static_cast<double>(rows);
    const double deviation = std::sqrt(p / (1 - p) / static_cast<double>(rows * keys));
    EXPECT_NEAR(mean, 1, 5 * deviation);
  }
}

TEST(Users, AlibiSlopesInterleaveForAnyNumberOfHeads) {
  EXPECT_EQ(AlibiSlopes(6), (std::vector<float>{.25f, .0625f, .015625f, .00390625f, .5f, .125f}));
  EXPECT_EQ(AlibiSlopes(8).front(), 0.5f);
  EXPECT_EQ(AlibiSlopes(8).back(), 1 / 256.0f);
  EXPECT_TRUE(AlibiSlopes(0).empty());
  EXPECT_EQ(AlibiSlopes(1), (std::vector<float>{1 / 256.0f}));
}

TEST(Users, Bfloat16KeepsItsRange) {
  const Array<BFloat16> q({1, 1, 1, 2}, 1e18f), k({1, 1, 2, 2}, 1e18f);
  const Array<BFloat16> v({1, 1, 2, 2}, 1e38f);
  OnEveryIsa([&](Isa) { EXPECT_FLOAT_EQ(ToFloat(Attend(q, k, v).out[0]), ToFloat(ToBFloat16(1e38f))); });
}

TEST(Users, ScoresDoNotChangeWithTheSizeOfTheBatch) {
  const auto q = Array<float>::Random({5, 3, 17, 24}, 1), k = Array<float>::Random({5, 3, 33, 24}, 2);
  const std::vector<float> five = Attend(q, k, k).out.values;
  const Array<float> q4({4, 3, 17, 24}, [&](int64_t at) { return q[at]; }),
      k4({4, 3, 33, 24}, [&](int64_t at) { return k[at]; });
  const std::vector<float> four = Attend(q4, k4, k4).out.values;
  EXPECT_TRUE(std::equal(four.begin(), four.end(), five.begin()));
}

}  // namespace
}  // namespace qkv::test
