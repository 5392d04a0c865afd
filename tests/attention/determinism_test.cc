// The same bits whatever runs beside a row: threads, other sequences, and how a prefill is cut into pieces.
#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "attention_call.h"
#include "support/option_set.h"
#include "support/oracle_case.h"

namespace qkv::test {
namespace {

template <class T>
bool SameBits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0);
}

bool SameCapture(const Capture& a, const Capture& b) {
  return a.top_keys == b.top_keys && SameBits(a.top_weights, b.top_weights) && SameBits(a.entropy, b.entropy) &&
         SameBits(a.sink_weight, b.sink_weight) && SameBits(a.received, b.received) &&
         SameBits(a.row_values, b.row_values);
}

TEST(Determinism, AnyThreadCountGivesTheSameBits) {
  Rng rng(3);
  for (int n = 0; n < 400; ++n) {
    OptionSet set = DrawOptionSet(rng, n % 10 == 0 ? 8'000'000 : 400'000);
    set[Factor::kThreads] = 0;
    const Outputs one = OracleCase(set).RunLibrary(Planting::kZeros);
    for (int threads = 1; threads < LevelsOf(Factor::kThreads); ++threads) {
      set[Factor::kThreads] = threads;
      const Outputs other = OracleCase(set).RunLibrary(Planting::kZeros);
      ASSERT_TRUE(SameBits(one.out, other.out) && SameBits(one.lse, other.lse)) << set.Text() << "\n"
                                                                                << set.Description();
      ASSERT_TRUE(!one.capture || SameCapture(*one.capture, *other.capture)) << set.Text() << "\n"
                                                                             << set.Description();
    }
  }
}

// Sizes and options of a random self-attention whose queries are cut into pieces.
struct Prefill {
  int64_t heads, group, tokens, past, d;
  AttentionOptions options;

  Prefill(Rng& rng, const Array<float>& slopes, const Array<float>& sinks) {
    heads = rng.Between(1, 3), group = rng.Between(1, 3);
    tokens = rng.Between(2, 400), past = rng.Chance(0.5) ? 0 : rng.Between(1, 1500), d = rng.Between(1, 70);
    options.causal = rng.Chance(0.7) ? Causal::kBottomRight : Causal::kNone;
    if (rng.Chance(0.4)) options.window.left = rng.Between(0, 300);
    if (rng.Chance(0.3)) options.window.right = rng.Between(0, 300);
    if (rng.Chance(0.3)) options.softcap = 5.0f;
    if (rng.Chance(0.3)) options.dropout_p = 0.2f, options.seed = rng.Bits();
    if (rng.Chance(0.3)) options.alibi_slopes = ConstTensor(slopes.values.data(), {heads * group});
    if (rng.Chance(0.3)) options.sink = ConstTensor(sinks.values.data(), {heads * group});
  }
};

// Queries [first, last) of a prefill against all keys, or only those so far.
enum class Keys { kAll, kSoFar };

template <class T>
std::vector<T> Piece(const Prefill& prefill, const Array<T>& q, const Array<T>& k, int64_t first, int64_t last,
                     Keys keys) {
  const int64_t q_heads = prefill.heads * prefill.group, total = prefill.past + prefill.tokens;
  const Shape shape{1, q_heads, last - first, prefill.d};
  const ConstTensor queries(q.values.data() + first * prefill.d, DTypeOf<T>::value, shape,
                            {0, prefill.tokens * prefill.d, prefill.d, 1});
  AttentionOptions options = prefill.options;
  options.offset = std::vector<int64_t>{prefill.past + first};
  options.chunked = true;
  if (keys == Keys::kSoFar) options.kv_lengths = std::vector<int64_t>{prefill.past + last};
  std::vector<T> out(static_cast<size_t>(shape.elements()));
  const ConstTensor all_keys(k.values.data(), DTypeOf<T>::value, {1, prefill.heads, total, prefill.d});
  Attention(queries, all_keys, all_keys, options, Tensor(out.data(), DTypeOf<T>::value, shape));
  return out;
}

template <class T>
void ExpectPiecesGiveTheWhole(const Prefill& prefill, Rng& rng) {
  const int64_t q_heads = prefill.heads * prefill.group, total = prefill.past + prefill.tokens;
  const auto q = Array<T>::Random({1, q_heads, prefill.tokens, prefill.d}, rng.Bits(), 3);
  const auto k = Array<T>::Random({1, prefill.heads, total, prefill.d}, rng.Bits(), 3);
  const std::vector<T> whole = Piece(prefill, q, k, 0, prefill.tokens, Keys::kAll);
  const bool sees_later = prefill.options.causal == Causal::kNone;
  for (int64_t first = 0, last = 0; first < prefill.tokens; first = last) {
    last = std::min(prefill.tokens, first + (rng.Chance(0.3) ? 1 : rng.Between(1, 150)));
    SetThreads(static_cast<int>(rng.Between(1, 4)));
    const std::vector<T> piece = Piece(prefill, q, k, first, last, sees_later ? Keys::kAll : Keys::kSoFar);
    for (int64_t h = 0; h < q_heads; ++h) {
      const int64_t count = (last - first) * prefill.d;
      ASSERT_EQ(0,
                std::memcmp(piece.data() + h * count, whole.data() + (h * prefill.tokens + first) * prefill.d,
                            static_cast<size_t>(count) * sizeof(T)))
          << "queries " << first << " to " << last << " of " << prefill.tokens << ", past " << prefill.past;
    }
  }
}

TEST(Determinism, PrefillInPiecesGivesTheBitsOfOnePiece) {
  const auto slopes = Array<float>::Random({9}, 1), sinks = Array<float>::Random({9}, 2);
  OnEveryIsa([&](Isa) {
    Rng rng(4);
    for (int n = 0; n < 20; ++n) {
      const Prefill prefill(rng, slopes, sinks);
      ExpectPiecesGiveTheWhole<float>(prefill, rng);
      ExpectPiecesGiveTheWhole<BFloat16>(prefill, rng);
      ExpectPiecesGiveTheWhole<Float16>(prefill, rng);
    }
  });
  SetThreads(2);
}

template <class T>
Array<T> SequenceOf(const Array<T>& all, int64_t b) {
  Array<T> own({1, all.shape[1], all.shape[2], all.shape[3]});
  const auto first = all.values.begin() + b * own.shape.elements();
  own.values.assign(first, first + own.shape.elements());
  return own;
}

template <class T>
void ExpectTheSameAloneAndInABatch(Rng& rng) {
  const int64_t batch = rng.Between(2, 6), heads = rng.Between(1, 3), tq = rng.Between(1, 120),
                tk = rng.Between(1, 1100), d = rng.Between(1, 40);
  const auto q = Array<T>::Random({batch, heads, tq, d}, rng.Bits(), 3);
  const auto k = Array<T>::Random({batch, heads, tk, d}, rng.Bits(), 3);
  AttentionOptions options;
  options.causal = rng.Chance(0.5) ? Causal::kBottomRight : Causal::kNone;
  SetThreads(static_cast<int>(rng.Between(1, 8)));
  const Array<T> all = Attend(q, k, k, options).out;
  SetThreads(static_cast<int>(rng.Between(1, 8)));
  for (int64_t b = 0; b < batch; ++b) {
    const Array<T> keys = SequenceOf(k, b), alone = Attend(SequenceOf(q, b), keys, keys, options).out;
    ASSERT_TRUE(SameBits(alone.values, SequenceOf(all, b).values)) << b << " of " << batch;
  }
}

TEST(Determinism, ASequenceIsTheSameAloneAndInABatch) {
  OnEveryIsa([&](Isa) {
    Rng rng(5);
    for (int n = 0; n < 20; ++n) {
      ExpectTheSameAloneAndInABatch<float>(rng);
      ExpectTheSameAloneAndInABatch<BFloat16>(rng);
    }
  });
  SetThreads(2);
}

template <class T>
void ExpectTheSameWithoutLse(Rng& rng) {
  const int64_t heads = rng.Between(1, 3), tq = rng.Between(1, 120), tk = rng.Between(1, 1100);
  const auto q = Array<T>::Random({1, heads, tq, 33}, rng.Bits(), 3);
  const auto k = Array<T>::Random({1, heads, tk, 33}, rng.Bits(), 3);
  AttentionOptions options;
  options.chunked = true;
  Array<T> out(q.shape);
  Attention(q.in(), k.in(), k.in(), options, out.out());
  EXPECT_TRUE(SameBits(out.values, Attend(q, k, k, options).out.values));
}

TEST(Determinism, AskingForTheLogSumExpOfAChunkChangesNothingElse) {
  OnEveryIsa([&](Isa) {
    Rng rng(6);
    for (int n = 0; n < 10; ++n) {
      ExpectTheSameWithoutLse<float>(rng);
      ExpectTheSameWithoutLse<BFloat16>(rng);
    }
  });
}

}  // namespace
}  // namespace qkv::test
