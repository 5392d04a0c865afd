// The fused forward on tiles of bfloat16 pairs, for bfloat16 (Products::kParts 1) and for float32 as triples
// (3). Loops: block of rows > split of keys > tile of keys > group of 32 rows > chunk of 128 keys > column of
// 32 keys. The scores of a column, 4 KiB, become weights before the next column's are multiplied: what goes
// from one kind of unit to the other stays in the first-level cache.
//
// Scores, sums and the output are float32; bfloat16's weights are rounded for the second multiplication,
// float32's are triples. A row's weights are exp(s - base). Its base is the largest score of the first column
// that shows it a key, and stays until the weights of a chunk would pass kLargestSum: there is no search for
// the maximum in most chunks. A row that needs a new base gets it, and its weights, from the scores of the
// whole chunk, made again. All of it depends on the row alone.

#if defined(QKV_KERNELS_PAIR_FORWARD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef QKV_KERNELS_PAIR_FORWARD_INL_H_
#undef QKV_KERNELS_PAIR_FORWARD_INL_H_
#else
#define QKV_KERNELS_PAIR_FORWARD_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>

#include "hwy/highway.h"
#include "kernels/block.h"
#include "kernels/denormals-inl.h"
#include "kernels/keys-inl.h"
#include "kernels/pair_products-inl.h"
#include "kernels/pair_softmax-inl.h"
#include "kernels/pairs.h"
#include "kernels/phase.h"
#include "kernels/row-inl.h"
#include "kernels/score-inl.h"
#include "kernels/store-inl.h"
#include "kernels/triple_products-inl.h"
#include "kernels/weights-inl.h"

HWY_PUSH_ATTRIBUTES(HWY_TARGET_STR ",avx512bf16")
namespace qkv {
namespace HWY_NAMESPACE {

// S = Q K^T of rows from `row` on and kColumn keys from `key` on.
template <int64_t kParts>
HWY_INLINE PairProduct ColumnProduct(const Block& block, const KeyTile& tile, int64_t row, int64_t rows, int64_t key,
                                     const BFloat16* queries, float* scores, int64_t stride) {
  const int64_t depth = Depth(*block.layout), steps = depth / kPairDepth, group = steps * kParts * kPairTile;
  const BFloat16* b = reinterpret_cast<const BFloat16*>(tile.keys) + key / kPairColumns * group;
  return {queries + row * kParts * depth,
          kParts * depth,
          {b, b + group},
          scores,
          stride,
          rows,
          steps,
          Start::kZero,
          depth};
}

template <int64_t kParts>
HWY_INLINE PairProduct ColumnProduct(const Block& block, const KeyTile& tile, const Item& item, int64_t key,
                                     const Parts<kParts>& parts, float* scores, int64_t stride) {
  return ColumnProduct<kParts>(block, tile, item.row, item.rows, key, parts.queries, scores, stride);
}

// O += P V of an item.
template <class Products>
HWY_INLINE void AddValues(const Block& block, const KeyTile& tile, const Item& item, const BFloat16* weights,
                          float* out, Products& products) {
  constexpr int64_t kParts = Products::kParts;
  constexpr int64_t kGroup = kKeyTile / kPairDepth * kParts * kPairTile;  // from 16 channels to the next
  const int64_t stride = OutStride(*block.layout), steps = (item.keys.last - item.keys.first) / kPairDepth;
  const BFloat16* values =
      reinterpret_cast<const BFloat16*>(tile.values) + item.keys.first * kParts * kPairColumns;
  for (int64_t c = 0; c < block.layout->dv; c += 2 * kPairColumns) {
    const BFloat16* b = values + c / kPairColumns * kGroup;
    const PairProduct product = {
        weights, kWeightStride<kParts>, {b, b + kGroup}, out + item.row * stride + c, stride, item.rows,
        steps,   Start::kAdd,           kPairChunk};
    if constexpr (kParts == kTripleParts)
      products.RunAhead(product);
    else
      products.Run(product);
  }
}

// One kind of unit after the other.
template <int64_t kParts, class Softmax, class Products>
HWY_INLINE void AddColumns(const Block& block, const KeyTile& tile, const Item& item,
                           const Parts<kParts>& parts, Softmax& softmax, const Products& products) {
  for (int64_t key = item.keys.first; key < item.keys.last; key += kColumn) {
    products.Run(ColumnProduct(block, tile, item, key, parts, parts.column, kColumn));
    softmax.RunColumn(key);
  }
}

// A column's softmax among the products of the next. Six times as many products leave room for it; and tiles
// that wait longer than some 300 ns start slowly again.
template <class Softmax>
HWY_INLINE void AddColumns(const Block& block, const KeyTile& tile, const Item& item,
                           const Parts<kTripleParts>& parts, Softmax& softmax, const TripleProducts& products) {
  float *column = parts.column, *next = column + kPairGroupRows * kColumn;
  const int64_t pieces = TripleProducts::kBetween * Depth(*block.layout) / kPairDepth;
  const int64_t piece = (item.rows + pieces - 1) / pieces;
  products.Run(ColumnProduct(block, tile, item, item.keys.first, parts, column, kColumn));
  for (int64_t key = item.keys.first; key < item.keys.last; key += kColumn) {
    softmax.BeginColumn(key, column);
    int64_t row = 0;
    const auto some = [&]() HWY_ATTR {
      const int64_t last = std::min(row + piece, item.rows);
      softmax.RunRows(key, column, row, last);
      row = last;
    };
    if (key + kColumn < item.keys.last)
      products.RunAmong(ColumnProduct(block, tile, item, key + kColumn, parts, next, kColumn), some);
    softmax.RunRows(key, column, row, item.rows);
    std::swap(column, next);
  }
}

// The item's weights and their sums. Exponentials that underflow would cost 70 times as much as others.
template <int64_t kParts, class Softmax, class Products>
HWY_INLINE void WeighItem(const Block& block, const KeyTile& tile, const Item& item, const Parts<kParts>& parts,
                          Softmax& softmax, const Products& products) {
  const DenormalsAreZeros mode;
  AddColumns(block, tile, item, parts, softmax, products);
  softmax.EndColumns();
  if (!softmax.any_rebase()) return;
  for (int64_t key = item.keys.first; key < item.keys.last; key += kColumn) {
    float* scores = parts.scores + key - item.keys.first;
    products.Run(ColumnProduct(block, tile, item, key, parts, scores, kScores));
  }
  softmax.Rebase();
}

template <RowSums kSums, class Products>
void AddItem(const Block& block, const KeyTile& tile, const Item& item, Scratch& scratch, Products& products) {
  constexpr int64_t kParts = Products::kParts;
  const Parts<kParts> parts(scratch);
  const Sums sums = scratch.split();
  ItemSoftmax<kSums, kParts> softmax(block, tile, item, parts, sums);
  WeighItem(block, tile, item, parts, softmax, products);
  AddValues(block, tile, item, parts.weights, sums.out, products);
  if (kParts > 1 || tile.finite == Values::kFinite) return;  // triples are of ordinary numbers only
  AddNotFinite({block, item.row, item.rows}, tile.first, item.keys, sums.out, OutStride(*block.layout),
               [&](int64_t r, int64_t j) {
                 return ToFloat(parts.weights[(r - item.row) * kWeights + j - item.keys.first]);
               });
}

template <RowSums kSums, class Products>
void AddItems(const Block& block, const KeyTile& tile, Scratch& scratch) {
  const PhaseTimer timer(Phase::kSoftmax);  // and both multiplications, which are not apart from it
  const Items items(block, tile.first);
  if (items.count == 0) return;
  Products products;
  for (int64_t i = 0; i < items.count; ++i) AddItem<kSums>(block, tile, items.item[i], scratch, products);
}

// A triple's weights are as exact as any sum wants them.
template <class Products>
void AddTile(const Block& block, const KeyTile& tile, Scratch& scratch) noexcept {
  if (Products::kParts == 1 && block.layout->row_sums == RowSums::kExact)
    AddItems<RowSums::kExact, Products>(block, tile, scratch);
  else
    AddItems<RowSums::kForOutput, Products>(block, tile, scratch);
}

// A query, zeros past its last channel.
HWY_INLINE void CopyQuery(const Layout& layout, const void* from, int64_t depth, BFloat16* to) {
  const auto* q = static_cast<const BFloat16*>(from);
  if (HWY_UNLIKELY(layout.q_channel != 1)) {
    for (int64_t c = 0; c < layout.d; ++c) to[c] = q[c * layout.q_channel];
    std::fill(to + layout.d, to + depth, BFloat16{});
    return;
  }
  for (int64_t c = 0; c < depth; c += kPairDepth) {
    const auto real = static_cast<__mmask32>((uint64_t{1} << std::min(kPairDepth, layout.d - c)) - 1);
    _mm512_storeu_si512(to + c, _mm512_maskz_loadu_epi16(real, q + c));
  }
}

// A query as triples, scaled, parts `depth` elements apart, zeros past its last channel.
inline Values PackTripleQuery(const Layout& layout, const void* query, int64_t depth, BFloat16* to) {
  HWY_ALIGN float numbers[kStrip];
  const auto bytes = static_cast<int64_t>(SizeOf(layout.q_dtype)) * layout.q_channel;
  __mmask16 odd = 0;
  for (int64_t c = 0; c < layout.d; c += kStrip) {
    const int64_t count = std::min(kStrip, layout.d - c), padded = PaddedWidth(count, kPairDepth);
    LoadRow(layout, static_cast<const std::byte*>(query) + c * bytes, layout.q_channel, count,
            static_cast<float>(layout.scale), numbers);
    std::fill(numbers + count, numbers + padded, 0.0f);
    for (int64_t i = 0; i < padded; i += kPairDepth) {
      const __m512 first = _mm512_load_ps(numbers + i), second = _mm512_load_ps(numbers + i + 16);
      odd |= OddOnes<kLeastScored>(first) | OddOnes<kLeastScored>(second);
      StoreTriples(first, second, to + c + i, depth);
    }
  }
  return odd == 0 ? Values::kFinite : Values::kSomeNotFinite;
}

// The block's queries, zeros past the last of them, as they came; or scaled, as triples.
template <int64_t kParts>
Values PackQueries(const Block& block, BFloat16* to) {
  const int64_t depth = Depth(*block.layout);
  Values found = Values::kFinite;
  for (int64_t r = 0; r < PaddedWidth(block.count, 16); ++r, to += kParts * depth) {
    if (r >= block.count)
      std::fill_n(to, kParts * depth, BFloat16{});
    else if constexpr (kParts == 1)
      CopyQuery(*block.layout, block.rows[r].q, depth, to);
    else if (PackTripleQuery(*block.layout, block.rows[r].q, depth, to) != Values::kFinite)
      found = Values::kSomeNotFinite;
  }
  return found;
}

template <int64_t kParts>
Values Begin(const Block& block, Scratch& scratch) noexcept {
  const PhaseTimer timer(Phase::kRows);
  const int64_t stride = scratch.out_stride(), channels = Channels(*block.layout);
  const Values found = PackQueries<kParts>(block, Parts<kParts>(scratch).queries);
  const Sums total = scratch.total();
  for (int64_t r = 0; r < block.count; ++r) {
    const float* sink = block.rows[r].sink;
    total.max[r] = sink == nullptr ? kBlocked : *sink;
    if (total.max[r] == kBlocked) continue;
    std::fill_n(total.out + r * stride, stride, 0.0f);
    float* sums = total.out + r * stride + channels;
    sums[0] = sums[16] = ExpOfBase(total.max[r]) * kWeightOne<kParts>;
  }
  return found;
}

inline void BeginSplit(const Block& block, Scratch& scratch) noexcept {
  const Sums split = scratch.split();
  std::fill_n(split.max, block.count, kBlocked);
  std::fill_n(split.sum, block.count, 0.0f);
  std::fill_n(split.out, PaddedWidth(block.count, 16) * scratch.out_stride(), 0.0f);
}

inline void Merge(const Block& block, const Sums& from, Scratch& scratch) noexcept {
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

// The sum of exponentials that a log-sum-exp is made of.
template <int64_t kParts>
HWY_INLINE float ExactSum(const float* sums) {
  if constexpr (kParts == kTripleParts) return _mm512_reduce_add_ps(_mm512_loadu_ps(sums)) / kWeightOne<kParts>;
  return _mm512_reduce_add_ps(_mm512_loadu_ps(sums + 16));
}

// out = factor * from, which whole vectors hold. The rounding takes denormal numbers for zeros, as the products do.
template <int64_t kParts>
HWY_INLINE void StoreOut(float factor, const float* from, const Layout& layout, void* to) {
  if (kParts > 1 || layout.out_channel != 1) return StoreRow(factor, from, layout, to);
  const __m512 factors = _mm512_set1_ps(factor);
  auto* out = static_cast<BFloat16*>(to);
  for (int64_t c = 0; c < layout.dv; c += 16) {
    const __m256bh rounded = _mm512_cvtneps_pbh(_mm512_mul_ps(_mm512_loadu_ps(from + c), factors));
    __m256i bits;
    std::memcpy(&bits, &rounded, sizeof(bits));
    _mm256_mask_storeu_epi16(out + c, FirstOf16(std::min<int64_t>(16, layout.dv - c)), bits);
  }
}

template <int64_t kParts>
void Finish(const Block& block, Scratch& scratch) noexcept {
  const PhaseTimer timer(Phase::kRows);
  const Sums total = scratch.total();
  const Layout& layout = *block.layout;
  const int64_t stride = scratch.out_stride(), channels = Channels(layout);
  for (int64_t r = 0; r < block.count; ++r) {
    const Row& row = block.rows[r];
    float* out = total.out + r * stride;
    const bool blocked = total.max[r] == kBlocked;
    const float of_weights = _mm512_reduce_add_ps(_mm512_loadu_ps(out + channels));
    if (blocked) std::fill_n(out, channels, 0.0f);
    StoreOut<kParts>(blocked ? 1.0f : 1.0f / of_weights, out, layout, row.out);
    if (layout.row_sums != RowSums::kExact) continue;
    // The output of a blocked row was never written.
    total.sum[r] = blocked ? 0.0f : ExactSum<kParts>(out + channels);
    // The base's rounding, common to all terms of the sum, is taken out: one visible key gives its score
    // exactly.
    if (row.lse != nullptr) {
      *row.lse = blocked ? kBlocked : total.max[r] + std::log(total.sum[r] / ExpOfBase(total.max[r]));
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace qkv
HWY_POP_ATTRIBUTES

#endif  // include guard
