// Blocks of few rows read keys and values where they lie; the same rows among many go over packed tiles. Both give the
// same bits, whatever the lengths, strides, rules and values.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "attention_call.h"
#include "kernels/problem.h"
#include "qkv/kv_cache.h"

namespace qkv::test {
namespace {

constexpr int64_t kHeads = 2, kGroup = 2, kQueries = kStreamedRows;  // with the group, twice what is read in place
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN(), kInfinity = HUGE_VALF;

// NaNs are alike.
template <class T>
bool Same(const T& a, const T& b) {
  if (std::memcmp(&a, &b, sizeof(T)) == 0) return true;
  if constexpr (std::is_same_v<T, float>) return std::isnan(a) && std::isnan(b);
  else return std::isnan(ToFloat(a)) && std::isnan(ToFloat(b));
}

enum class Order { kHeadsFirst, kTokensFirst, kChannelsApart };

// (1, kHeads, keys, width) in memory of the order's strides.
template <class T>
struct Keys {
  int64_t keys, width;
  Order order;
  std::vector<T> values;

  Keys(int64_t count, int64_t channels, Order way, uint64_t seed) : keys(count), width(channels), order(way) {
    Rng rng(seed);
    for (int64_t i = 0; i < kHeads * keys * width * step(); ++i) {
      values.push_back(FromFloat<T>(static_cast<float>(2 * rng.Symmetric())));
    }
  }
  int64_t step() const { return order == Order::kChannelsApart ? 2 : 1; }
  int64_t row() const { return (order == Order::kTokensFirst ? kHeads * width : width) * step(); }
  int64_t head() const { return (order == Order::kTokensFirst ? width : keys * width) * step(); }
  T& at(int64_t h, int64_t j, int64_t c) { return values[static_cast<size_t>(h * head() + j * row() + c * step())]; }
  ConstTensor in() const {
    return {values.data(), DTypeOf<T>::value, {1, kHeads, keys, width}, {0, head(), row(), step()}};
  }
};

// Rules whose tensors are (1, heads, kQueries, keys), to be cut by query.
struct Rules {
  AttentionOptions options;
  Array<float> bias, slopes, sinks;
  std::vector<uint8_t> mask;
  int64_t keys;

  explicit Rules(int64_t count)
      : bias(Array<float>::Random({1, kHeads * kGroup, kQueries, count}, 1)),
        slopes(Array<float>::Random({kHeads * kGroup}, 2)),
        sinks(Array<float>::Random({kHeads * kGroup}, 3)),
        keys(count) {
    Rng rng(4);
    for (size_t i = 0; i < bias.values.size(); ++i) mask.push_back(rng.Chance(0.7) ? 1 : 0);
  }

  // For queries from `first` on.
  AttentionOptions From(int64_t first, int64_t count) const {
    AttentionOptions part = options;
    const Shape shape{1, kHeads * kGroup, count, keys};
    const auto cut = [&](const void* data, DType dtype, int64_t size) {
      return ConstTensor(static_cast<const std::byte*>(data) + first * keys * size, dtype, shape,
                         {0, kQueries * keys, keys, 1});
    };
    if (options.mask) part.mask = cut(mask.data(), DType::kBool, 1);
    if (options.bias) part.bias = cut(bias.values.data(), DType::kF32, 4);
    part.offset = std::vector<int64_t>{keys - kQueries + first};
    part.chunked = true;
    return part;
  }
};

template <class T, class K>
Answer<T> Run(const Array<T>& q, const Keys<K>& k, const Keys<K>& v, const Rules& rules, int64_t first, int64_t count) {
  const Shape shape{1, kHeads * kGroup, count, k.width};
  const ConstTensor part(q.values.data() + first * k.width, DTypeOf<T>::value, shape,
                         {0, kQueries * k.width, k.width, 1});
  Answer<T> answer{Array<T>({1, kHeads * kGroup, count, v.width}, 7), Array<float>({1, kHeads * kGroup, count}, 7)};
  const Tensor lse = answer.lse.out();
  Attention(part, k.in(), v.in(), rules.From(first, count), answer.out.out(), &lse);
  return answer;
}

// Pieces of one query to as many as are read in place, against all at once.
template <class T, class K>
void ExpectTheBitsOfMany(const Keys<K>& k, const Keys<K>& v, const Rules& rules, const std::string& what) {
  const auto q = Array<T>::Random({1, kHeads * kGroup, kQueries, k.width}, 5, 3);
  const Answer<T> whole = Run(q, k, v, rules, 0, kQueries);
  for (int64_t count : {int64_t{1}, int64_t{3}, kStreamedRows / kGroup}) {
    const int64_t first = kQueries - count - 1;
    const Answer<T> piece = Run(q, k, v, rules, first, count);
    for (int64_t h = 0; h < kHeads * kGroup; ++h) {
      for (int64_t i = 0; i < count; ++i) {
        const int64_t row = h * kQueries + first + i;
        ASSERT_TRUE(Same(piece.lse[h * count + i], whole.lse[row]))
            << what << ", " << count << " queries, head " << h << " query " << i;
        for (int64_t c = 0; c < v.width; ++c) {
          ASSERT_TRUE(Same(piece.out[(h * count + i) * v.width + c], whole.out[row * v.width + c]))
              << what << ", " << count << " queries, head " << h << " query " << i << " channel " << c;
        }
      }
    }
  }
}

template <class T, class K>
void ExpectTheBitsOfMany(int64_t keys, int64_t d, int64_t dv, Order order) {
  const Keys<K> k(keys, d, order, 6), v(keys, dv, order, 7);
  ExpectTheBitsOfMany<T>(k, v, Rules(keys), std::to_string(keys) + " keys, D " + std::to_string(d) + ", Dv " +
                                                std::to_string(dv) + ", order " +
                                                std::to_string(static_cast<int>(order)));
}

TEST(FewRows, AnyLengthGivesTheBitsOfPackedTiles) {
  OnEveryIsa([](Isa) {
    for (const int64_t keys : {0, 1, 15, 16, 17, 31, 33, 127, 129, 511, 512, 513, 1025}) {
      ExpectTheBitsOfMany<float, float>(keys, 64, 64, Order::kHeadsFirst);
      ExpectTheBitsOfMany<BFloat16, BFloat16>(keys, 64, 64, Order::kHeadsFirst);
      ExpectTheBitsOfMany<Float16, Float16>(keys, 64, 64, Order::kHeadsFirst);
      ExpectTheBitsOfMany<float, BFloat16>(keys, 64, 64, Order::kHeadsFirst);
    }
  });
}

TEST(FewRows, AnyWidthAndStridesGiveTheBitsOfPackedTiles) {
  OnEveryIsa([](Isa) {
    for (const Order order : {Order::kHeadsFirst, Order::kTokensFirst, Order::kChannelsApart}) {
      for (const int64_t d : {1, 33, 130}) {
        ExpectTheBitsOfMany<float, float>(100, d, 260, order);
        ExpectTheBitsOfMany<BFloat16, BFloat16>(100, d, 260, order);
        ExpectTheBitsOfMany<Float16, Float16>(100, 32, d, order);
        ExpectTheBitsOfMany<float, Float16>(100, 32, d, order);
      }
    }
  });
}

// One to five query heads a KV head, one query against many. Values down to where products are denormal numbers, which
// AMX takes for zeros.
void ExpectTheBitsOfManyInBFloat16(int64_t group, int64_t dv, int exponent) {
  const int64_t keys = 200, d = 64, queries = 40;
  const Keys<BFloat16> k(keys, d, Order::kHeadsFirst, 20);
  Keys<BFloat16> v(keys, dv, Order::kTokensFirst, 21);
  for (BFloat16& value : v.values) value = FromFloat<BFloat16>(std::ldexp(ToFloat(value), exponent));
  const auto q = Array<BFloat16>::Random({1, kHeads * group, queries, d}, 22, 2);
  Array<BFloat16> whole({1, kHeads * group, queries, dv}), one({1, kHeads * group, 1, dv});
  Attention(q.in(), k.in(), v.in(), {}, whole.out());
  for (const int64_t i : {int64_t{0}, queries - 1}) {
    const ConstTensor query(q.values.data() + i * d, DType::kBF16, {1, kHeads * group, 1, d}, {0, queries * d, d, 1});
    Attention(query, k.in(), v.in(), {}, one.out());
    for (int64_t h = 0; h < kHeads * group; ++h) {
      EXPECT_EQ(0, std::memcmp(&one[h * dv], &whole[(h * queries + i) * dv], static_cast<size_t>(dv) * sizeof(BFloat16)))
          << "group " << group << ", Dv " << dv << ", values times 2^" << exponent << ", head " << h;
    }
  }
}

TEST(FewRows, EveryCountAndSizeOfValuesGivesTheBitsOfPackedTiles) {
  OnEveryIsa([](Isa) {
    for (const int64_t group : {1, 2, 3, 4, 5}) {
      for (const int64_t dv : {32, 96, 128}) ExpectTheBitsOfManyInBFloat16(group, dv, 0);
      for (const int exponent : {-118, -126}) ExpectTheBitsOfManyInBFloat16(group, 96, exponent);
    }
  });
}

template <class T>
void ExpectTheBitsUnderAllRules() {
  const int64_t keys = 600;
  Keys<T> k(keys, 64, Order::kTokensFirst, 8), v(keys, 64, Order::kTokensFirst, 9);
  Rules rules(keys);
  const auto check = [&](const std::string& what) { ExpectTheBitsOfMany<T>(k, v, rules, what); };
  rules.options.causal = Causal::kBottomRight;
  check("causal");
  rules.options.window.left = 40;
  check("window");
  rules.options.softcap = 3.0f;
  rules.options.alibi_slopes = rules.slopes.in();
  rules.options.sink = rules.sinks.in();
  check("softcap, ALiBi, sinks");
  rules.options.window.left.reset();
  rules.options.bias = rules.bias.in();
  rules.options.mask = ConstTensor(rules.mask.data(), DType::kBool, rules.bias.shape);
  check("bias and mask");
  rules.options.dropout_p = 0.3f, rules.options.seed = 10;
  check("dropout");
}

TEST(FewRows, RulesGiveTheBitsOfPackedTiles) {
  OnEveryIsa([](Isa) {
    ExpectTheBitsUnderAllRules<float>();
    ExpectTheBitsUnderAllRules<BFloat16>();
    ExpectTheBitsUnderAllRules<Float16>();
  });
}

template <class T>
void ExpectBlockedKeysToReachNobody() {
  const int64_t keys = 600;
  Keys<T> k(keys, 64, Order::kHeadsFirst, 11), v(keys, 64, Order::kHeadsFirst, 12);
  const Keys<T> clean_k = k, clean_v = v;
  Rules rules(keys);
  rules.options.mask = ConstTensor(rules.mask.data(), DType::kBool, rules.bias.shape);
  for (size_t i = 0; i < rules.mask.size(); ++i) {
    const int64_t j = static_cast<int64_t>(i) % keys;
    if (j == 3 || j == 130 || j == 599) rules.mask[i] = 0;
  }
  for (const int64_t j : {3, 130, 599}) {
    k.at(0, j, 5) = FromFloat<T>(kNaN);
    v.at(0, j, 7) = FromFloat<T>(j == 130 ? kInfinity : kNaN);
  }
  const auto q = Array<T>::Random({1, kHeads * kGroup, kQueries, 64}, 13);
  const Answer<T> with = Run(q, k, v, rules, 4, 3), without = Run(q, clean_k, clean_v, rules, 4, 3);
  EXPECT_EQ(0, std::memcmp(with.out.values.data(), without.out.values.data(), with.out.values.size() * sizeof(T)));
  EXPECT_EQ(with.lse.values, without.lse.values);
  // What is visible comes out, as over packed tiles.
  rules.options.mask.reset();
  ExpectTheBitsOfMany<T>(k, v, rules, "visible");
  v = clean_v, k = clean_k;
  v.at(1, 200, 9) = FromFloat<T>(-kInfinity);
  ExpectTheBitsOfMany<T>(k, v, rules, "infinity");
  const Answer<T> infinite = Run(q, k, v, rules, 4, 1);
  const auto value = [&](int64_t h, int64_t c) {
    const T out = infinite.out[h * 64 + c];
    if constexpr (std::is_same_v<T, float>) return out;
    else return ToFloat(out);
  };
  EXPECT_EQ(value(kGroup, 9), -kInfinity);
  EXPECT_TRUE(std::isfinite(value(kGroup, 8)) && std::isfinite(value(0, 9)));
}

TEST(FewRows, NaNInBlockedKeysReachesNobody) {
  OnEveryIsa([](Isa) {
    ExpectBlockedKeysToReachNobody<float>();
    ExpectBlockedKeysToReachNobody<BFloat16>();
    ExpectBlockedKeysToReachNobody<Float16>();
  });
}

// Tokens in pages of a cache, and in a ring that has dropped some, against the tensors that went in.
template <class T>
void ExpectTheBitsOfACache(int64_t page) {
  const int64_t keys = 700, d = 64, window = 200;
  const Keys<T> k(keys, d, Order::kHeadsFirst, 14), v(keys, d, Order::kHeadsFirst, 15);
  const auto q = Array<T>::Random({1, kHeads * kGroup, 1, d}, 16);
  for (const bool ring : {false, true}) {
    AttentionOptions options;
    options.causal = Causal::kBottomRight;
    KVCacheConfig config;
    config.kv_heads = kHeads, config.d = config.dv = d, config.dtype = DTypeOf<T>::value, config.page = page;
    config.capacity = ring ? window : keys;
    if (ring) config.window = window;
    KVCache cache(config);
    cache.Append(k.in(), v.in());
    Array<T> cached(q.shape), plain(q.shape);
    cache.Attend(q.in(), options, cached.out());
    if (ring) options.window.left = window - 1;
    Attention(q.in(), k.in(), v.in(), options, plain.out());
    EXPECT_EQ(0, std::memcmp(cached.values.data(), plain.values.data(), plain.values.size() * sizeof(T)))
        << "page " << page << " ring " << ring;
  }
}

TEST(FewRows, CachesInPagesAndRingsGiveTheBitsOfTensors) {
  OnEveryIsa([](Isa) {
    for (const int64_t page : {1, 16, 40, 64}) {
      ExpectTheBitsOfACache<float>(page);
      ExpectTheBitsOfACache<BFloat16>(page);
      ExpectTheBitsOfACache<Float16>(page);
    }
  });
}

}  // namespace
}  // namespace qkv::test
