#include "qkv/kv_cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "qkv/error.h"
#include "runtime/half.h"
#include "runtime/threads.h"

namespace qkv {
namespace {

constexpr int64_t kHeads = 4, kKvHeads = 2, kD = 20, kDv = 12;

struct Tokens {
  std::vector<float> q, k, v;  // (heads, T, width) of one sequence
  int64_t count;
};

Tokens RandomTokens(int64_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  const auto draw = [&](int64_t size) {
    std::vector<float> values(static_cast<size_t>(size));
    for (float& x : values) x = normal(random);
    return values;
  };
  return {draw(kHeads * count * kD), draw(kKvHeads * count * kD), draw(kKvHeads * count * kDv), count};
}

// Tokens [first, last) as (1, heads, last - first, width), a view.
ConstTensor Part(const std::vector<float>& data, int64_t heads, int64_t count, int64_t width, int64_t first,
                 int64_t last) {
  return {data.data() + first * width, DType::kF32, {1, heads, last - first, width},
          {heads * count * width, count * width, width, 1}};
}

ConstTensor Q(const Tokens& t, int64_t first, int64_t last) { return Part(t.q, kHeads, t.count, kD, first, last); }
ConstTensor K(const Tokens& t, int64_t first, int64_t last) { return Part(t.k, kKvHeads, t.count, kD, first, last); }
ConstTensor V(const Tokens& t, int64_t first, int64_t last) { return Part(t.v, kKvHeads, t.count, kDv, first, last); }

Tensor OutPart(std::vector<float>& out, int64_t count, int64_t first, int64_t last) {
  return {out.data() + first * kDv, DType::kF32, {1, kHeads, last - first, kDv},
          {kHeads * count * kDv, count * kDv, kDv, 1}};
}

std::vector<float> OneCall(const Tokens& t, const AttentionOptions& options) {
  std::vector<float> out(static_cast<size_t>(kHeads * t.count * kDv));
  Attention(Q(t, 0, t.count), K(t, 0, t.count), V(t, 0, t.count), options, OutPart(out, t.count, 0, t.count));
  return out;
}

std::vector<float> InChunks(const Tokens& t, const AttentionOptions& options, const KVCacheConfig& config,
                            const std::vector<int64_t>& chunks) {
  std::vector<float> out(static_cast<size_t>(kHeads * t.count * kDv));
  KVCache cache(config);
  int64_t at = 0;
  for (size_t n = 0; at < t.count; ++n) {
    const int64_t end = std::min(at + chunks[n % chunks.size()], t.count);
    cache.Append(K(t, at, end), V(t, at, end));
    cache.Attend(Q(t, at, end), options, OutPart(out, t.count, at, end));
    at = end;
  }
  EXPECT_EQ(cache.lengths()[0], t.count);
  return out;
}

AttentionOptions CausalOptions() {
  AttentionOptions options;
  options.causal = Causal::kBottomRight;
  options.chunked = true;
  return options;
}

KVCacheConfig Config(int64_t capacity) {
  KVCacheConfig config;
  config.kv_heads = kKvHeads;
  config.d = kD, config.dv = kDv;
  config.capacity = capacity;
  return config;
}

bool SameBits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

TEST(KVCache, ChunksAndDecodingGiveTheBitsOfOneCall) {
  for (const int64_t count : {1, 2, 255, 256, 257, 1024, 1030, 1300}) {
    const Tokens t = RandomTokens(count, static_cast<unsigned>(count));
    const std::vector<float> whole = OneCall(t, CausalOptions());
    for (const auto& chunks : {std::vector<int64_t>{count}, std::vector<int64_t>{count / 2 + 1},
                               std::vector<int64_t>{7, 200, 1}, std::vector<int64_t>{64}}) {
      KVCacheConfig config = Config(count);
      EXPECT_TRUE(SameBits(InChunks(t, CausalOptions(), config, chunks), whole)) << count;
      for (const int64_t page : {1, 16, 100}) {
        config.page = page;
        EXPECT_TRUE(SameBits(InChunks(t, CausalOptions(), config, chunks), whole)) << count << " page " << page;
      }
    }
  }
}

TEST(KVCache, TokenByTokenGivesTheBitsOfOneCallForAnyThreads) {
  const Tokens t = RandomTokens(300, 5);
  const std::vector<float> whole = OneCall(t, CausalOptions());
  const int before = Threads();
  for (const int threads : {1, 2, 3}) {
    SetThreads(threads);
    KVCacheConfig config = Config(300);
    config.page = 16;
    EXPECT_TRUE(SameBits(InChunks(t, CausalOptions(), config, {1}), whole)) << threads;
  }
  SetThreads(before);
}

TEST(KVCache, RingEqualsAWindowOverAllKeys) {
  const int64_t window = 40;
  const Tokens t = RandomTokens(700, 6);
  AttentionOptions windowed = CausalOptions();
  windowed.window.left = window - 1;
  const std::vector<float> whole = OneCall(t, windowed);
  for (const int64_t chunk : {1, 8, 25}) {
    for (const int64_t page : {1, 8, 64}) {
      KVCacheConfig config = Config(window + chunk - 1);
      config.window = window;
      config.page = page;
      EXPECT_TRUE(SameBits(InChunks(t, CausalOptions(), config, {chunk}), whole)) << chunk << " page " << page;
    }
  }
}

TEST(KVCache, RingBlocksTheKeysThatItHasDropped) {
  const Tokens t = RandomTokens(30, 7);
  KVCacheConfig config = Config(10);
  config.window = 10;
  config.page = 5;
  KVCache cache(config);
  cache.Append(K(t, 0, 30), V(t, 0, 30));
  // All 30 queries at once: those whose windows lie wholly among dropped keys see nothing.
  std::vector<float> out(static_cast<size_t>(kHeads * 30 * kDv));
  std::vector<float> lse(static_cast<size_t>(kHeads * 30));
  const Tensor lse_view(lse.data(), {1, kHeads, 30});
  cache.Attend(Q(t, 0, 30), CausalOptions(), OutPart(out, 30, 0, 30), &lse_view);
  for (int64_t i = 0; i < 30; ++i) EXPECT_EQ(std::isinf(lse[static_cast<size_t>(i)]), i < 20) << i;
}

std::vector<float> Dequantised(const std::vector<float>& data, int64_t width) {
  std::vector<float> result(data.size());
  for (size_t at = 0; at < data.size(); at += static_cast<size_t>(width)) {
    float largest = 0;
    for (size_t c = 0; c < static_cast<size_t>(width); ++c) largest = std::max(largest, std::abs(data[at + c]));
    const float scale = largest / 127.0f;
    for (size_t c = 0; c < static_cast<size_t>(width); ++c) {
      result[at + c] = scale > 0 ? std::nearbyint(data[at + c] / scale) * scale : 0.0f;
    }
  }
  return result;
}

TEST(KVCache, Int8EqualsAttentionOverTheDequantisedCache) {
  Tokens t = RandomTokens(300, 8);
  for (size_t i = 3; i < t.k.size(); i += kD) t.k[i] *= 100;          // a channel far larger than the rest
  std::fill_n(t.v.begin(), kDv, 0.0f);                                // a token of zeros
  KVCacheConfig config = Config(300);
  config.dtype = DType::kI8;
  config.page = 33;
  const std::vector<float> cached = InChunks(t, CausalOptions(), config, {100, 1});
  Tokens plain = t;
  plain.k = Dequantised(t.k, kD);
  plain.v = Dequantised(t.v, kDv);
  EXPECT_TRUE(SameBits(cached, OneCall(plain, CausalOptions())));
}

TEST(KVCache, SixteenBitCachesTakeFloat32AndRound) {
  const Tokens t = RandomTokens(100, 9);
  for (const DType dtype : {DType::kBF16, DType::kF16}) {
    KVCacheConfig config = Config(100);
    config.dtype = dtype;
    Tokens rounded = t;
    const auto round = [&](float& x) { x = dtype == DType::kBF16 ? ToFloat(ToBFloat16(x)) : ToFloat(ToFloat16(x)); };
    for (float& x : rounded.k) round(x);
    for (float& x : rounded.v) round(x);
    EXPECT_TRUE(SameBits(InChunks(t, CausalOptions(), config, {40}), OneCall(rounded, CausalOptions())));
  }
}

TEST(KVCache, SequencesOfDifferentLengthsAreAsAlone) {
  const Tokens a = RandomTokens(50, 10), b = RandomTokens(50, 11);
  KVCacheConfig config = Config(50);
  config.batch = 2;
  config.page = 8;
  KVCache cache(config);
  std::vector<float> k(2 * a.k.size()), v(2 * a.v.size()), q(2 * static_cast<size_t>(kHeads * kD));
  std::copy(b.k.begin(), b.k.end(), std::copy(a.k.begin(), a.k.end(), k.begin()));
  std::copy(b.v.begin(), b.v.end(), std::copy(a.v.begin(), a.v.end(), v.begin()));
  const std::vector<int64_t> counts{50, 13};
  cache.Append({k.data(), {2, kKvHeads, 50, kD}}, {v.data(), {2, kKvHeads, 50, kDv}}, &counts);
  EXPECT_THAT(cache.lengths(), testing::ElementsAre(50, 13));
  for (int64_t h = 0; h < kHeads; ++h) {
    std::copy_n(&a.q[static_cast<size_t>((h * 50 + 49) * kD)], kD, &q[static_cast<size_t>(h * kD)]);
    std::copy_n(&b.q[static_cast<size_t>((h * 50 + 12) * kD)], kD, &q[static_cast<size_t>((kHeads + h) * kD)]);
  }
  std::vector<float> out(2 * static_cast<size_t>(kHeads * kDv));
  cache.Attend({q.data(), {2, kHeads, 1, kD}}, CausalOptions(), Tensor(out.data(), {2, kHeads, 1, kDv}));
  std::vector<float> alone_a(static_cast<size_t>(kHeads * kDv)), alone_b = alone_a;
  Attention(Q(a, 49, 50), K(a, 0, 50), V(a, 0, 50), CausalOptions(), Tensor(alone_a.data(), {1, kHeads, 1, kDv}));
  Attention(Q(b, 12, 13), K(b, 0, 13), V(b, 0, 13), CausalOptions(), Tensor(alone_b.data(), {1, kHeads, 1, kDv}));
  alone_a.insert(alone_a.end(), alone_b.begin(), alone_b.end());
  EXPECT_TRUE(SameBits(out, alone_a));
}

TEST(KVCache, ForksShareUntilOneAppends) {
  const Tokens t = RandomTokens(40, 12), other = RandomTokens(40, 13);
  KVCacheConfig config = Config(40);
  config.batch = 2;
  config.page = 8;
  KVCache cache(config);
  std::vector<float> k2(2 * t.k.size()), v2(2 * t.v.size());
  std::copy(t.k.begin(), t.k.end(), k2.begin());
  std::copy(t.v.begin(), t.v.end(), v2.begin());
  std::copy(other.k.begin(), other.k.end(), k2.begin() + static_cast<int64_t>(t.k.size()));
  std::copy(other.v.begin(), other.v.end(), v2.begin() + static_cast<int64_t>(t.v.size()));
  const auto part = [&](const std::vector<float>& data, int64_t width, int64_t first, int64_t last) {
    return ConstTensor(data.data() + first * width, DType::kF32, {2, kKvHeads, last - first, width},
                       {kKvHeads * 40 * width, 40 * width, width, 1});
  };
  const std::vector<int64_t> first_only{20, 0};
  cache.Append(part(k2, kD, 0, 20), part(v2, kDv, 0, 20), &first_only);
  cache.Fork(0, 1);
  EXPECT_THAT(cache.lengths(), testing::ElementsAre(20, 20));
  cache.Append(part(k2, kD, 20, 40), part(v2, kDv, 20, 40));  // in the middle of a shared page
  // Sequence 1 is t's first 20 tokens, then the other's.
  Tokens joined = other;
  for (int64_t h = 0; h < kKvHeads; ++h) {
    std::copy_n(&t.k[static_cast<size_t>(h * 40 * kD)], 20 * kD, &joined.k[static_cast<size_t>(h * 40 * kD)]);
    std::copy_n(&t.v[static_cast<size_t>(h * 40 * kDv)], 20 * kDv, &joined.v[static_cast<size_t>(h * 40 * kDv)]);
  }
  std::vector<float> q(t.q), out(2 * static_cast<size_t>(kHeads * 40 * kDv));
  q.insert(q.end(), joined.q.begin(), joined.q.end());
  cache.Attend({q.data(), {2, kHeads, 40, kD}}, CausalOptions(), Tensor(out.data(), {2, kHeads, 40, kDv}));
  std::vector<float> expected = OneCall(t, CausalOptions());
  const std::vector<float> second = OneCall(joined, CausalOptions());
  expected.insert(expected.end(), second.begin(), second.end());
  EXPECT_TRUE(SameBits(out, expected));
}

TEST(KVCache, TrimForgetsAndWhatIsAppendedAfterCounts) {
  const Tokens t = RandomTokens(40, 14), other = RandomTokens(40, 15);
  for (const int64_t length : {0, 7, 8, 9, 30}) {
    KVCacheConfig config = Config(40);
    config.page = 8;
    KVCache cache(config);
    cache.Append(K(other, 0, 30), V(other, 0, 30));
    cache.Trim(0, length);
    EXPECT_EQ(cache.lengths()[0], length);
    cache.Trim(0, 0);
    cache.Append(K(t, 0, 40), V(t, 0, 40));
    std::vector<float> out(static_cast<size_t>(kHeads * 40 * kDv));
    cache.Attend(Q(t, 0, 40), CausalOptions(), OutPart(out, 40, 0, 40));
    EXPECT_TRUE(SameBits(out, OneCall(t, CausalOptions())));
  }
}

TEST(KVCache, AnEmptyCacheGivesBlockedRows) {
  const Tokens t = RandomTokens(3, 16);
  KVCache cache(Config(8));
  std::vector<float> out(static_cast<size_t>(kHeads * 3 * kDv), 5.0f), lse(kHeads * 3);
  const Tensor lse_view(lse.data(), {1, kHeads, 3});
  cache.Attend(Q(t, 0, 3), CausalOptions(), OutPart(out, 3, 0, 3), &lse_view);
  EXPECT_THAT(out, testing::Each(0.0f));
  EXPECT_THAT(lse, testing::Each(-std::numeric_limits<float>::infinity()));
}

template <class Call> void ExpectError(const Call& call, ErrorCode code, const std::string& where) {
  try {
    call();
    ADD_FAILURE() << "no error for " << where;
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    EXPECT_EQ(error.where(), where) << error.what();
  }
}

TEST(KVCache, WrongCallsAreNamedAndChangeNothing) {
  const Tokens t = RandomTokens(12, 17);
  const auto bad_config = [](auto change, ErrorCode code, const std::string& where) {
    KVCacheConfig config = Config(10);
    change(config);
    ExpectError([&] { KVCache cache(config); }, code, where);
  };
  using C = KVCacheConfig;
  bad_config([](C& c) { c.batch = 0; }, ErrorCode::kInvalidArgument, "batch");
  bad_config([](C& c) { c.kv_heads = -1; }, ErrorCode::kInvalidArgument, "kv_heads");
  bad_config([](C& c) { c.d = 0; }, ErrorCode::kInvalidArgument, "d");
  bad_config([](C& c) { c.dv = 0; }, ErrorCode::kInvalidArgument, "dv");
  bad_config([](C& c) { c.capacity = 0; }, ErrorCode::kInvalidArgument, "capacity");
  bad_config([](C& c) { c.page = 0; }, ErrorCode::kInvalidArgument, "page");
  bad_config([](C& c) { c.window = 11; }, ErrorCode::kInvalidArgument, "window");
  bad_config([](C& c) { c.dtype = DType::kF64; }, ErrorCode::kWrongType, "dtype");
  bad_config([](C& c) { c.capacity = int64_t{1} << 62; }, ErrorCode::kOutOfMemory, "KVCache");
  bad_config([](C& c) { c.capacity = int64_t{1} << 50; }, ErrorCode::kOutOfMemory, "");

  KVCache cache(Config(10));
  cache.Append(K(t, 0, 8), V(t, 0, 8));
  ExpectError([&] { cache.Append(K(t, 8, 11), V(t, 8, 11)); }, ErrorCode::kInvalidArgument, "k");
  ExpectError([&] { cache.Append(K(t, 8, 9), V(t, 8, 10)); }, ErrorCode::kInvalidArgument, "v");
  const std::vector<int64_t> too_many{2};
  ExpectError([&] { cache.Append(K(t, 8, 9), V(t, 8, 9), &too_many); }, ErrorCode::kInvalidArgument, "counts[0]");
  ExpectError([&] { cache.Fork(0, 1); }, ErrorCode::kInvalidArgument, "to");
  ExpectError([&] { cache.Fork(-1, 0); }, ErrorCode::kInvalidArgument, "from");
  ExpectError([&] { cache.Trim(0, 9); }, ErrorCode::kInvalidArgument, "length");
  ExpectError([&] { cache.Trim(0, -1); }, ErrorCode::kInvalidArgument, "length");
  ExpectError([&] { cache.Trim(1, 0); }, ErrorCode::kInvalidArgument, "sequence");
  std::vector<float> out(static_cast<size_t>(kHeads * kDv));
  AttentionOptions options;
  options.kv_lengths = std::vector<int64_t>{3};
  ExpectError([&] { cache.Attend(Q(t, 0, 1), options, Tensor(out.data(), {1, kHeads, 1, kDv})); },
              ErrorCode::kInvalidArgument, "kv_lengths");
  ExpectError([&] { cache.Attend(V(t, 0, 1), {}, Tensor(out.data(), {1, kHeads, 1, kDv})); },
              ErrorCode::kInvalidArgument, "q");
  EXPECT_EQ(cache.lengths()[0], 8);
}

TEST(KVCache, Int8RefusesWhatIsNotFinite) {
  Tokens t = RandomTokens(4, 18);
  t.v[5] = std::numeric_limits<float>::quiet_NaN();
  KVCacheConfig config = Config(10);
  config.dtype = DType::kI8;
  KVCache cache(config);
  ExpectError([&] { cache.Append(K(t, 0, 4), V(t, 0, 4)); }, ErrorCode::kInvalidArgument, "v");
  EXPECT_EQ(cache.lengths()[0], 0);
}

// Slots that no token was written to hold whatever memory held; no length lets them be read.
TEST(KVCache, NaNInBlockedTokensReachesNobody) {
  Tokens t = RandomTokens(20, 19);
  const std::vector<float> clean = OneCall(t, CausalOptions());
  for (int64_t h = 0; h < kKvHeads; ++h) {
    t.v[static_cast<size_t>((h * 20 + 19) * kDv)] = std::numeric_limits<float>::quiet_NaN();
    t.k[static_cast<size_t>((h * 20 + 19) * kD)] = std::numeric_limits<float>::infinity();
  }
  std::vector<float> out = InChunks(t, CausalOptions(), Config(20), {20});
  for (int64_t h = 0; h < kHeads; ++h) {
    const size_t first = static_cast<size_t>(h * 20 * kDv);
    EXPECT_EQ(std::memcmp(&out[first], &clean[first], 19 * kDv * sizeof(float)), 0);
    EXPECT_TRUE(std::isnan(out[first + 19 * kDv]));
  }
}

}  // namespace
}  // namespace qkv
