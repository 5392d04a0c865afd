// The fused forward for bfloat16 on processors that multiply pairs. Loops: block of rows > split of keys > tile of keys
// > group of 32 rows > chunk of 128 keys. The multiplications of a chunk's neighbours run between the exponentials of
// its rows: S = Q K^T of the next chunk and O += P V of the one before, so that both kinds of units are busy.
//
// Scores, sums and the output are float32; weights are rounded to bfloat16 for the second multiplication. A row's
// weights are exp(s - base). Its base is the largest score of the first chunk that shows it a key, and stays until a
// weight would pass 2^10: there is no search for the maximum in most chunks. Which chunks those are depends on the row
// alone.
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
#include "kernels/pair_products-inl.h"
#include "kernels/score-inl.h"
#include "kernels/transpose-inl.h"
#include "kernels/weights-inl.h"

HWY_PUSH_ATTRIBUTES(HWY_TARGET_STR ",avx512bf16")
namespace qkv {
namespace HWY_NAMESPACE {
namespace {

constexpr int64_t kScores = kPairChunk + 16;   // floats from a row of a chunk's scores to the next: off powers of two
constexpr int64_t kWeights = kPairChunk + 32;  // the same of its weights
constexpr int64_t kNearKeys = 64;  // streamed keys that are multiplied at a time: 16 KiB of 128 channels
constexpr int64_t kGroupScores = kPairGroupRows * kScores;
constexpr int64_t kGroupWeights = kPairGroupRows * kWeights / 2;  // floats

// A row of Sums::out: the channels, then 16 partial sums of the weights that multiplied them, then 16 of the exact
// exponentials, kept where somebody asked for them.
int64_t Channels(const Layout& layout) { return PaddedWidth(layout.dv, kPairDepth); }
int64_t OutStride(const Layout& layout) { return Channels(layout) + 2 * 16; }
int64_t Depth(const Layout& layout) { return PaddedWidth(layout.d, kPairDepth); }

// The scratch memory's parts.
struct Parts {
  BFloat16* queries;     // (rows, Depth), as they came
  float* scores[2];      // of a group and chunk, in turns
  BFloat16* weights[2];

  explicit Parts(Scratch& scratch)
      : queries(reinterpret_cast<BFloat16*>(scratch.queries())),
        scores{scratch.scores(), scratch.scores() + kGroupScores} {
    float* rest = scratch.scores() + 2 * kGroupScores;
    for (int n = 0; n < 2; ++n) weights[n] = reinterpret_cast<BFloat16*>(rest + n * kGroupWeights);
  }
};

ScratchSizes SizesOf(int64_t rows, const Layout& layout) noexcept {
  const int64_t whole = PaddedWidth(rows, kPairGroupRows);
  const int64_t streamed = rows <= kStreamedRows ? kPairDepth * Depth(layout) + kNearKeys * Channels(layout) / 2 : 0;
  return {whole, whole * Depth(layout) / 2, 2 * kGroupScores + 2 * kGroupWeights, OutStride(layout), streamed};
}

// A group of rows and the part of a chunk that they see, in whole pair tiles; keys are relative to the tile.
struct Item {
  int64_t row, rows;
  Range keys;
};

struct Items {
  Item item[kMaxBlockRows / kPairGroupRows * kKeyTile / kPairChunk];
  int64_t count = 0;

  Items(const Block& block, int64_t tile_first) {
    for (int64_t row = 0; row < block.count; row += kPairGroupRows) {
      const int64_t rows = std::min(kPairGroupRows, block.count - row);
      const Range all = VisibleToAny(block.rows + row, rows, tile_first);
      for (int64_t chunk = all.first / kPairChunk * kPairChunk; chunk < all.last; chunk += kPairChunk) {
        const int64_t first = std::max(chunk, all.first / kPairDepth * kPairDepth);
        item[count++] = {row, rows, {first, std::min(chunk + kPairChunk, PaddedWidth(all.last, kPairDepth))}};
      }
    }
  }
};

// S = Q K^T of an item.
template <class Products>
void AddScores(const Block& block, const KeyTile& tile, const Item& item, const Parts& parts, float* scores,
               Products& products) {
  const int64_t depth = Depth(*block.layout), steps = depth / kPairDepth, group = steps * kPairTile;
  const BFloat16* keys = reinterpret_cast<const BFloat16*>(tile.keys);
  for (int64_t key = item.keys.first; key < item.keys.last; key += 2 * kPairColumns) {
    const BFloat16* b = keys + key / kPairColumns * group;
    AddProduct(products, {parts.queries + item.row * depth,
                          depth,
                          {b, b + group},
                          scores + key - item.keys.first,
                          kScores,
                          item.rows,
                          steps,
                          Start::kZero});
  }
}

// O += P V of an item.
template <class Products>
void AddValues(const Block& block, const KeyTile& tile, const Item& item, const BFloat16* weights, float* out,
               Products& products) {
  constexpr int64_t kGroup = kKeyTile / kPairDepth * kPairTile;  // from 16 channels to the next
  const int64_t stride = OutStride(*block.layout), steps = (item.keys.last - item.keys.first) / kPairDepth;
  const BFloat16* values = reinterpret_cast<const BFloat16*>(tile.values) + item.keys.first * kPairColumns;
  for (int64_t c = 0; c < block.layout->dv; c += 2 * kPairColumns) {
    const BFloat16* b = values + c / kPairColumns * kGroup;
    AddProduct(products, {weights,
                          kWeights,
                          {b, b + kGroup},
                          out + item.row * stride + c,
                          stride,
                          item.rows,
                          steps,
                          Start::kAdd});
  }
}

// 2^f on [0, 1), by least maximum relative error: 7.5e-5, an eighth of a weight's rounding to bfloat16.
HWY_INLINE __m512 PowerForWeight(__m512 f) {
  __m512 p = _mm512_set1_ps(7.802452264e-2f);
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(2.260671558e-1f));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(6.958335405e-1f));
  return _mm512_fmadd_ps(p, f, _mm512_set1_ps(9.999252186e-1f));
}

// The same within 7.5e-8, for sums that become a log-sum-exp.
HWY_INLINE __m512 PowerForSum(__m512 f) {
  __m512 p = _mm512_set1_ps(1.877576675e-3f);
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(8.989340091e-3f));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(5.582631805e-2f));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(2.401536170e-1f));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(6.931530732e-1f));
  return _mm512_fmadd_ps(p, f, _mm512_set1_ps(9.999999251e-1f));
}

// A row's 16 partial sums over a chunk.
struct ChunkSums {
  __m512 weights, exact;
};

constexpr int kFloor = 9;  // vreduceps' rounding: down, to whole numbers, without exceptions

// weights = 2^(s * factor - shift), rounded, and their sums. count: a multiple of 32.
template <RowSums kSums>
HWY_INLINE ChunkSums ExpRow(const float* s, int64_t count, float factor, float shift, BFloat16* weights) {
  const __m512 factors = _mm512_set1_ps(factor), shifts = _mm512_set1_ps(shift);
  ChunkSums sums = {_mm512_setzero_ps(), _mm512_setzero_ps()};
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
  return sums;
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
template <RowSums kSums> class ItemSoftmax {
 public:
  ItemSoftmax(const Block& block, const KeyTile& tile, const Item& item, float* scores, BFloat16* weights,
              const Sums& sums)
      : block_(block), tile_(tile), item_(item), scores_(scores), weights_(weights), sums_(sums),
        stride_(OutStride(*block.layout)), channels_(Channels(*block.layout)) {
    const ScoreRules& rules = *block.rules;
    const float scale = static_cast<float>(block.layout->scale);
    // Rules on scores want them scaled; and a largest product is a largest score where the scale is positive.
    scale_first_ = rules.softcap || rules.has_alibi || rules.has_bias || !(scale > 0);
    scale_ = scale_first_ ? 1.0f : scale;
    every_row_ = rules.has_mask || scale_first_;
  }

  // Row r of the group: scores become weights, and the split's sums grow.
  HWY_INLINE void Run(int64_t r) {
    float* s = scores_ + r * kScores;
    ApplyRulesTo(r, s);
    const float base = sums_.max[item_.row + r];
    if (HWY_UNLIKELY(!(std::abs(base) <= kLargestBase) || block_.rules->dropout)) return Rebase(r, s);
    const ChunkSums sums = ExpRow<kSums>(s, count(), scale_ * kLog2E, base * kLog2E, weights(r));
    // NaN and infinity have larger bits than any number.
    const __m512i large = _mm512_castps_si512(_mm512_set1_ps(1024.0f));
    if (HWY_UNLIKELY(_mm512_cmpgt_epu32_mask(_mm512_castps_si512(sums.weights), large) != 0)) return Rebase(r, s);
    AddSums(r, sums);
  }

  // Brings the output up to the rows' new bases; the multiplications before this item must have ended.
  void ScaleOutput() {
    if (!rescale_) return;
    for (int64_t r = 0; r < item_.rows; ++r) {
      if (factor_[r] != 1.0f) ScaleRow(factor_[r], row(r), channels_);
    }
  }

 private:
  int64_t count() const { return item_.keys.last - item_.keys.first; }
  float* row(int64_t r) { return sums_.out + (item_.row + r) * stride_; }
  BFloat16* weights(int64_t r) { return weights_ + r * kWeights; }

  HWY_INLINE void AddSums(int64_t r, const ChunkSums& sums) {
    float* to = row(r) + channels_;
    _mm512_storeu_ps(to, _mm512_add_ps(_mm512_loadu_ps(to), sums.weights));
    if constexpr (kSums == RowSums::kExact) {
      _mm512_storeu_ps(to + 16, _mm512_add_ps(_mm512_loadu_ps(to + 16), sums.exact));
    }
  }

  HWY_INLINE void ApplyRulesTo(int64_t r, float* s) {
    const Row& at = block_.rows[item_.row + r];
    const int64_t first = tile_.first + item_.keys.first, last = tile_.first + item_.keys.last;
    if (HWY_LIKELY(!every_row_ && at.first <= first && last <= at.last)) return;
    if (scale_first_) ScaleRow(static_cast<float>(block_.layout->scale), s, count());
    const Range range = {std::clamp(at.first - tile_.first, item_.keys.first, item_.keys.last),
                         std::clamp(at.last - tile_.first, item_.keys.first, item_.keys.last)};
    ApplyRulesWithin(*block_.rules, at, tile_.first, range, item_.keys, s - item_.keys.first);
  }

  // The row gets the base that its scores ask for. Also the way of rows whose base is too large for ExpRow's one
  // multiplication, which have their scores brought down first, and of dropout.
  HWY_NOINLINE void Rebase(int64_t r, float* s) {
    float& base = sums_.max[item_.row + r];
    const float largest = MaxOf(s, count()) * scale_;
    if (largest != kBlocked && !(largest <= base)) {  // greater, or NaN
      if (base != kBlocked) SetFactor(r, Rescale(base, largest));
      base = largest;
    }
    ChunkSums sums = {_mm512_setzero_ps(), _mm512_setzero_ps()};
    if (base == kBlocked) {  // it has seen nothing yet
      std::fill_n(weights(r), count(), BFloat16{});
    } else if (std::abs(base) <= kLargestBase) {
      sums = ExpRow<kSums>(s, count(), scale_ * kLog2E, base * kLog2E, weights(r));
    } else {
      for (int64_t j = 0; j < count(); ++j) s[j] = s[j] * scale_ - base;
      sums = ExpRow<kSums>(s, count(), kLog2E, 0.0f, weights(r));
    }
    if (block_.rules->dropout) Drop(r);
    AddSums(r, sums);
  }

  void SetFactor(int64_t r, float factor) {
    if (!rescale_) std::fill_n(factor_, kPairGroupRows, 1.0f);
    rescale_ = true;
    factor_[r] = factor;
    ScaleRow(factor, row(r) + channels_, stride_ - channels_);
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
  float* scores_;
  BFloat16* weights_;
  Sums sums_;
  int64_t stride_, channels_;
  float scale_;
  bool scale_first_, every_row_, rescale_ = false;
  float factor_[kPairGroupRows];
};

// The softmax of `item`, with a share of the products after each row.
template <RowSums kSums, class Products>
void SoftmaxItem(const Block& block, const KeyTile& tile, const Item& item, float* scores, BFloat16* weights,
                 const Sums& sums, Products& products) {
  ItemSoftmax<kSums> softmax(block, tile, item, scores, weights, sums);
  int64_t due = 0;
  for (int64_t r = 0; r < item.rows; ++r) {
    softmax.Run(r);
    for (due += products.steps(); due >= item.rows; due -= item.rows) {
      if (!products.done()) products.Step();
    }
  }
  products.Finish();
  softmax.ScaleOutput();
  if (tile.finite == Values::kFinite) return;
  AddNotFinite({block, item.row, item.rows}, tile.first, item.keys, sums.out, OutStride(*block.layout),
               [&](int64_t r, int64_t j) { return ToFloat(weights[(r - item.row) * kWeights + j - item.keys.first]); });
}

template <RowSums kSums, class Products>
void AddItems(const Block& block, const KeyTile& tile, const Items& items, Scratch& scratch) {
  const Parts parts(scratch);
  const Sums sums = scratch.split();
  Products products;
  AddScores(block, tile, items.item[0], parts, parts.scores[0], products);
  products.Finish();
  for (int64_t i = 0; i < items.count; ++i) {
    if (i + 1 < items.count) {
      AddScores(block, tile, items.item[i + 1], parts, parts.scores[(i + 1) % 2], products);
    }
    if (i > 0) AddValues(block, tile, items.item[i - 1], parts.weights[(i - 1) % 2], sums.out, products);
    SoftmaxItem<kSums>(block, tile, items.item[i], parts.scores[i % 2], parts.weights[i % 2], sums, products);
  }
  AddValues(block, tile, items.item[items.count - 1], parts.weights[(items.count - 1) % 2], sums.out, products);
  products.Finish();
}

template <class Products> void AddTile(const Block& block, const KeyTile& tile, Scratch& scratch) noexcept {
  const PhaseTimer timer(Phase::kSoftmax);  // the multiplications run beside it
  const Items items(block, tile.first);
  if (items.count == 0) return;
  if (block.layout->row_sums == RowSums::kExact) AddItems<RowSums::kExact, Products>(block, tile, items, scratch);
  else AddItems<RowSums::kForOutput, Products>(block, tile, items, scratch);
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
void ScoreInPlace(const Strided& k, int64_t first, const Streamed& streamed, int64_t steps, int64_t rows, float* scores,
                  Products& products) {
  HWY_ALIGN float by_key[kTiles * 16 * 16];
  products.template MultiplyKeys<kTiles>(k.Key<BFloat16>(first), k.Key<BFloat16>(first + kTiles * 16), k.key,
                                         streamed.rows, steps, by_key);
  for (int64_t n = 0; n < kTiles; ++n) TurnScores(by_key + n * 16 * 16, rows, scores + n * 16);
}

// S = Q K^T of an item of at most 16 rows, from the keys as they lie, or packed a few at a time just before they are
// multiplied.
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
        if (some == kNearKeys) ScoreInPlace<4>(k, first, streamed, steps, item.rows, scores, products);
        else ScoreInPlace<2>(k, first, streamed, steps, item.rows, scores, products);
        continue;
      }
    }
    some = kPairDepth;
    PackPairKeys(k, first, std::min(some, length - first), block.layout->d, streamed.packed);
    products.Add({parts.queries, depth, {streamed.packed, streamed.packed + steps * kPairTile}, scores, kScores,
                  item.rows, steps, Start::kZero});
    products.Finish();
  }
}

// O += P V of packed values.
template <class Products>
void AddPacked(const Item& item, const BFloat16* weights, const BFloat16* packed, int64_t steps, int64_t channels,
               float* out, int64_t stride, Products& products) {
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
      products.Add({weights, kWeights, {b, b + kGroup}, out + c, stride, item.rows, steps, Start::kAdd});
      products.Finish();
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
    const Values some = PackPairValues(from.v, first, std::min(keys, from.length - first), block.layout->dv, packed,
                                       kNearKeys * kPairColumns);
    if (some == Values::kSomeNotFinite) finite = some;
    AddPacked(item, weights + key - item.keys.first, packed, keys / kPairDepth, Channels(*block.layout), out, stride,
              products);
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
    StreamScores(block, tile_first, item, parts, parts.scores[0], streamed, products);
    SoftmaxItem<kSums>(block, tile, item, parts.scores[0], parts.weights[0], sums, products);
    StreamValues(block, tile_first, item, parts.weights[0], sums.out, streamed.packed, products);
  }
}

template <class Products> void StreamTile(const Block& block, int64_t tile_first, Scratch& scratch) noexcept {
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
    if (layout.q_channel == 1) std::copy_n(q, layout.d, to);
    else for (int64_t c = 0; c < layout.d; ++c) to[c] = q[c * layout.q_channel];
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
    const __m512 keep = _mm512_set1_ps(Rescale(total.max[r], max)), add = _mm512_set1_ps(Rescale(from.max[r], max));
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
    if (blocked) std::fill_n(out, channels, 0.0f);
    else ScaleRow(1.0f / of_weights, out, channels);
    StoreRow(out, layout, static_cast<BFloat16*>(row.out));
    if (layout.row_sums != RowSums::kExact) continue;
    // The output of a blocked row was never written.
    total.sum[r] = blocked ? 0.0f : _mm512_reduce_add_ps(_mm512_loadu_ps(out + channels + 16));
    // The base's rounding, common to all terms of the sum, is taken out: one visible key gives its score exactly.
    if (row.lse != nullptr) {
      *row.lse = blocked ? kBlocked : total.max[r] + std::log(total.sum[r] / ExpOfBase(total.max[r]));
    }
  }
}

template <class Products> ForwardKernels Table() {
  return {&SizesOf, &Begin, &BeginSplit, &AddTile<Products>, &StreamTile<Products>, &Merge, &Finish, kPairGroupRows};
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
