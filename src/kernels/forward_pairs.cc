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
#include "kernels/pack_pairs-inl.h"
#include "kernels/pair_products-inl.h"
#include "kernels/pair_softmax-inl.h"
#include "kernels/pair_values-inl.h"
#include "kernels/row-inl.h"
#include "kernels/score-inl.h"
#include "kernels/transpose-inl.h"
#include "kernels/weights-inl.h"

HWY_PUSH_ATTRIBUTES(HWY_TARGET_STR ",avx512bf16")
namespace qkv {
namespace HWY_NAMESPACE {
namespace {

constexpr int64_t kNearKeys = 64;  // streamed keys that are multiplied at a time: 16 KiB of 128 channels

// What a streamed tile works with.
struct Streamed {
  int64_t floats = 0;  // of all
  BFloat16* rows;      // in pair tiles
  BFloat16* packed;    // 32 keys or kNearKeys values
  float* before;       // (few rows, channels): O before some values were added

  Streamed(const Layout& layout, float* memory) {
    const auto take = [&](int64_t count) {
      float* part = memory + floats;
      floats += count;
      return part;
    };
    const int64_t keys = kPairDepth * Depth(layout), values = kNearKeys * Channels(layout);
    rows = reinterpret_cast<BFloat16*>(take(kPairDepth * Depth(layout) / 2));
    packed = reinterpret_cast<BFloat16*>(take(std::max(keys, values) / 2));
    before = take(kFewRows * Channels(layout));
  }
};

ScratchSizes SizesOf(int64_t rows, const Layout& layout) noexcept {
  const int64_t whole = PaddedWidth(rows, kPairGroupRows);
  const int64_t streamed = rows <= kStreamedRows ? Streamed(layout, nullptr).floats : 0;
  return {whole, whole * Depth(layout) / 2, Parts::kFloats, OutStride(layout), streamed};
}

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
    if constexpr (Products::kReadsInPlace) {
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
  if constexpr (Products::kReadsInPlace) {
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

// O += P V of few rows and `keys` keys, whose values are read where they lie. A value that is not finite shows in O
// whatever its weight: then O stays as it was, and false comes back.
bool AddInPlace(const Strided& v, int64_t first, int64_t keys, const BFloat16* weights, int64_t rows, int64_t channels,
                float* out, int64_t stride, float* before) {
  HWY_ALIGN float wide[kFewRows * kNearKeys];
  for (int64_t r = 0; r < rows; ++r) {
    ConvertToFloat(weights + r * kWeights, keys, wide + r * kNearKeys);
    std::copy_n(out + r * stride, channels, before + r * channels);
  }
  AddFewRows({wide, kNearKeys, v.Key<BFloat16>(first), v.key, kNearKeys, keys, out, stride}, rows, channels);
  bool finite = true;
  for (int64_t r = 0; r < rows; ++r) finite = finite && AllFinite(out + r * stride, channels);
  for (int64_t r = 0; r < rows && !finite; ++r) std::copy_n(before + r * channels, channels, out + r * stride);
  return finite;
}

// O += P V of an item, values read where they lie or packed a few at a time.
template <class Products>
void StreamValues(const Block& block, int64_t tile_first, const Item& item, const BFloat16* weights, float* out,
                  const Streamed& streamed, Products& products) {
  const KeyValues& from = *block.key_values;
  const int64_t stride = OutStride(*block.layout);
  Values finite = Values::kFinite;
  for (int64_t key = item.keys.first; key < item.keys.last; key += kNearKeys) {
    const int64_t keys = std::min(kNearKeys, item.keys.last - key), first = tile_first + key;
    if constexpr (Products::kReadsInPlace) {
      if (item.rows <= kFewRows && first + keys <= from.length && LieEvenly(from.v, first, keys, block.layout->dv) &&
          AddInPlace(from.v, first, keys, weights + key - item.keys.first, item.rows, block.layout->dv, out, stride,
                     streamed.before)) {
        continue;
      }
    }
    const Values some = PackPairValues(from.v, first, std::min(keys, from.length - first), block.layout->dv,
                                       streamed.packed, kNearKeys * kPairColumns);
    if (some == Values::kSomeNotFinite) finite = some;
    AddPacked(item, weights + key - item.keys.first, streamed.packed, keys / kPairDepth, Channels(*block.layout), out,
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
  const Streamed streamed(*block.layout, scratch.streamed());
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
    StreamValues(block, tile_first, item, parts.weights, sums.out, streamed, products);
  }
}

template <class Products>
void StreamTile(const Block& block, int64_t tile_first, Scratch& scratch) noexcept {
  const PhaseTimer timer(Phase::kSoftmax);
  const auto stream = block.layout->row_sums == RowSums::kExact ? &StreamItems<RowSums::kExact, Products>
                                                                : &StreamItems<RowSums::kForOutput, Products>;
  stream(block, tile_first, Items(block, tile_first), scratch);
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
    StoreRounded(_mm512_loadu_ps(from + c), to + c, FirstOf16(layout.dv - c));
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
