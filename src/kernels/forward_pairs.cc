// The fused forward for bfloat16 on processors that multiply pairs. Loops: block of rows > split of keys > tile
// of keys > group of 32 rows > chunk of 128 keys > column of 32 keys. The scores of a column, 4 KiB, become
// weights before the next column's are multiplied: what goes from one kind of unit to the other stays in the
// first-level cache.
//
// Scores, sums and the output are float32; weights are rounded to bfloat16 for the second multiplication. A
// row's weights are exp(s - base). Its base is the largest score of the first column that shows it a key, and
// stays until the weights of a chunk would pass 2^10: there is no search for the maximum in most chunks. A row
// that needs a new base gets it, and its weights, from the scores of the whole chunk, made again. All of it
// depends on the row alone.
#include <algorithm>
#include <cfloat>
#include <cmath>
#include <cstdint>

#include "kernels/load.h"
#include "kernels/pairs.h"
#include "kernels/phase.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/forward_pairs.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h.
#include "hwy/highway.h"

#if HWY_TARGET == HWY_AVX3
#include "kernels/math-inl.h"
#include "kernels/pack_pairs-inl.h"
#include "kernels/pair_power-inl.h"
#include "kernels/pair_products-inl.h"
#include "kernels/score-inl.h"
#include "kernels/transpose-inl.h"
#include "kernels/weights-inl.h"

HWY_PUSH_ATTRIBUTES(HWY_TARGET_STR ",avx512bf16")
namespace qkv {
namespace HWY_NAMESPACE {
namespace {

constexpr int64_t kColumn = 2 * kPairColumns;  // keys whose scores are made together
constexpr int64_t kScores =
    kPairChunk + 16;  // floats from a row of a chunk's scores to the next: off powers of two
constexpr int64_t kWeights = kPairChunk + 32;  // the same of its weights
constexpr int64_t kChunkSums = 2 * 16;         // of a row: of the weights, and of the exact exponentials
constexpr int64_t kNearKeys = 64;  // streamed keys that are multiplied at a time: 16 KiB of 128 channels

// A row of Sums::out: the channels, then 16 partial sums of the weights that multiplied them, then 16 of the
// exact exponentials, kept where somebody asked for them.
int64_t Channels(const Layout& layout) { return PaddedWidth(layout.dv, kPairDepth); }
int64_t OutStride(const Layout& layout) { return Channels(layout) + 2 * 16; }
int64_t Depth(const Layout& layout) { return PaddedWidth(layout.d, kPairDepth); }

// The scratch memory's parts.
struct Parts {
  BFloat16* queries;  // (rows, Depth), as they came
  float* column;      // (group rows, kColumn): scores
  float* scores;      // (group rows, kScores): those of a whole chunk, for rows that get a new base
  float* sums;        // (group rows, kChunkSums)
  BFloat16* weights;  // (group rows, kWeights)

  explicit Parts(Scratch& scratch)
      : queries(reinterpret_cast<BFloat16*>(scratch.queries())),
        column(scratch.scores()),
        scores(column + kPairGroupRows * kColumn),
        sums(scores + kPairGroupRows * kScores),
        weights(reinterpret_cast<BFloat16*>(sums + kPairGroupRows * kChunkSums)) {}

  static constexpr int64_t kFloats = kPairGroupRows * (kColumn + kScores + kChunkSums + kWeights / 2);
};

ScratchSizes SizesOf(int64_t rows, const Layout& layout) noexcept {
  const int64_t whole = PaddedWidth(rows, kPairGroupRows);
  const int64_t streamed =
      rows <= kStreamedRows ? kPairDepth * Depth(layout) + kNearKeys * Channels(layout) / 2 : 0;
  return {whole, whole * Depth(layout) / 2, Parts::kFloats, OutStride(layout), streamed};
}

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

// S = Q K^T of an item's rows and kColumn keys, from `key` on.
template <class Products>
HWY_INLINE void MultiplyColumn(const Block& block, const KeyTile& tile, const Item& item, int64_t key,
                               const Parts& parts, float* scores, int64_t stride, Products& products) {
  const int64_t depth = Depth(*block.layout), steps = depth / kPairDepth, group = steps * kPairTile;
  const BFloat16* b = reinterpret_cast<const BFloat16*>(tile.keys) + key / kPairColumns * group;
  products.Run({parts.queries + item.row * depth,
                depth,
                {b, b + group},
                scores,
                stride,
                item.rows,
                steps,
                Start::kZero});
}

// O += P V of an item.
template <class Products>
HWY_INLINE void AddValues(const Block& block, const KeyTile& tile, const Item& item, const BFloat16* weights,
                          float* out, Products& products) {
  constexpr int64_t kGroup = kKeyTile / kPairDepth * kPairTile;  // from 16 channels to the next
  const int64_t stride = OutStride(*block.layout), steps = (item.keys.last - item.keys.first) / kPairDepth;
  const BFloat16* values = reinterpret_cast<const BFloat16*>(tile.values) + item.keys.first * kPairColumns;
  for (int64_t c = 0; c < block.layout->dv; c += 2 * kPairColumns) {
    const BFloat16* b = values + c / kPairColumns * kGroup;
    products.Run({weights,
                  kWeights,
                  {b, b + kGroup},
                  out + item.row * stride + c,
                  stride,
                  item.rows,
                  steps,
                  Start::kAdd});
  }
}

// A row's 16 partial sums over a chunk.
struct ChunkSums {
  __m512 weights, exact;
};

HWY_INLINE ChunkSums LoadSums(const float* from) { return {_mm512_loadu_ps(from), _mm512_loadu_ps(from + 16)}; }

HWY_INLINE void StoreSums(const ChunkSums& sums, float* to) {
  _mm512_storeu_ps(to, sums.weights);
  _mm512_storeu_ps(to + 16, sums.exact);
}

// weights = 2^(s * factor - shift), rounded; adds them to the sums. count: a multiple of 32.
template <RowSums kSums>
HWY_INLINE void ExpRow(const float* s, int64_t count, float factor, float shift, BFloat16* weights,
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

// exp(from - to), for what counts under the base `from` to count under `to`.
float Rescale(float from, float to) {
  if (from == to) return 1.0f;
  return hn::GetLane(Exp2(F32(), hn::Set(F32(), static_cast<float>(LogOfBase(from) - LogOfBase(to)))));
}

void ScaleRow(float factor, float* row, int64_t width) {
  const __m512 f = _mm512_set1_ps(factor);
  for (int64_t c = 0; c < width; c += 16) _mm512_storeu_ps(row + c, _mm512_mul_ps(_mm512_loadu_ps(row + c), f));
}

float MaxOf(const float* s, int64_t count) {
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
template <RowSums kSums>
class ItemSoftmax {
 public:
  ItemSoftmax(const Block& block, const KeyTile& tile, const Item& item, const Parts& parts, const Sums& sums)
      : block_(block),
        tile_(tile),
        item_(item),
        parts_(parts),
        sums_(sums),
        stride_(OutStride(*block.layout)),
        channels_(Channels(*block.layout)) {
    const ScoreRules& rules = *block.rules;
    const float scale = static_cast<float>(block.layout->scale);
    // Rules on scores want them scaled; and a largest product is a largest score where the scale is positive.
    scale_first_ = rules.softcap || rules.has_alibi || rules.has_bias || !(scale > 0);
    scale_ = scale_first_ ? 1.0f : scale;
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
    if (every_row_ || !item_.all_visible) {
      for (int64_t r = 0; r < item_.rows; ++r)
        ApplyRulesTo(r, {key, key + kColumn}, parts_.column + r * kColumn);
    }
    if (unseen_ != 0) TakeFirstBases();
    const float factor = scale_ * kLog2E;
    const float* s = parts_.column;
    float* of_chunk = parts_.sums;
    BFloat16* weights = parts_.weights + key - item_.keys.first;
    for (int64_t r = 0; r < item_.rows; ++r, s += kColumn, of_chunk += kChunkSums, weights += kWeights) {
      ChunkSums sums;
      sums.weights = _mm512_load_ps(of_chunk);
      if constexpr (kSums == RowSums::kExact) sums.exact = _mm512_load_ps(of_chunk + 16);
      ExpRow<kSums>(s, kColumn, factor, shift_[r], weights, sums);
      _mm512_store_ps(of_chunk, sums.weights);
      if constexpr (kSums == RowSums::kExact) _mm512_store_ps(of_chunk + 16, sums.exact);
    }
  }

  // Adds the columns' sums, except of rows that need a new base: any_rebase() says whether there are such.
  void EndColumns() {
    const __m512i large = _mm512_castps_si512(_mm512_set1_ps(1024.0f));
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
  void TakeFirstBases() {
    for (int64_t r = 0; r < item_.rows; ++r) {
      if (((unseen_ >> r) & 1) == 0) continue;
      const float largest = MaxOf(parts_.column + r * kColumn, kColumn) * scale_;
      if (!(std::abs(largest) <= kLargestBase)) continue;
      sums_.max[item_.row + r] = largest;
      shift_[r] = largest * kLog2E;
      rebase_ &= ~(1u << r);
      unseen_ &= ~(1u << r);
    }
  }

  uint32_t all_rows() const { return ~0u >> (kPairGroupRows - item_.rows); }
  int64_t count() const { return item_.keys.last - item_.keys.first; }
  float* row(int64_t r) { return sums_.out + (item_.row + r) * stride_; }
  BFloat16* weights(int64_t r) { return parts_.weights + r * kWeights; }
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
    if (scale_first_) ScaleRow(static_cast<float>(block_.layout->scale), s, keys.last - keys.first);
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
      std::fill_n(weights(r), count(), BFloat16{});
    } else if (std::abs(base) <= kLargestBase) {
      ExpRow<kSums>(s, count(), scale_ * kLog2E, base * kLog2E, weights(r), sums);
    } else {
      for (int64_t j = 0; j < count(); ++j) s[j] = s[j] * scale_ - base;
      ExpRow<kSums>(s, count(), kLog2E, 0.0f, weights(r), sums);
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
  const Parts& parts_;
  Sums sums_;
  int64_t stride_, channels_;
  float scale_;
  bool scale_first_, every_row_;
  uint32_t rebase_ = 0;                      // bit r: row r needs a new base
  uint32_t unseen_ = 0;                      // bit r: row r has seen no key
  alignas(64) float shift_[kPairGroupRows];  // of the exponents
};

template <RowSums kSums, class Products>
void AddItem(const Block& block, const KeyTile& tile, const Item& item, Scratch& scratch, Products& products) {
  const Parts parts(scratch);
  const Sums sums = scratch.split();
  ItemSoftmax<kSums> softmax(block, tile, item, parts, sums);
  for (int64_t key = item.keys.first; key < item.keys.last; key += kColumn) {
    MultiplyColumn(block, tile, item, key, parts, parts.column, kColumn, products);
    softmax.RunColumn(key);
  }
  softmax.EndColumns();
  if (softmax.any_rebase()) {
    for (int64_t key = item.keys.first; key < item.keys.last; key += kColumn) {
      MultiplyColumn(block, tile, item, key, parts, parts.scores + key - item.keys.first, kScores, products);
    }
    softmax.Rebase();
  }
  AddValues(block, tile, item, parts.weights, sums.out, products);
  if (tile.finite == Values::kFinite) return;
  AddNotFinite({block, item.row, item.rows}, tile.first, item.keys, sums.out, OutStride(*block.layout),
               [&](int64_t r, int64_t j) {
                 return ToFloat(parts.weights[(r - item.row) * kWeights + j - item.keys.first]);
               });
}

template <class Products>
void AddTile(const Block& block, const KeyTile& tile, Scratch& scratch) noexcept {
  const PhaseTimer timer(Phase::kSoftmax);  // and both multiplications, which are not apart from it
  const Items items(block, tile.first);
  if (items.count == 0) return;
  const bool exact = block.layout->row_sums == RowSums::kExact;
  Products products;
  for (int64_t i = 0; i < items.count; ++i) {
    if (exact)
      AddItem<RowSums::kExact>(block, tile, items.item[i], scratch, products);
    else
      AddItem<RowSums::kForOutput>(block, tile, items.item[i], scratch, products);
  }
}

// Scores (16 keys, 16 rows) into rows kScores apart.
void TurnScores(const float* by_key, int64_t rows, float* scores) {
  const float* from[16];
  for (int64_t i = 0; i < 16; ++i) from[i] = by_key + i * 16;
  VecF32 turned[16];
  TurnSquare(from, 0, turned);
  for (int64_t r = 0; r < rows; ++r) hn::StoreU(turned[r], F32(), scores + r * kScores);
}

// What a streamed tile works with: its rows in pair tiles, and a few packed keys or values.
struct Streamed {
  BFloat16 *rows, *packed;
};

// Whether keys first ... first + count - 1 can be read where they lie, a fixed distance from each to the next.
bool LieEvenly(const Strided& from, int64_t first, int64_t count, int64_t d) {
  if (d % kPairDepth != 0 || from.channel != 1) return false;
  return from.table == nullptr || first % from.table->keys_per_page + count <= from.table->keys_per_page;
}

// Scores of `count` keys, 32 or 64, that lie evenly.
template <int kTiles, class Products>
void ScoreInPlace(const Strided& k, int64_t first, const Streamed& streamed, int64_t steps, int64_t rows,
                  float* scores, Products& products) {
  HWY_ALIGN float by_key[kTiles * 16 * 16];
  products.template MultiplyKeys<kTiles>(k.Key<BFloat16>(first), k.Key<BFloat16>(first + kTiles * 16), k.key,
                                         streamed.rows, steps, by_key);
  for (int64_t n = 0; n < kTiles; ++n) TurnScores(by_key + n * 16 * 16, rows, scores + n * 16);
}

// S = Q K^T of an item of at most 16 rows, from the keys as they lie, or packed a few at a time just before
// they are multiplied.
template <class Products>
void StreamScores(const Block& block, int64_t tile_first, const Item& item, const Parts& parts, float* scores,
                  const Streamed& streamed, Products& products) {
  const Strided& k = block.key_values->k;
  const int64_t depth = Depth(*block.layout), steps = depth / kPairDepth, length = block.key_values->length;
  int64_t some = 0;
  for (int64_t key = item.keys.first; key < item.keys.last; key += some, scores += some) {
    const int64_t first = tile_first + key;
    some = std::min(kNearKeys, item.keys.last - key) / kNearKeys * kPairDepth + kPairDepth;
    if constexpr (Products::kReadsKeys) {
      if (first + some <= length && LieEvenly(k, first, some, block.layout->d)) {
        if (some == kNearKeys)
          ScoreInPlace<4>(k, first, streamed, steps, item.rows, scores, products);
        else
          ScoreInPlace<2>(k, first, streamed, steps, item.rows, scores, products);
        continue;
      }
    }
    some = kPairDepth;
    PackPairKeys(k, first, std::min(some, length - first), block.layout->d, streamed.packed);
    products.Run({parts.queries,
                  depth,
                  {streamed.packed, streamed.packed + steps * kPairTile},
                  scores,
                  kScores,
                  item.rows,
                  steps,
                  Start::kZero});
  }
}

// O += P V of packed values.
template <class Products>
void AddPacked(const Item& item, const BFloat16* weights, const BFloat16* packed, int64_t steps,
               int64_t channels, float* out, int64_t stride, Products& products) {
  constexpr int64_t kGroup = kNearKeys * kPairColumns;
  int64_t c = 0;
  if constexpr (Products::kReadsKeys) {
    for (; c + 64 <= channels; c += 64) {
      products.template AddValues<4>(weights, kWeights, packed + c * kNearKeys, kGroup, steps, out + c, stride);
    }
    if (c == channels) return;
    products.template AddValues<2>(weights, kWeights, packed + c * kNearKeys, kGroup, steps, out + c, stride);
  } else {
    for (; c < channels; c += 2 * kPairColumns) {
      const BFloat16* b = packed + c * kNearKeys;
      products.Run({weights, kWeights, {b, b + kGroup}, out + c, stride, item.rows, steps, Start::kAdd});
    }
  }
}

// O += P V of an item, values packed a few at a time.
template <class Products>
void StreamValues(const Block& block, int64_t tile_first, const Item& item, const BFloat16* weights, float* out,
                  BFloat16* packed, Products& products) {
  const KeyValues& from = *block.key_values;
  const int64_t stride = OutStride(*block.layout);
  Values finite = Values::kFinite;
  for (int64_t key = item.keys.first; key < item.keys.last; key += kNearKeys) {
    const int64_t keys = std::min(kNearKeys, item.keys.last - key), first = tile_first + key;
    const Values some = PackPairValues(from.v, first, std::min(keys, from.length - first), block.layout->dv,
                                       packed, kNearKeys * kPairColumns);
    if (some == Values::kSomeNotFinite) finite = some;
    AddPacked(item, weights + key - item.keys.first, packed, keys / kPairDepth, Channels(*block.layout), out,
              stride, products);
  }
  if (finite == Values::kFinite) return;
  AddNotFinite({block, item.row, item.rows}, tile_first, item.keys, out, stride, [&](int64_t r, int64_t j) {
    return ToFloat(weights[(r - item.row) * kWeights + j - item.keys.first]);
  });
}

template <RowSums kSums, class Products>
void StreamItems(const Block& block, int64_t tile_first, const Items& items, Scratch& scratch) {
  const Parts parts(scratch);
  const Sums sums = scratch.split();
  const KeyTile tile = {tile_first, nullptr, nullptr, Values::kFinite};
  const int64_t depth = Depth(*block.layout);
  BFloat16* memory = reinterpret_cast<BFloat16*>(scratch.streamed());
  const Streamed streamed = {memory, memory + kPairDepth * depth};
  PackPairKeys({parts.queries, DType::kBF16, depth, 1}, 0, kStreamedRows, depth, streamed.rows);
  Products products;
  for (int64_t i = 0; i < items.count; ++i) {
    const Item& item = items.item[i];
    ItemSoftmax<kSums> softmax(block, tile, item, parts, sums);
    StreamScores(block, tile_first, item, parts, parts.scores, streamed, products);
    for (int64_t key = item.keys.first; key < item.keys.last; key += kColumn) {
      softmax.TakeColumn(key);
      softmax.RunColumn(key);
    }
    softmax.EndColumns();
    if (softmax.any_rebase()) softmax.Rebase();
    StreamValues(block, tile_first, item, parts.weights, sums.out, streamed.packed, products);
  }
}

template <class Products>
void StreamTile(const Block& block, int64_t tile_first, Scratch& scratch) noexcept {
  const PhaseTimer timer(Phase::kSoftmax);
  const auto stream = block.layout->row_sums == RowSums::kExact ? &StreamItems<RowSums::kExact, Products>
                                                                : &StreamItems<RowSums::kForOutput, Products>;
  stream(block, tile_first, Items(block, tile_first), scratch);
}

// exp(s - s) as a row whose base is s has it: 1, but for the rounding of the base.
float ExpOfBase(float s) {
  if (!(std::abs(s) <= kLargestBase)) return 1.0f;
  return hn::GetLane(RowExp(s)(F32(), hn::Set(F32(), s)));
}

void PackQueries(const Block& block, BFloat16* to) {
  const Layout& layout = *block.layout;
  const int64_t depth = Depth(layout);
  for (int64_t r = 0; r < PaddedWidth(block.count, 16); ++r, to += depth) {
    std::fill_n(to, depth, BFloat16{});
    if (r >= block.count) continue;
    const BFloat16* q = static_cast<const BFloat16*>(block.rows[r].q);
    if (layout.q_channel == 1)
      std::copy_n(q, layout.d, to);
    else
      for (int64_t c = 0; c < layout.d; ++c) to[c] = q[c * layout.q_channel];
  }
}

void Begin(const Block& block, Scratch& scratch) noexcept {
  const PhaseTimer timer(Phase::kRows);
  const int64_t stride = scratch.out_stride(), channels = Channels(*block.layout);
  PackQueries(block, Parts(scratch).queries);
  const Sums total = scratch.total();
  for (int64_t r = 0; r < block.count; ++r) {
    const float* sink = block.rows[r].sink;
    total.max[r] = sink == nullptr ? kBlocked : *sink;
    if (total.max[r] == kBlocked) continue;
    std::fill_n(total.out + r * stride, stride, 0.0f);
    float* sums = total.out + r * stride + channels;
    sums[0] = sums[16] = ExpOfBase(total.max[r]);
  }
}

void BeginSplit(const Block& block, Scratch& scratch) noexcept {
  const Sums split = scratch.split();
  std::fill_n(split.max, block.count, kBlocked);
  std::fill_n(split.sum, block.count, 0.0f);
  std::fill_n(split.out, PaddedWidth(block.count, 16) * scratch.out_stride(), 0.0f);
}

void Merge(const Block& block, const Sums& from, Scratch& scratch) noexcept {
  const PhaseTimer timer(Phase::kMerge);
  const Sums total = scratch.total();
  const int64_t stride = scratch.out_stride();
  for (int64_t r = 0; r < block.count; ++r) {
    if (from.max[r] == kBlocked) continue;
    if (total.max[r] == kBlocked) {
      total.max[r] = from.max[r];
      std::copy_n(from.out + r * stride, stride, total.out + r * stride);
      continue;
    }
    const float max = !(from.max[r] <= total.max[r]) ? from.max[r] : total.max[r];
    const __m512 keep = _mm512_set1_ps(Rescale(total.max[r], max)),
                 add = _mm512_set1_ps(Rescale(from.max[r], max));
    total.max[r] = max;
    for (int64_t c = r * stride; c < (r + 1) * stride; c += 16) {
      const __m512 kept = _mm512_mul_ps(_mm512_loadu_ps(total.out + c), keep);
      _mm512_storeu_ps(total.out + c, _mm512_fmadd_ps(_mm512_loadu_ps(from.out + c), add, kept));
    }
  }
}

void StoreRow(const float* from, const Layout& layout, BFloat16* to) {
  if (layout.out_channel != 1) {
    for (int64_t c = 0; c < layout.dv; ++c) to[c * layout.out_channel] = ToBFloat16(from[c]);
    return;
  }
  for (int64_t c = 0; c < layout.dv; c += 16) {
    const __m256bh rounded = _mm512_cvtneps_pbh(_mm512_loadu_ps(from + c));
    __m256i bits;
    std::memcpy(&bits, &rounded, sizeof(bits));
    const int64_t left = layout.dv - c;
    _mm256_mask_storeu_epi16(to + c, static_cast<__mmask16>(left >= 16 ? 0xffff : (1 << left) - 1), bits);
  }
}

void Finish(const Block& block, const Sums& total, Scratch& scratch) noexcept {
  const PhaseTimer timer(Phase::kRows);
  const Layout& layout = *block.layout;
  const int64_t stride = scratch.out_stride(), channels = Channels(layout);
  for (int64_t r = 0; r < block.count; ++r) {
    const Row& row = block.rows[r];
    float* out = total.out + r * stride;
    const bool blocked = total.max[r] == kBlocked;
    const float of_weights = _mm512_reduce_add_ps(_mm512_loadu_ps(out + channels));
    if (blocked)
      std::fill_n(out, channels, 0.0f);
    else
      ScaleRow(1.0f / of_weights, out, channels);
    StoreRow(out, layout, static_cast<BFloat16*>(row.out));
    if (layout.row_sums != RowSums::kExact) continue;
    // The output of a blocked row was never written.
    total.sum[r] = blocked ? 0.0f : _mm512_reduce_add_ps(_mm512_loadu_ps(out + channels + 16));
    // The base's rounding, common to all terms of the sum, is taken out: one visible key gives its score
    // exactly.
    if (row.lse != nullptr) {
      *row.lse = blocked ? kBlocked : total.max[r] + std::log(total.sum[r] / ExpOfBase(total.max[r]));
    }
  }
}

template <class Products>
ForwardKernels Table() {
  return {&SizesOf, &Begin,  &BeginSplit,   &AddTile<Products>, &StreamTile<Products>,
          &Merge,   &Finish, kPairGroupRows};
}

}  // namespace

ForwardKernels TileTable() { return Table<TileProducts>(); }
ForwardKernels DotTable() { return Table<DotProducts>(); }

}  // namespace HWY_NAMESPACE
}  // namespace qkv
HWY_POP_ATTRIBUTES
#endif  // AVX-512

#if HWY_ONCE
namespace qkv {
#if HWY_TARGETS & HWY_AVX3
bool HasPairKernels(Isa isa) { return isa == Isa::kAvx512Bf16 || isa == Isa::kAmx; }
ForwardKernels PairForwardKernelsFor(Isa isa) {
  return isa == Isa::kAmx ? N_AVX3::TileTable() : N_AVX3::DotTable();
}
#else
bool HasPairKernels(Isa) { return false; }
ForwardKernels PairForwardKernelsFor(Isa) { return {}; }
#endif
}  // namespace qkv
#endif
