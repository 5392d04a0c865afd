// Scores of a block's rows against a tile of keys: scale * q . k, then softcap, ALiBi, bias; what is blocked is -inf.

#if defined(QKV_KERNELS_SCORE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef QKV_KERNELS_SCORE_INL_H_
#undef QKV_KERNELS_SCORE_INL_H_
#else
#define QKV_KERNELS_SCORE_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <type_traits>

#include "hwy/highway.h"
#include "kernels/block.h"
#include "kernels/convert-inl.h"
#include "kernels/load.h"
#include "kernels/math-inl.h"
#include "kernels/multiply-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qkv {
namespace HWY_NAMESPACE {

inline constexpr int64_t kDepthStep = 128;  // channels a call: 128 x 64 keys are 32 KiB, in the first-level cache
inline constexpr int64_t kKeyStep = 128;   // keys of V a call: 128 x 64 channels are 32 KiB, likewise
inline constexpr float kBlocked = -HUGE_VALF;

// Keys [first, last) of a tile, relative to its first key. A tile may hold fewer keys than kKeyTile.
struct Range {
  int64_t first = kKeyTile, last = 0;
  bool empty() const { return first >= last; }
};

inline Range VisibleInTile(const Row& row, int64_t tile_first, int64_t keys = kKeyTile) {
  return {std::clamp<int64_t>(row.first - tile_first, 0, keys), std::clamp<int64_t>(row.last - tile_first, 0, keys)};
}

// The smallest range that holds all that rows [r, r + count) see of a tile.
inline Range VisibleToAny(const Row* rows, int64_t count, int64_t tile_first, int64_t keys = kKeyTile) {
  Range all;
  for (int64_t r = 0; r < count; ++r) {
    const Range one = VisibleInTile(rows[r], tile_first, keys);
    if (one.empty()) continue;
    all.first = std::min(all.first, one.first);
    all.last = std::max(all.last, one.last);
  }
  return all;
}

// Rows are multiplied in groups of kTileRows; each group has its own range, so a causal tile costs half.
inline constexpr int64_t kMaxGroups = (kMaxBlockRows + kTileRows - 1) / kTileRows;

struct GroupRanges {
  Range group[kMaxGroups];
  Range all;
  int64_t count = 0;

  GroupRanges(const Block& block, int64_t tile_first, int64_t keys = kKeyTile)
      : count((block.count + kTileRows - 1) / kTileRows) {
    for (int64_t g = 0; g < count; ++g) {
      const int64_t r = g * kTileRows;
      group[g] = VisibleToAny(block.rows + r, std::min<int64_t>(kTileRows, block.count - r), tile_first, keys);
      Include(group[g]);
    }
  }

  // Those of `groups` groups from `first` on, as of a block of their own.
  GroupRanges Part(int64_t first, int64_t groups) const {
    GroupRanges part;
    part.count = std::min(groups, count - first);
    for (int64_t g = 0; g < part.count; ++g) part.Include(part.group[g] = group[first + g]);
    return part;
  }

 private:
  GroupRanges() = default;
  void Include(const Range& range) {
    all.first = std::min(all.first, range.first);
    all.last = std::max(all.last, range.last);
  }
};

template <class T> void LoadScaled(const T* from, int64_t channel, int64_t count, float scale, float* to) {
  const F32 tag;
  const float* source = to;
  if constexpr (std::is_same_v<T, float>) {
    if (channel == 1) source = from;
  } else if (channel == 1) {
    ConvertToFloat(from, count, to);
  }
  if (channel != 1) {
    for (int64_t c = 0; c < count; ++c) to[c] = LoadFloat(from, DTypeOf<T>::value, c * channel);
  }
  const VecF32 factor = hn::Set(tag, scale);
  int64_t c = 0;
  for (; c + Lanes() <= count; c += Lanes()) hn::StoreU(hn::Mul(hn::LoadU(tag, source + c), factor), tag, to + c);
  for (; c < count; ++c) to[c] = source[c] * scale;
}

// Elements of q's type, `channel` apart, as float32 times the scale.
inline void LoadRow(const Layout& layout, const void* from, int64_t channel, int64_t count, float scale, float* to) {
  switch (layout.q_dtype) {
    case DType::kBF16: return LoadScaled(static_cast<const BFloat16*>(from), channel, count, scale, to);
    case DType::kF16: return LoadScaled(static_cast<const Float16*>(from), channel, count, scale, to);
    default: return LoadScaled(static_cast<const float*>(from), channel, count, scale, to);
  }
}

// The block's queries as float32, times the scale: (rows, D).
inline void LoadQueries(const Block& block, float* to) {
  const Layout& layout = *block.layout;
  const float scale = static_cast<float>(layout.scale);
  for (int64_t r = 0; r < block.count; ++r, to += layout.d) {
    LoadRow(layout, block.rows[r].q, layout.q_channel, layout.d, scale, to);
  }
}

// Dot products of rows of `a`, lda apart, with the panel of keys that begins at key `panel` of a tile, for the groups
// that see any of it, in whole vectors.
inline void MultiplyKeyPanel(int64_t rows, const GroupRanges& ranges, int64_t panel, int64_t depth, const float* a,
                             int64_t lda, const float* b, float* scores, int64_t stride, Start start) {
  const int64_t width = PanelWidth();
  for (int64_t g = 0; g < ranges.count; ++g) {
    const int64_t columns = std::min(width, ranges.group[g].last - panel);
    if (columns <= 0 || ranges.group[g].first >= panel + width) continue;
    const int64_t r = g * kTileRows;
    MultiplyPanel(std::min<int64_t>(kTileRows, rows - r), columns, depth, a + r * lda, lda, b, width,
                  scores + r * stride + panel, stride, start);
  }
}

// The same with all packed keys that any group sees; the rest of `scores`, rows `stride` apart, is left as it was.
inline void MultiplyKeys(int64_t rows, const GroupRanges& ranges, int64_t depth, const float* a, int64_t lda,
                         const float* keys, float* scores, int64_t stride) {
  const int64_t width = PanelWidth();
  for (int64_t panel = ranges.all.first / width * width; panel < ranges.all.last; panel += width) {
    for (int64_t c = 0; c < depth; c += kDepthStep) {
      MultiplyKeyPanel(rows, ranges, panel, std::min(kDepthStep, depth - c), a + c, lda, keys + panel * depth + c * width,
                       scores, stride, c == 0 ? Start::kZero : Start::kAdd);
    }
  }
}

// out += weights * packed values over each group's range only; rows of weights are `stride` apart.
inline void MultiplyValues(int64_t rows, const GroupRanges& ranges, int64_t channels, const float* weights,
                           int64_t stride, const float* values, float* out, int64_t out_stride) {
  const int64_t width = ValuePanel(channels);
  for (int64_t channel = 0; channel < channels; channel += width) {
    const float* panel = values + channel * kKeyTile;
    const int64_t columns = std::min(width, channels - channel);
    for (int64_t key = ranges.all.first / kKeyStep * kKeyStep; key < ranges.all.last; key += kKeyStep) {
      for (int64_t g = 0; g < ranges.count; ++g) {
        const int64_t first = std::max(key, ranges.group[g].first);
        const int64_t last = std::min(key + kKeyStep, ranges.group[g].last);
        if (first >= last) continue;
        const int64_t r = g * kTileRows;
        MultiplyPanel(std::min<int64_t>(kTileRows, rows - r), columns, last - first, weights + r * stride + first,
                      stride, panel + first * width, width, out + r * out_stride + channel, out_stride, Start::kAdd);
      }
    }
  }
}

inline void Softcap(float cap, Range range, float* s) {
  const F32 tag;
  const VecF32 size = hn::Set(tag, cap);
  for (int64_t j = range.first / Lanes() * Lanes(); j < range.last; j += Lanes()) {
    // Divided: the reciprocal of a tiny cap would be infinite, and that of any cap a rounding more.
    hn::StoreU(hn::Mul(size, Tanh(tag, hn::Div(hn::LoadU(tag, s + j), size))), tag, s + j);
  }
}

inline void AddAlibi(const Row& row, int64_t tile_first, Range range, float* s) {
  for (int64_t j = range.first; j < range.last; ++j) {
    s[j] -= row.slope * std::abs(static_cast<float>(row.position - tile_first - j));
  }
}

// Elements j of `range` at from + j * stride as floats: where they lie, or in `buffer` (kKeyTile).
template <class T> const float* RangeAsFloats(const T* from, int64_t stride, Range range, float* buffer) {
  if (stride == 1) {
    if constexpr (std::is_same_v<T, float>) return from;
    ConvertToFloat(from + range.first, range.last - range.first, buffer + range.first);
    return buffer;
  }
  for (int64_t j = range.first; j < range.last; ++j) buffer[j] = LoadFloat(from, DTypeOf<T>::value, j * stride);
  return buffer;
}

template <class T> void AddBias(const T* bias, int64_t stride, Range range, float* s) {
  HWY_ALIGN float buffer[kKeyTile];
  const float* values = RangeAsFloats(bias, stride, range, buffer);
  for (int64_t j = range.first; j < range.last; ++j) {
    // -inf blocks even a score that is NaN or +inf.
    s[j] = values[j] == kBlocked ? kBlocked : s[j] + values[j];
  }
}

// The stride is a constant in the common case, so that the compiler makes vectors of the loop.
inline void ApplyMask(const uint8_t* mask, int64_t stride, Range range, float* s) {
  if (stride == 1) {
    for (int64_t j = range.first; j < range.last; ++j) s[j] = mask[j] != 0 ? s[j] : kBlocked;
  } else {
    for (int64_t j = range.first; j < range.last; ++j) s[j] = mask[j * stride] != 0 ? s[j] : kBlocked;
  }
}

inline void AddBiasOfAnyType(const ScoreRules& rules, const Row& row, int64_t tile_first, Range range, float* s) {
  const int64_t skip = tile_first * rules.bias_key;
  switch (rules.bias_dtype) {
    case DType::kBF16:
      return AddBias(static_cast<const BFloat16*>(row.bias) + skip, rules.bias_key, range, s);
    case DType::kF16: return AddBias(static_cast<const Float16*>(row.bias) + skip, rules.bias_key, range, s);
    default: return AddBias(static_cast<const float*>(row.bias) + skip, rules.bias_key, range, s);
  }
}

// After it, s holds the row's scores of the tile in `span`, with -inf for what is blocked. range: what the row sees of
// the span by its position; span: whole panels.
inline void ApplyRulesWithin(const ScoreRules& rules, const Row& row, int64_t tile_first, Range range, Range span,
                             float* s) {
  if (range.empty()) {
    std::fill(s + span.first, s + span.last, kBlocked);
    return;
  }
  if (rules.softcap) Softcap(*rules.softcap, range, s);
  if (rules.has_alibi) AddAlibi(row, tile_first, range, s);
  if (rules.has_bias) AddBiasOfAnyType(rules, row, tile_first, range, s);
  if (rules.has_mask) ApplyMask(row.mask + tile_first * rules.mask_key, rules.mask_key, range, s);
  std::fill(s + span.first, s + range.first, kBlocked);
  std::fill(s + range.last, s + span.last, kBlocked);
}

inline void ApplyRules(const ScoreRules& rules, const Row& row, int64_t tile_first, Range span, float* s) {
  ApplyRulesWithin(rules, row, tile_first, VisibleInTile(row, tile_first), span, s);
}

// Four vectors at a time, from absolute multiples of four within the tile: the order of a row's sums is fixed.
HWY_INLINE int64_t SumStep() { return 4 * Lanes(); }

inline Range WholeSteps(Range range) {
  const int64_t step = SumStep();
  return {range.first / step * step, (range.last + step - 1) / step * step};
}

// From a whole step to whole vectors: what a row's sums run over.
inline Range WholeVectors(Range range) {
  return {range.first / SumStep() * SumStep(), (range.last + Lanes() - 1) / Lanes() * Lanes()};
}

// Products of all rows of the block become scores, with the rules applied.
inline void ApplyRulesToTile(const Block& block, int64_t tile_first, const GroupRanges& ranges, float* scores) {
  const ScoreRules& rules = *block.rules;
  const bool by_position = !rules.softcap && !rules.has_alibi && !rules.has_bias && !rules.has_mask;
  for (int64_t r = 0; r < block.count; ++r) {
    const Range group = ranges.group[r / kTileRows];
    if (group.empty()) continue;
    const Row& row = block.rows[r];
    const Range span = WholeSteps(group);
    if (by_position && row.first <= tile_first + span.first && tile_first + span.last <= row.last) continue;
    ApplyRules(rules, row, tile_first, span, scores + r * kScoreStride);
  }
}

// Scores of all rows of the block for the tile. Returns what was written, in whole steps; empty: nothing visible.
inline Range ScoreTile(const Block& block, const KeyTile& tile, const GroupRanges& ranges, const float* queries,
                       float* scores) {
  if (ranges.all.empty()) return {};
  MultiplyKeys(block.count, ranges, block.layout->d, queries, block.layout->d, tile.keys, scores, kScoreStride);
  ApplyRulesToTile(block, tile.first, ranges, scores);
  return WholeSteps(ranges.all);
}

}  // namespace HWY_NAMESPACE
}  // namespace qkv
HWY_AFTER_NAMESPACE();

#endif  // include guard
