// Scores and sums over keys and values that are read once, where they lie: for blocks of few rows, where packing would
// cost more than the multiplications. The same chains as over packed tiles (score-inl.h), so the same bits.
//
// What bounds it is memory, and a core keeps enough lines on their way only if it asks for them long before their use
// and evenly: so every few instructions of the work on 32 keys ask for a line of the 32 that come next, be they keys or
// values.

#if defined(QKV_KERNELS_STREAM_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef QKV_KERNELS_STREAM_INL_H_
#undef QKV_KERNELS_STREAM_INL_H_
#else
#define QKV_KERNELS_STREAM_INL_H_
#endif

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "hwy/highway.h"
#include "kernels/block.h"
#include "kernels/keys-inl.h"
#include "kernels/multiply-inl.h"
#include "kernels/score-inl.h"
#include "kernels/weights-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qkv {
namespace HWY_NAMESPACE {

inline constexpr int64_t kNearKeys = 32;        // keys that are worked on while the next so many are on their way
inline constexpr int64_t kNearChannels = 256;   // channels of V whose sums are kept in between

inline Range Overlap(Range a, Range b) { return {std::max(a.first, b.first), std::min(a.last, b.last)}; }

// Where kNearKeys keys of a tile lie; the last one stands for those past the end.
template <class T> struct NearRows {
  const T* row[kNearKeys];

  NearRows(const Strided& from, int64_t first, int64_t length) {
    for (int64_t n = 0; n < kNearKeys; ++n) row[n] = from.Key<T>(std::min(first + n, length - 1));
  }
};

// Rows to ask for, of elements of `size` bytes.
struct Ahead {
  const std::byte* row[kNearKeys];
  int64_t size;
};

// scores (rows) += or = q (rows, ldq apart) times a vector of keys, over `depth` channels.
template <int kRows, class E>
HWY_NOINLINE void MultiplyNearKeys(int64_t depth, const float* HWY_RESTRICT q, int64_t ldq, const E* const* keys,
                                   const Ahead& next, float* HWY_RESTRICT scores, Start start) {
  constexpr int kLanes = static_cast<int>(hn::MaxLanes(F32()));
  const F32 tag;
  VecF32 sum[kRows];
  QKV_UNROLL for (int r = 0; r < kRows; ++r) sum[r] = hn::Zero(tag);
  int64_t c = 0;
  for (; c + kLanes <= depth; c += kLanes) {
    VecF32 channel[kLanes];
    TurnSquare(keys, c, channel);
    QKV_UNROLL for (int i = 0; i < kLanes; ++i) {
      __builtin_prefetch(next.row[i] + c * next.size);
      QKV_UNROLL for (int r = 0; r < kRows; ++r) {
        sum[r] = hn::MulAdd(hn::Set(tag, q[r * ldq + c + i]), channel[i], sum[r]);
      }
    }
  }
  for (; c < depth; ++c) {
    HWY_ALIGN float channel[kLanes];
    for (int i = 0; i < kLanes; ++i) channel[i] = ElementAsFloat(keys[i][c]);
    QKV_UNROLL for (int r = 0; r < kRows; ++r) {
      sum[r] = hn::MulAdd(hn::Set(tag, q[r * ldq + c]), hn::Load(tag, channel), sum[r]);
    }
  }
  QKV_UNROLL for (int r = 0; r < kRows; ++r) {
    float* to = scores + r * kScoreStride;
    hn::StoreU(start == Start::kAdd ? hn::Add(hn::LoadU(tag, to), sum[r]) : sum[r], tag, to);
  }
}

// sums (rows x vectors, rows kNearChannels apart) += weights (rows kScoreStride apart) times rows of V, from `channel`
// on.
template <int kRows, int kVectors, class E>
HWY_NOINLINE void MultiplyNearValues(Range keys, int64_t channel, const float* HWY_RESTRICT weights,
                                     const E* const* values, const Ahead& next, float* HWY_RESTRICT sums) {
  const F32 tag;
  const int64_t lanes = Lanes();
  VecF32 sum[kRows][kVectors];
  QKV_UNROLL for (int r = 0; r < kRows; ++r) {
    QKV_UNROLL for (int n = 0; n < kVectors; ++n) sum[r][n] = hn::LoadU(tag, sums + r * kNearChannels + n * lanes);
  }
  for (int64_t j = keys.first; j < keys.last; ++j) {
    VecF32 row[kVectors];
    QKV_UNROLL for (int n = 0; n < kVectors; ++n) {
      __builtin_prefetch(next.row[j] + (channel + n * lanes) * next.size);
      row[n] = LoadAsFloat(values[j] + channel + n * lanes);
    }
    QKV_UNROLL for (int r = 0; r < kRows; ++r) {
      const VecF32 weight = hn::Set(tag, weights[r * kScoreStride + j]);
      QKV_UNROLL for (int n = 0; n < kVectors; ++n) sum[r][n] = hn::MulAdd(weight, row[n], sum[r][n]);
    }
  }
  QKV_UNROLL for (int r = 0; r < kRows; ++r) {
    QKV_UNROLL for (int n = 0; n < kVectors; ++n) hn::StoreU(sum[r][n], tag, sums + r * kNearChannels + n * lanes);
  }
}

// Calls body with the number of rows of a group as a constant.
template <class Body> HWY_INLINE void WithRows(int64_t rows, const Body& body) {
  switch (rows) {
    case 1: return body(std::integral_constant<int, 1>());
    case 2: return body(std::integral_constant<int, 2>());
    case 3: return body(std::integral_constant<int, 3>());
    case 4: return body(std::integral_constant<int, 4>());
    case 5: return body(std::integral_constant<int, 5>());
    default: return body(std::integral_constant<int, kTileRows>());
  }
}

enum class NotFinite { kAsItIs, kZero };  // what the products take in the place of NaN and infinity in V

// A tile of keys and values of type T for a block. Where a head's elements are not side by side, or are int8, rows are
// converted before they are multiplied.
template <class T> class StreamedTile {
 public:
  StreamedTile(const Block& block, const GroupRanges& ranges, int64_t tile_first)
      : block_(block), ranges_(ranges), tile_first_(tile_first), k_(block.key_values->k), v_(block.key_values->v),
        length_(block.key_values->length) {}

  // As MultiplyKeys.
  void Scores(const float* queries, float* scores) const {
    const int64_t depth = block_.layout->d;
    const Range all = Whole(ranges_.all);
    NearRows<T> near(k_, tile_first_ + all.first, length_);
    for (int64_t key = all.first; key < all.last; key += kNearKeys) {
      const bool more = key + kNearKeys < all.last;
      const NearRows<T> next(more ? k_ : v_, tile_first_ + (more ? key + kNearKeys : all.first), length_);
      for (int64_t n = 0; n < kNearKeys; n += Lanes()) {
        for (int64_t c = 0; c < depth; c += kDepthStep) {
          ScoreVector(key + n, c, std::min(kDepthStep, depth - c), near.row + n, next.row + n, queries, scores);
        }
      }
      near = next;
    }
  }

  // As MultiplyValues and AddNotFinite. What is not finite shows in the sums, blocked or not: only then are they taken
  // again without it.
  void Values(const float* weights, float* out, int64_t out_stride) {
    for (int64_t key = ranges_.all.first / kKeyStep * kKeyStep; key < ranges_.all.last; key += kKeyStep) {
      const Range keys = Overlap(ranges_.all, {key, key + kKeyStep});
      bool finite = true;
      for (int64_t c = 0; c < block_.layout->dv; c += kNearChannels) {
        const int64_t width = std::min(kNearChannels, block_.layout->dv - c);
        Sum(keys, c, width, weights, NotFinite::kAsItIs);
        if (HWY_UNLIKELY(!SumsAreFinite(width))) {
          finite = false;
          Sum(keys, c, width, weights, NotFinite::kZero);
        }
        AddSums(keys, width, out + c, out_stride);
      }
      if (finite) continue;
      AddNotFinite({block_, 0, block_.count}, tile_first_, keys, out, out_stride,
                   [&](int64_t r, int64_t j) { return weights[r * kScoreStride + j]; });
    }
  }

 private:
  static Range Whole(Range range) {
    return {range.first / kNearKeys * kNearKeys, (range.last + kNearKeys - 1) / kNearKeys * kNearKeys};
  }

  static bool InPlace(const Strided& from) { return !std::is_same_v<T, int8_t> && from.channel == 1; }

  // Scores of a vector of keys for every group that sees any of them.
  void ScoreVector(int64_t key, int64_t c, int64_t depth, const T* const* rows, const T* const* next,
                   const float* queries, float* scores) const {
    HWY_ALIGN float buffer[kMostLanes * kDepthStep];
    const float* converted[kMostLanes];
    const T* keys[kMostLanes];
    Ahead ahead;
    ahead.size = sizeof(T);
    const bool in_place = InPlace(k_);
    for (int64_t i = 0; i < Lanes(); ++i) {
      keys[i] = rows[i] + c, ahead.row[i] = reinterpret_cast<const std::byte*>(next[i] + c);
      if (!in_place) converted[i] = ConvertKey(k_, key + i, c, depth, buffer + i * kDepthStep);
    }
    for (int64_t g = 0; g < ranges_.count; ++g) {
      if (ranges_.group[g].last <= key || ranges_.group[g].first >= key + Lanes()) continue;
      const int64_t r = g * kTileRows, stride = block_.layout->d;
      const Target to = {queries + r * stride + c, stride, scores + r * kScoreStride + key,
                         c == 0 ? Start::kZero : Start::kAdd};
      if (in_place) MultiplyKeys(block_.count - r, depth, keys, ahead, to);
      else MultiplyKeys(block_.count - r, depth, converted, ahead, to);
    }
  }

  struct Target {
    const float* q;
    int64_t q_stride;
    float* scores;
    Start start;
  };
  template <class E>
  static void MultiplyKeys(int64_t rows, int64_t depth, const E* const* keys, const Ahead& ahead, const Target& to) {
    if constexpr (!std::is_same_v<E, int8_t>) {
      WithRows(rows, [&](auto count) {
        MultiplyNearKeys<count()>(depth, to.q, to.q_stride, keys, ahead, to.scores, to.start);
      });
    }
  }

  // Channels of a key of the tile, or of the last one, as floats; zeros after them up to whole vectors.
  const float* ConvertKey(const Strided& from, int64_t key, int64_t c, int64_t width, float* to) const {
    const T* data = from.Key<T>(std::min(tile_first_ + key, length_ - 1)) + c * from.channel;
    const float scale = from.dtype == DType::kI8 ? from.Scale(std::min(tile_first_ + key, length_ - 1)) : 1.0f;
    for (int64_t i = 0; i < width; ++i) {
      if constexpr (std::is_same_v<T, int8_t>) to[i] = static_cast<float>(data[i * from.channel]) * scale;
      else to[i] = ElementAsFloat(data[i * from.channel]);
    }
    std::fill(to + width, to + ValueWidth(width), 0.0f);
    return to;
  }

  // Chains of P V over some keys of a step, for channels [channel, channel + width).
  void Sum(Range keys, int64_t channel, int64_t width, const float* weights, NotFinite not_finite) {
    std::fill_n(sums_, block_.count * kNearChannels, 0.0f);
    const bool in_place = InPlace(v_) && not_finite == NotFinite::kAsItIs && width % Lanes() == 0;
    for (int64_t j = keys.first / kNearKeys * kNearKeys; j < keys.last; j += kNearKeys) {
      const NearRows<T> near(v_, tile_first_ + j, length_), next = After(j);
      const T* values[kNearKeys];
      Ahead ahead;
      ahead.size = sizeof(T);
      for (int64_t n = 0; n < kNearKeys; ++n) {
        values[n] = near.row[n] + channel;
        ahead.row[n] = reinterpret_cast<const std::byte*>(next.row[n] + channel);
      }
      const Range some = Overlap(keys, {j, j + kNearKeys});
      if (in_place) AddRows(j, some, width, weights, values, ahead);
      else AddConverted(j, some, channel, width, weights, ahead, not_finite);
    }
  }

  // What to ask for while values j ... are worked on: those after them, or the keys of the next tile.
  NearRows<T> After(int64_t j) const {
    if (j + kNearKeys < ranges_.all.last) return NearRows<T>(v_, tile_first_ + j + kNearKeys, length_);
    return NearRows<T>(k_, tile_first_ + kKeyTile, length_);
  }

  void AddConverted(int64_t first, Range keys, int64_t channel, int64_t width, const float* weights,
                    const Ahead& ahead, NotFinite not_finite) {
    const F32 tag;
    HWY_ALIGN float buffer[kNearKeys][kNearChannels];
    const float* rows[kNearKeys] = {};
    for (int64_t j = keys.first; j < keys.last; ++j) {
      float* to = buffer[j - first];
      rows[j - first] = ConvertKey(v_, j, channel, width, to);
      if (not_finite == NotFinite::kAsItIs) continue;
      for (int64_t c = 0; c < width; c += Lanes()) {
        const VecF32 value = hn::LoadU(tag, to + c);
        hn::StoreU(hn::IfThenElseZero(hn::Eq(hn::Sub(value, value), hn::Zero(tag)), value), tag, to + c);
      }
    }
    AddRows(first, keys, width, weights, rows, ahead);
  }

  // rows, ahead: of keys first, first + 1, ...
  template <class E>
  void AddRows(int64_t first, Range keys, int64_t width, const float* weights, const E* const* rows,
               const Ahead& ahead) {
    if constexpr (!std::is_same_v<E, int8_t>) {
      for (int64_t g = 0; g < ranges_.count; ++g) {
        const Range seen = Overlap(keys, ranges_.group[g]);
        if (seen.empty()) continue;
        const int64_t r = g * kTileRows;
        const float* from = weights + r * kScoreStride + first;
        const Range near = {seen.first - first, seen.last - first};
        WithRows(block_.count - r, [&](auto group) {
          float* sums = sums_ + r * kNearChannels;
          int64_t c = 0;
          for (; c + PanelWidth() <= width; c += PanelWidth()) {
            MultiplyNearValues<group(), kTileVectors>(near, c, from, rows, ahead, sums + c);
          }
          for (; c < width; c += Lanes()) {
            MultiplyNearValues<group(), 1>(near, c, from, rows, ahead, sums + c);
          }
        });
      }
    }
  }

  // Whether every sum came out finite: then no value that was read is not.
  bool SumsAreFinite(int64_t width) const {
    const F32 tag;
    VecF32 lost = hn::Zero(tag);
    for (int64_t r = 0; r < block_.count; ++r) {
      for (int64_t c = 0; c < width; c += Lanes()) {
        const VecF32 sum = hn::LoadU(tag, sums_ + r * kNearChannels + c);
        lost = hn::Or(lost, hn::Sub(sum, sum));  // NaN for NaN and infinities, else zero
      }
    }
    return hn::AllTrue(tag, hn::Eq(lost, hn::Zero(tag)));
  }

  void AddSums(Range keys, int64_t width, float* out, int64_t out_stride) const {
    const F32 tag;
    for (int64_t r = 0; r < block_.count; ++r) {
      if (Overlap(keys, ranges_.group[r / kTileRows]).empty()) continue;
      for (int64_t c = 0; c < width; c += Lanes()) {
        float* to = out + r * out_stride + c;
        hn::StoreU(hn::Add(hn::LoadU(tag, to), hn::LoadU(tag, sums_ + r * kNearChannels + c)), tag, to);
      }
    }
  }

  static constexpr int64_t kMostLanes = hn::MaxLanes(F32());

  const Block& block_;
  const GroupRanges& ranges_;
  int64_t tile_first_;
  const Strided &k_, &v_;
  int64_t length_;
  HWY_ALIGN float sums_[kStreamedRows * kNearChannels];
};

}  // namespace HWY_NAMESPACE
}  // namespace qkv
HWY_AFTER_NAMESPACE();

#endif  // include guard
