// The softmax of attention on pairs of bfloat16 (kParts 1) and on triples that stand for float32 (kParts 3):
// the part of a chunk that a group of rows sees, its scores, weights and sums.

#if defined(QKV_KERNELS_PAIR_SOFTMAX_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef QKV_KERNELS_PAIR_SOFTMAX_INL_H_
#undef QKV_KERNELS_PAIR_SOFTMAX_INL_H_
#else
#define QKV_KERNELS_PAIR_SOFTMAX_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "hwy/highway.h"
#include "kernels/block.h"
#include "kernels/math-inl.h"
#include "kernels/pair_power-inl.h"
#include "kernels/pairs.h"
#include "kernels/row-inl.h"
#include "kernels/score-inl.h"
#include "kernels/triple_products-inl.h"
#include "kernels/weights-inl.h"

HWY_PUSH_ATTRIBUTES(HWY_TARGET_STR ",avx512bf16")
namespace qkv {
namespace HWY_NAMESPACE {

inline constexpr int64_t kColumn = 2 * kPairColumns;  // keys whose scores are made together
// Floats from a row of a chunk's scores to the next: off powers of two, which share cache sets.
inline constexpr int64_t kScores = kPairChunk + 16;
// The same of its weights, whose parts are kPairChunk elements apart.
template <int64_t kParts>
inline constexpr int64_t kWeightStride = kParts* kPairChunk + 32;
inline constexpr int64_t kWeights = kWeightStride<1>;
inline constexpr int64_t kChunkSums = 2 * 16;  // of a row: of the weights, and of the exact exponentials

// A row of Sums::out: the channels, then 16 partial sums of the weights that multiplied them, then 16 of the
// exact exponentials, kept where somebody asked for them.
inline int64_t Channels(const Layout& layout) { return PaddedWidth(layout.dv, kPairDepth); }
inline int64_t OutStride(const Layout& layout) { return Channels(layout) + 2 * 16; }
inline int64_t Depth(const Layout& layout) { return PaddedWidth(layout.d, kPairDepth); }

// Floats of a block's packed queries, in whole groups of rows.
template <int64_t kParts>
int64_t QueryFloats(int64_t rows, const Layout& layout) {
  return PaddedWidth(rows, kPairGroupRows) * Depth(layout) * kParts / 2;
}

// The scratch memory's parts.
template <int64_t kParts>
struct Parts {
  BFloat16* queries;  // (rows, kParts, Depth), not scaled
  float* column;      // (kColumns, group rows, kColumn): scores
  float* scores;      // (group rows, kScores): those of a whole chunk, for rows that get a new base
  float* sums;        // (group rows, kChunkSums)
  BFloat16* weights;  // (group rows, kWeightStride)

  explicit Parts(Scratch& scratch)
      : queries(reinterpret_cast<BFloat16*>(scratch.queries())),
        column(scratch.scores()),
        scores(column + kColumns * kPairGroupRows * kColumn),
        sums(scores + kPairGroupRows * kScores),
        weights(reinterpret_cast<BFloat16*>(sums + kPairGroupRows * kChunkSums)) {}

  static constexpr int64_t kColumns = kParts == 1 ? 1 : 2;
  static constexpr int64_t kFloats =
      kPairGroupRows * (kColumns * kColumn + kScores + kChunkSums + kWeightStride<kParts> / 2);
};

// A group of rows and the part of a chunk that they see, in whole pair tiles; keys are relative to the tile.
struct Item {
  int64_t row, rows;
  Range keys;
  bool all_visible;  // each row sees all the keys by its position
};

struct Items {
  Item item[kMaxBlockRows / kPairGroupRows * kKeyTile / kPairChunk];
  int64_t count = 0;

  static Range VisibleToEach(const Row* rows, int64_t count, int64_t tile_first) {
    Range common = {0, kKeyTile};
    for (int64_t r = 0; r < count; ++r) {
      common.first = std::max(common.first, rows[r].first - tile_first);
      common.last = std::min(common.last, rows[r].last - tile_first);
    }
    return common;
  }

  Items(const Block& block, int64_t tile_first) {
    for (int64_t row = 0; row < block.count; row += kPairGroupRows) {
      const int64_t rows = std::min(kPairGroupRows, block.count - row);
      const Range all = VisibleToAny(block.rows + row, rows, tile_first);
      const Range common = VisibleToEach(block.rows + row, rows, tile_first);
      for (int64_t chunk = all.first / kPairChunk * kPairChunk; chunk < all.last; chunk += kPairChunk) {
        const int64_t first = std::max(chunk, all.first / kPairDepth * kPairDepth);
        const int64_t last = std::min(chunk + kPairChunk, PaddedWidth(all.last, kPairDepth));
        item[count++] = {row, rows, {first, last}, common.first <= first && last <= common.last};
      }
    }
  }
};

// A row's 16 partial sums over a chunk.
struct ChunkSums {
  __m512 weights, exact;
};

HWY_INLINE ChunkSums LoadSums(const float* from) { return {_mm512_loadu_ps(from), _mm512_loadu_ps(from + 16)}; }

HWY_INLINE void StoreSums(const ChunkSums& sums, float* to) {
  _mm512_storeu_ps(to, sums.weights);
  _mm512_storeu_ps(to + 16, sums.exact);
}

// The parts of 32 weights, in turn: i and 16 + i are a pair (kernels/triples.h). Their high and middle parts
// are cut, not rounded: two steps fewer, and what products leave out stays as likely to be above as below,
// since values' parts are rounded.
HWY_INLINE void StoreTripleWeights(const __m512 (&p)[2], BFloat16* to) {
  const __m512i upper = _mm512_set1_epi32(-65536);
  __m512i parts[2][kTripleParts];
  QKV_UNROLL for (int n = 0; n < 2; ++n) {
    parts[n][0] = _mm512_and_si512(_mm512_castps_si512(p[n]), upper);
    const __m512 rest = _mm512_sub_ps(p[n], _mm512_castsi512_ps(parts[n][0]));
    parts[n][1] = _mm512_and_si512(_mm512_castps_si512(rest), upper);
    parts[n][2] = _mm512_castps_si512(_mm512_sub_ps(rest, _mm512_castsi512_ps(parts[n][1])));
  }
  QKV_UNROLL for (int64_t i = 0; i < kTripleParts; ++i) {
    _mm512_storeu_si512(to + i * kPairChunk, InTurn(parts[0][i], parts[1][i]));
  }
}

// weights = 2^(s * factor - shift), as triples; adds them to the sums. count: a multiple of 32.
HWY_INLINE void ExpRowOfTriples(const float* s, int64_t count, float factor, float shift, BFloat16* weights,
                                ChunkSums& sums) {
  const __m512 factors = _mm512_set1_ps(factor), shifts = _mm512_set1_ps(shift);
  for (int64_t j = 0; j < count; j += 32) {
    __m512 p[2];
    QKV_UNROLL for (int n = 0; n < 2; ++n) {
      const __m512 x = _mm512_fmsub_ps(_mm512_load_ps(s + j + 16 * n), factors, shifts);
      p[n] = _mm512_scalef_ps(PowerForTriple(_mm512_reduce_ps(x, kFloor)), x);
      sums.weights = _mm512_add_ps(sums.weights, p[n]);
    }
    StoreTripleWeights(p, weights + j);
  }
}

// weights = 2^(s * factor - shift), rounded; adds them to the sums. count: a multiple of 32.
template <RowSums kSums>
HWY_INLINE void ExpRowOfPairs(const float* s, int64_t count, float factor, float shift, BFloat16* weights,
                              ChunkSums& sums) {
  const __m512 factors = _mm512_set1_ps(factor), shifts = _mm512_set1_ps(shift);
  for (int64_t j = 0; j < count; j += 32) {
    __m512 p[2];
    QKV_UNROLL for (int n = 0; n < 2; ++n) {
      const __m512 x = _mm512_fmsub_ps(_mm512_load_ps(s + j + 16 * n), factors, shifts);
      const __m512 f = _mm512_reduce_ps(x, kFloor);
      p[n] = _mm512_scalef_ps(PowerForWeight(f), x);  // times 2^floor(x); zero where that underflows
      sums.weights = _mm512_add_ps(sums.weights, p[n]);
      if constexpr (kSums == RowSums::kExact) {
        sums.exact = _mm512_add_ps(sums.exact, _mm512_scalef_ps(PowerForSum(f), x));
      }
    }
    const __m512bh pairs = _mm512_cvtne2ps_pbh(p[1], p[0]);
    std::memcpy(weights + j, &pairs, sizeof(pairs));
  }
}

template <RowSums kSums, int64_t kParts>
HWY_INLINE void ExpRow(const float* s, int64_t count, float factor, float shift, BFloat16* weights,
                       ChunkSums& sums) {
  if constexpr (kParts == kTripleParts)
    ExpRowOfTriples(s, count, factor, shift, weights, sums);
  else
    ExpRowOfPairs<kSums>(s, count, factor, shift, weights, sums);
}

// What the weight of a base's own score is. A triple's is large, so that the parts of far smaller ones are no
// denormal numbers yet, which tdpbf16ps takes for zeros.
template <int64_t kParts>
inline constexpr float kWeightOne = kParts == kTripleParts ? kTripleOne : 1.0f;

// Where a lane's sum over a chunk passes it, the row gets a new base. In float32 no weight may pass 2^6 times
// one: the larger the exponent, the larger its rounding.
template <int64_t kParts>
inline constexpr float kLargestSum = (kParts == kTripleParts ? 64.0f : 1024.0f) * kWeightOne<kParts>;

inline float MaxOf(const float* s, int64_t count) {
  __m512 max = _mm512_set1_ps(kBlocked);
  // The score comes first: where it is NaN, the maximum gives the second, and the sums carry the NaN on.
  for (int64_t j = 0; j < count; j += 16) max = _mm512_max_ps(_mm512_load_ps(s + j), max);
  const float largest = _mm512_reduce_max_ps(max);
  if (largest != kBlocked) return largest;
  // Nothing visible, or nothing but NaN: that must come out.
  for (int64_t j = 0; j < count; ++j) {
    if (std::isnan(s[j])) return s[j];
  }
  return largest;
}

// The softmax of an item.
template <RowSums kSums, int64_t kParts>
class ItemSoftmax {
 public:
  ItemSoftmax(const Block& block, const KeyTile& tile, const Item& item, const Parts<kParts>& parts,
              const Sums& sums)
      : block_(block),
        tile_(tile),
        item_(item),
        parts_(parts),
        sums_(sums),
        stride_(OutStride(*block.layout)),
        channels_(Channels(*block.layout)) {
    const ScoreRules& rules = *block.rules;
    // Rules on scores want them scaled; and a largest product is a largest score where the scale is positive.
    scale_first_ = rules.softcap || rules.has_alibi || rules.has_bias || !(scale_of_products() > 0);
    scale_ = scale_first_ ? 1.0f : scale_of_products();
    every_row_ = rules.has_mask || scale_first_;
    SetShifts();
    for (int64_t r = 0; r < item.rows; ++r)
      StoreSums({_mm512_setzero_ps(), _mm512_setzero_ps()}, chunk_sums(r));
  }

  bool any_rebase() const { return rebase_ != 0; }

  // A column of a chunk's scores, which stay as they are.
  void TakeColumn(int64_t key) {
    for (int64_t r = 0; r < item_.rows; ++r) {
      std::copy_n(parts_.scores + r * kScores + key - item_.keys.first, kColumn, parts_.column + r * kColumn);
    }
  }

  // The scores of a column of keys, from `key` on, become weights under the rows' bases.
  HWY_INLINE void RunColumn(int64_t key) {
    BeginColumn(key, parts_.column);
    RunRows(key, parts_.column, 0, item_.rows);
  }
  // The same in steps: first for all rows, then for rows [first, last).
  HWY_INLINE void BeginColumn(int64_t key, float* column) {
    if (every_row_ || !item_.all_visible) {
      for (int64_t r = 0; r < item_.rows; ++r) ApplyRulesTo(r, {key, key + kColumn}, column + r * kColumn);
    }
    if (unseen_ != 0) TakeFirstBases(column);
  }
  HWY_INLINE void RunRows(int64_t key, const float* column, int64_t first, int64_t last) {
    const float factor = scale_ * kLog2E;
    const float* s = column + first * kColumn;
    float* of_chunk = parts_.sums + first * kChunkSums;
    BFloat16* weights = parts_.weights + first * kWeightStride<kParts> + key - item_.keys.first;
    for (int64_t r = first; r < last;
         ++r, s += kColumn, of_chunk += kChunkSums, weights += kWeightStride<kParts>) {
      ChunkSums sums;
      sums.weights = _mm512_load_ps(of_chunk);
      if constexpr (kSums == RowSums::kExact) sums.exact = _mm512_load_ps(of_chunk + 16);
      ExpRow<kSums, kParts>(s, kColumn, factor, shift_[r], weights, sums);
      _mm512_store_ps(of_chunk, sums.weights);
      if constexpr (kSums == RowSums::kExact) _mm512_store_ps(of_chunk + 16, sums.exact);
    }
  }

  // Adds the columns' sums, except of rows that need a new base: any_rebase() says whether there are such.
  void EndColumns() {
    const __m512i large = _mm512_castps_si512(_mm512_set1_ps(kLargestSum<kParts>));
    for (int64_t r = 0; r < item_.rows; ++r) {
      const ChunkSums sums = LoadSums(chunk_sums(r));
      // NaN and infinity have larger bits than any number.
      if (_mm512_cmpgt_epu32_mask(_mm512_castps_si512(sums.weights), large) != 0) rebase_ |= 1u << r;
      if (((rebase_ >> r) & 1) == 0) AddSums(r, sums);
    }
  }

  // The rows that need it get the base that the scores of the whole chunk ask for.
  void Rebase() {
    for (int64_t r = 0; r < item_.rows; ++r) {
      if (((rebase_ >> r) & 1) == 0) continue;
      ApplyRulesTo(r, item_.keys, parts_.scores + r * kScores);
      RebaseRow(r, parts_.scores + r * kScores);
    }
  }

 private:
  // A base can be used as it is where it is a number of moderate size, and nothing is dropped.
  void SetShifts() {
    const __m512 largest = _mm512_set1_ps(kLargestBase), log2e = _mm512_set1_ps(kLog2E);
    uint32_t usable = 0, unseen = 0;
    for (int64_t r = 0; r < kPairGroupRows; r += 16) {
      const __m512 base = _mm512_loadu_ps(sums_.max + item_.row + r);
      const __mmask16 moderate = _mm512_cmp_ps_mask(_mm512_abs_ps(base), largest, _CMP_LE_OQ);
      _mm512_store_ps(shift_ + r, _mm512_maskz_mul_ps(moderate, base, log2e));
      const __mmask16 blocked = _mm512_cmp_ps_mask(base, _mm512_set1_ps(kBlocked), _CMP_EQ_OQ);
      usable |= static_cast<uint32_t>(moderate) << r;
      unseen |= static_cast<uint32_t>(blocked) << r;
    }
    unseen_ = block_.rules->dropout ? 0 : unseen & all_rows();
    rebase_ = (block_.rules->dropout ? ~0u : ~usable) & all_rows();
  }

  // Rows that have seen no key yet get a base from a column's scores. Until then their weights are zero.
  void TakeFirstBases(const float* column) {
    for (int64_t r = 0; r < item_.rows; ++r) {
      if (((unseen_ >> r) & 1) == 0) continue;
      const float largest = MaxOf(column + r * kColumn, kColumn) * scale_;
      if (!(std::abs(largest) <= kLargestBase)) continue;
      sums_.max[item_.row + r] = largest;
      shift_[r] = largest * kLog2E;
      rebase_ &= ~(1u << r);
      unseen_ &= ~(1u << r);
    }
  }

  // Queries of triples are scaled when they are packed.
  float scale_of_products() const { return kParts == 1 ? static_cast<float>(block_.layout->scale) : 1.0f; }
  uint32_t all_rows() const { return ~0u >> (kPairGroupRows - item_.rows); }
  int64_t count() const { return item_.keys.last - item_.keys.first; }
  float* row(int64_t r) { return sums_.out + (item_.row + r) * stride_; }
  BFloat16* weights(int64_t r) { return parts_.weights + r * kWeightStride<kParts>; }
  float* chunk_sums(int64_t r) { return parts_.sums + r * kChunkSums; }

  HWY_INLINE void AddSums(int64_t r, const ChunkSums& sums) {
    float* to = row(r) + channels_;
    _mm512_storeu_ps(to, _mm512_add_ps(_mm512_loadu_ps(to), sums.weights));
    if constexpr (kSums == RowSums::kExact) {
      _mm512_storeu_ps(to + 16, _mm512_add_ps(_mm512_loadu_ps(to + 16), sums.exact));
    }
  }

  // keys: relative to the tile; s: their products.
  HWY_INLINE void ApplyRulesTo(int64_t r, Range keys, float* s) {
    const Row& at = block_.rows[item_.row + r];
    const int64_t first = tile_.first + keys.first, last = tile_.first + keys.last;
    if (HWY_LIKELY(!every_row_ && at.first <= first && last <= at.last)) return;
    if (scale_first_ && kParts == 1) ScaleRow(scale_of_products(), s, keys.last - keys.first);
    const Range range = {std::clamp(at.first - tile_.first, keys.first, keys.last),
                         std::clamp(at.last - tile_.first, keys.first, keys.last)};
    ApplyRulesWithin(*block_.rules, at, tile_.first, range, keys, s - keys.first);
  }

  // Also the way of rows whose base is too large for ExpRow's one multiplication, which have their scores
  // brought down first, and of dropout.
  HWY_NOINLINE void RebaseRow(int64_t r, float* s) {
    float& base = sums_.max[item_.row + r];
    const float largest = MaxOf(s, count()) * scale_;
    if (largest != kBlocked && !(largest <= base)) {  // greater, or NaN
      if (base != kBlocked) ScaleRow(Rescale(base, largest), row(r), stride_);
      base = largest;
    }
    ChunkSums sums = {_mm512_setzero_ps(), _mm512_setzero_ps()};
    if (base == kBlocked) {  // it has seen nothing yet
      std::fill_n(weights(r), kWeightStride<kParts>, BFloat16{});
    } else if (std::abs(base) <= kLargestBase) {
      ExpRow<kSums, kParts>(s, count(), scale_ * kLog2E, base * kLog2E, weights(r), sums);
    } else {
      for (int64_t j = 0; j < count(); ++j) s[j] = s[j] * scale_ - base;
      ExpRow<kSums, kParts>(s, count(), kLog2E, 0.0f, weights(r), sums);
    }
    if (block_.rules->dropout) Drop(r);
    AddSums(r, sums);
  }

  void Drop(int64_t r) {
    HWY_ALIGN float p[kPairChunk];
    for (int64_t j = 0; j < count(); ++j) p[j] = ToFloat(weights(r)[j]);
    DropWeights(*block_.rules, block_.rows[item_.row + r], tile_.first, item_.keys, p - item_.keys.first);
    for (int64_t j = 0; j < count(); ++j) weights(r)[j] = ToBFloat16(p[j]);
  }

  const Block& block_;
  const KeyTile& tile_;
  const Item& item_;
  const Parts<kParts>& parts_;
  Sums sums_;
  int64_t stride_, channels_;
  float scale_;
  bool scale_first_, every_row_;
  uint32_t rebase_ = 0;                      // bit r: row r needs a new base
  uint32_t unseen_ = 0;                      // bit r: row r has seen no key
  alignas(64) float shift_[kPairGroupRows];  // of the exponents
};

}  // namespace HWY_NAMESPACE
}  // namespace qkv
HWY_POP_ATTRIBUTES

#endif  // include guard
