// The fused forward for bfloat16 on processors that multiply pairs (kernels/pair_forward-inl.h), and the same
// for few rows, whose keys and values are read where they lie.
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
#include "kernels/pair_forward-inl.h"
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
  return {whole, QueryFloats<1>(rows, layout), Parts<1>::kFloats, OutStride(layout), streamed};
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
void StreamScores(const Block& block, int64_t tile_first, const Item& item, const Parts<1>& parts,
                  float* scores, const Streamed& streamed, Products& products) {
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

// O += P V of few rows and `keys` keys, whose values are read where they lie. A value that is not finite shows
// in O whatever its weight: then O stays as it was, and false comes back.
bool AddInPlace(const Strided& v, int64_t first, int64_t keys, const BFloat16* weights, int64_t rows,
                int64_t channels, float* out, int64_t stride, float* before) {
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
      if (item.rows <= kFewRows && first + keys <= from.length &&
          LieEvenly(from.v, first, keys, block.layout->dv) &&
          AddInPlace(from.v, first, keys, weights + key - item.keys.first, item.rows, block.layout->dv, out,
                     stride, streamed.before)) {
        continue;
      }
    }
    const Values some = PackPairValues(from.v, first, std::min(keys, from.length - first), block.layout->dv,
                                       streamed.packed, kNearKeys * kPairColumns);
    if (some == Values::kSomeNotFinite) finite = some;
    AddPacked(item, weights + key - item.keys.first, streamed.packed, keys / kPairDepth,
              Channels(*block.layout), out, stride, products);
  }
  if (finite == Values::kFinite) return;
  AddNotFinite({block, item.row, item.rows}, tile_first, item.keys, out, stride, [&](int64_t r, int64_t j) {
    return ToFloat(weights[(r - item.row) * kWeights + j - item.keys.first]);
  });
}

template <class Softmax>
void WeighStreamed(const Item& item, Softmax& softmax) {
  const DenormalsAreZeros mode;  // as in WeighItem
  for (int64_t key = item.keys.first; key < item.keys.last; key += kColumn) {
    softmax.TakeColumn(key);
    softmax.RunColumn(key);
  }
  softmax.EndColumns();
  if (softmax.any_rebase()) softmax.Rebase();
}

template <RowSums kSums, class Products>
void StreamItems(const Block& block, int64_t tile_first, const Items& items, Scratch& scratch) {
  const Parts<1> parts(scratch);
  const Sums sums = scratch.split();
  const KeyTile tile = {tile_first, nullptr, nullptr, Values::kFinite};
  const int64_t depth = Depth(*block.layout);
  const Streamed streamed(*block.layout, scratch.streamed());
  PackPairKeys({parts.queries, DType::kBF16, depth, 1}, 0, kStreamedRows, depth, streamed.rows);
  Products products;
  for (int64_t i = 0; i < items.count; ++i) {
    const Item& item = items.item[i];
    ItemSoftmax<kSums, 1> softmax(block, tile, item, parts, sums);
    StreamScores(block, tile_first, item, parts, parts.scores, streamed, products);
    WeighStreamed(item, softmax);
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

template <class Products>
ForwardKernels Table() {
  return {&SizesOf, &Begin<1>,  &BeginSplit,   &AddTile<Products>, &StreamTile<Products>,
          &Merge,   &Finish<1>, kPairGroupRows};
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
