// The fused backward pass for bfloat16 on processors that multiply pairs: kernels/backward.cc's five products
// as exact products of bfloat16 summed in float32, for which P and dS are rounded to bfloat16. Loops: tile of
// keys > block of rows > group of 32 rows > chunk of 64 keys, in which S and dP are multiplied and, while they
// are in the first-level cache, turned into P and dS; dQ after a group, dK and dV after the block.
//
// Products read their right operand in pair tiles, whose pairs run along the sum's index: keys for dQ, rows for
// dK and dV. Two rows at a time, so P and dS leave the registers as they are needed: dS as rows for dQ = dS K,
// both as pair tiles of 32 rows and 16 keys for dV^T = dO^T P and dK^T = Q^T dS. Only Q, dO, dK and dV are ever
// turned.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "kernels/backward.h"
#include "kernels/pairs.h"
#include "kernels/phase.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/backward_pairs.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h.
#include "hwy/highway.h"

#if HWY_TARGET == HWY_AVX3
#include "kernels/backward-inl.h"
#include "kernels/pair_power-inl.h"
#include "kernels/pair_products-inl.h"
#include "kernels/pair_transpose-inl.h"
#include "kernels/transpose-inl.h"

HWY_PUSH_ATTRIBUTES(HWY_TARGET_STR ",avx512bf16")
namespace qkv {
namespace HWY_NAMESPACE {
namespace {

constexpr int64_t kChunk = 64;                       // keys: at D = 64 all that a chunk touches is 48 KiB
constexpr int64_t kGroups = 4;                       // of 32 rows: sums over a block's rows are four steps deep
constexpr int64_t kRows = kGroups * kPairGroupRows;  // of a block
constexpr int64_t kScores = kChunk + 16;          // floats from a row of S or dP to the next: off powers of two
constexpr int64_t kDscores = kBackwardKeys + 32;  // elements from a row of dS to the next, likewise
constexpr int64_t kColumnKeys = kBackwardKeys + 16;  // floats from a channel of dK or dV to the next, likewise

int64_t Padded(int64_t channels) { return PaddedWidth(channels, kPairDepth); }

// A block's prepared rows, as many as whole groups have: Q and dO as they came, then turned, without what is not finite.
template <class T>
struct RowOperands {
  int64_t d, dv, stride;
  T *queries, *douts;  // (rows, D), (rows, Dv)
  T *query_columns, *dout_columns;  // (D, rows), (Dv, rows)

  RowOperands(const Layout& layout, int64_t rows, T* memory)
      : d(Padded(layout.d)),
        dv(Padded(layout.dv)),
        stride(PaddedWidth(rows, kPairGroupRows)),
        queries(memory),
        douts(queries + stride * d),
        query_columns(douts + stride * dv),
        dout_columns(query_columns + stride * d) {}
};

int64_t PreparedFloats(const Layout& layout, int64_t rows) noexcept {
  return PaddedWidth(rows, kPairGroupRows) * (Padded(layout.d) + Padded(layout.dv));
}

// The scratch memory's parts. Channels are padded with zeros to whole pair tiles, and so are a block's rows.
struct Parts {
  int64_t d, dv;            // padded
  int64_t floats = 0;       // of all
  BFloat16* keys;           // packed as keys
  BFloat16* key_rows;       // K packed as values
  BFloat16* values;         // V packed as keys
  float* scores;            // (32, chunk): S
  float* dweights;          // (32, chunk): dP
  BFloat16* weight_tiles;   // P: for each 16 keys, for each group, a pair tile
  BFloat16* dscore_tiles;   // dS
  BFloat16* dscore_rows;    // (32, keys): a group's dS
  float* dq;                // (rows, D)
  float* bias_sums;         // (rows)
  float* dk_columns;        // (D, keys), without the scale
  float* dv_columns;        // (Dv, keys)
  float* turned;            // (keys, D or Dv)

  explicit Parts(BackwardScratch& scratch) : Parts(scratch.layout, scratch.memory.data()) {}
  Parts(const Layout& layout, float* memory) : d(Padded(layout.d)), dv(Padded(layout.dv)) {
    const auto take = [&](int64_t count) {
      float* part = memory + floats;
      floats += PaddedWidth(count, kAlignment / sizeof(float));
      return part;
    };
    const auto elements = [&](int64_t count) { return reinterpret_cast<BFloat16*>(take(count / 2)); };
    keys = elements(kBackwardKeys * d), key_rows = elements(kKeyTile * d),
    values = elements(kBackwardKeys * dv);
    scores = take(kPairGroupRows * kScores), dweights = take(kPairGroupRows * kScores);
    weight_tiles = elements(kRows * kBackwardKeys), dscore_tiles = elements(kRows * kBackwardKeys);
    dscore_rows = elements(kPairGroupRows * kDscores);
    dq = take(kRows * d), bias_sums = take(kRows);
    dk_columns = take(d * kColumnKeys), dv_columns = take(dv * kColumnKeys);
    turned = take(kBackwardKeys * std::max(d, dv));
  }

  // The tile of 16 keys and a group, of weight_tiles or dscore_tiles; the next group's follows.
  static int64_t TileAt(int64_t key, int64_t group) {
    return (key / kPairColumns * kGroups + group) * kPairTile;
  }
};

int64_t ScratchFloats(const Layout& layout) noexcept { return Parts(layout, nullptr).floats; }

void BeginTile(const BackwardTile& tile, const PackKernels& pack, BackwardScratch& scratch) noexcept {
  const PhaseTimer timer(Phase::kPack);
  const Parts parts(scratch);
  const KeyValues& from = *tile.key_values;
  const Layout& layout = scratch.layout;
  pack.keys(from.k, tile.first, tile.count, layout.d, reinterpret_cast<float*>(parts.keys));
  pack.values(from.k, tile.first, tile.count, layout.d, reinterpret_cast<float*>(parts.key_rows));
  pack.keys(from.v, tile.first, tile.count, layout.dv, reinterpret_cast<float*>(parts.values));
  std::fill_n(parts.dk_columns, parts.d * kColumnKeys, 0.0f);
  std::fill_n(parts.dv_columns, parts.dv * kColumnKeys, 0.0f);
}

// A group's rows and the keys of the tile that any of them sees, in whole pair tiles.
struct Group {
  int64_t row = 0, rows = 0;
  Range keys;
};

struct Groups {
  Group group[kGroups];
  int64_t count;
  Range all;

  Groups(const Block& block, int64_t tile_first) : count((block.count + kPairGroupRows - 1) / kPairGroupRows) {
    for (int64_t g = 0; g < count; ++g) {
      const int64_t row = g * kPairGroupRows, rows = std::min(kPairGroupRows, block.count - row);
      const Range seen = VisibleToAny(block.rows + row, rows, tile_first, kBackwardKeys);
      group[g] = {row, rows, {seen.first / kPairDepth * kPairDepth, PaddedWidth(seen.last, kPairDepth)}};
      if (seen.empty()) group[g].keys = {};
      all.first = std::min(all.first, group[g].keys.first);
      all.last = std::max(all.last, group[g].keys.last);
    }
  }
};

void CopyRow(const void* from, int64_t channel, int64_t count, int64_t padded, BFloat16* to) {
  const BFloat16* elements = static_cast<const BFloat16*>(from);
  if (channel == 1)
    std::copy_n(elements, count, to);
  else
    for (int64_t c = 0; c < count; ++c) to[c] = elements[c * channel];
  std::fill(to + count, to + padded, BFloat16{});
}

// 32 rows of `channels` elements, a multiple of 32, become columns `stride` apart, what is not finite zero.
Values TurnRows(const BFloat16* rows, int64_t channels, BFloat16* columns, int64_t stride) {
  __mmask32 lost = 0;
  for (int64_t c = 0; c < channels; c += kPairDepth) {
    __m512i lower[16], upper[16];
    for (int64_t pair = 0; pair < 16; ++pair) {
      const BFloat16* from = rows + 2 * pair * channels + c;
      const __m512i even = KeepFinite(_mm512_load_si512(from), lost);
      const __m512i odd = KeepFinite(_mm512_load_si512(from + channels), lost);
      lower[pair] = PairLower(even, odd), upper[pair] = PairUpper(even, odd);
    }
    TransposePairs(lower, columns + c * stride, stride);
    TransposePairs(upper, columns + (c + 16) * stride, stride);
  }
  return lost == 0 ? Values::kFinite : Values::kSomeNotFinite;
}

// Returns whether dO is finite.
Values PrepareRows(const BackwardBlock& block, float* prepared) noexcept {
  const PhaseTimer timer(Phase::kRows);
  const Layout& layout = *block.block.layout;
  const RowOperands to(layout, block.block.count, reinterpret_cast<BFloat16*>(prepared));
  Values finite = Values::kFinite;
  for (int64_t row = 0; row < block.block.count; row += kPairGroupRows) {
    BFloat16* queries = to.queries + row * to.d;
    BFloat16* douts = to.douts + row * to.dv;
    for (int64_t r = 0; r < kPairGroupRows; ++r) {
      const bool real = row + r < block.block.count;
      const int64_t n = real ? row + r : 0;
      CopyRow(block.block.rows[n].q, layout.q_channel, real ? layout.d : 0, to.d, queries + r * to.d);
      CopyRow(block.rows[n].dout, block.dout_channel, real ? layout.dv : 0, to.dv, douts + r * to.dv);
    }
    TurnRows(queries, to.d, to.query_columns + row, to.stride);
    if (TurnRows(douts, to.dv, to.dout_columns + row, to.stride) != Values::kFinite) finite = Values::kSomeNotFinite;
  }
  return finite;
}

// Two vectors of floats, rounded, as 16 pairs; and as 32 elements in a row.
HWY_INLINE __m512i InRow(__m512 first, __m512 second) {
  const __m512bh rounded = _mm512_cvtne2ps_pbh(second, first);
  __m512i bits;
  std::memcpy(&bits, &rounded, sizeof(bits));
  return bits;
}
HWY_INLINE __m512i AsPairs(__m512 even, __m512 odd) {
  HWY_ALIGN static constexpr uint16_t kOrder[32] = {0,  16, 1,  17, 2,  18, 3,  19, 4,  20, 5,
                                                    21, 6,  22, 7,  23, 8,  24, 9,  25, 10, 26,
                                                    11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
  return _mm512_permutexvar_epi16(_mm512_load_si512(kOrder), InRow(even, odd));
}

// What a row of a chunk holds: S and dP, of which one step makes P and dS, or those already.
enum class RowState { kScores, kDone };

// A row of a chunk. Of kScores: P = 2^(s * factor - shift), dS = P (dP - delta).
struct ChunkRow {
  const float* scores;
  const float* dweights;
  float shift, delta;
};

struct Gradients {
  __m512 weight, dscore;
};

template <RowState kState>
HWY_INLINE Gradients GradientsAt(const ChunkRow& row, int64_t j, __m512 factor) {
  const __m512 s = _mm512_load_ps(row.scores + j), dp = _mm512_load_ps(row.dweights + j);
  if constexpr (kState == RowState::kDone) return {s, dp};
  const __m512 x = _mm512_fmsub_ps(s, factor, _mm512_set1_ps(row.shift));
  const __m512 weight = _mm512_scalef_ps(PowerForWeight(_mm512_reduce_ps(x, kFloor)), x);
  // A blocked key's dP may be anything.
  const __mmask16 seen = _mm512_cmp_ps_mask(s, _mm512_set1_ps(kBlocked), _CMP_NEQ_UQ);
  return {weight, _mm512_maskz_mul_ps(seen, weight, _mm512_sub_ps(dp, _mm512_set1_ps(row.delta)))};
}

// Where two rows' P and dS go, from a chunk's first key on.
struct PairTargets {
  BFloat16* weights;  // their line of the first key's pair tile
  BFloat16* dscores;
  BFloat16* dscore_row;  // the first row's; the second's is kDscores on
};

template <RowState kFirst, RowState kSecond>
void StorePair(const ChunkRow& first, const ChunkRow& second, int64_t count, float factor,
               const PairTargets& to) {
  constexpr int64_t kNextKeys = kGroups * kPairTile;  // from 16 keys' tile to the next
  const __m512 factors = _mm512_set1_ps(factor);
  for (int64_t j = 0; j < count; j += 2 * kPairColumns) {
    Gradients even[2], odd[2];
    QKV_UNROLL for (int n = 0; n < 2; ++n) {
      even[n] = GradientsAt<kFirst>(first, j + 16 * n, factors);
      odd[n] = GradientsAt<kSecond>(second, j + 16 * n, factors);
      const int64_t tile = (j / kPairColumns + n) * kNextKeys;
      _mm512_store_si512(to.weights + tile, AsPairs(even[n].weight, odd[n].weight));
      _mm512_store_si512(to.dscores + tile, AsPairs(even[n].dscore, odd[n].dscore));
    }
    _mm512_store_si512(to.dscore_row + j, InRow(even[0].dscore, even[1].dscore));
    _mm512_store_si512(to.dscore_row + kDscores + j, InRow(odd[0].dscore, odd[1].dscore));
  }
}

// A group's chunk: S and dP become P and dS.
class ChunkGradients {
 public:
  ChunkGradients(const BackwardBlock& block, const BackwardTile& tile, const Parts& parts, int64_t group,
                 const Group& rows, Range keys)
      : block_(block), tile_(tile), parts_(parts), group_(group), rows_(rows), keys_(keys) {
    const ScoreRules& rules = *block.block.rules;
    scale_ = static_cast<float>(block.block.layout->scale);
    // Rules on scores want them scaled; and minus infinity times the scale must stay what it is.
    scale_first_ = rules.softcap || rules.has_alibi || rules.has_bias || !(scale_ > 0);
    every_row_ = rules.has_mask || scale_first_;
    all_at_length_ = rules.softcap || rules.dropout;
  }

  void Run() {
    for (int64_t r = 0; r < kPairGroupRows; r += 2) {
      const RowState first = Prepare(r), second = Prepare(r + 1);
      const ChunkRow a = RowAt(r), b = RowAt(r + 1);
      const float factor = scale_first_ ? kLog2E : scale_ * kLog2E;
      const auto store = first == RowState::kScores    ? second == RowState::kScores
                                                             ? &StorePair<RowState::kScores, RowState::kScores>
                                                             : &StorePair<RowState::kScores, RowState::kDone>
                            : second == RowState::kScores ? &StorePair<RowState::kDone, RowState::kScores>
                                                       : &StorePair<RowState::kDone, RowState::kDone>;
      store(a, b, count(), factor, TargetsAt(r));
    }
  }

 private:
  // Beyond it, the rounding of base * log2 e would count beside a weight's own rounding.
  static constexpr float kLargestPairBase = 1024.0f;

  int64_t count() const { return keys_.last - keys_.first; }
  float* scores(int64_t r) const { return parts_.scores + r * kScores; }
  float* dweights(int64_t r) const { return parts_.dweights + r * kScores; }

  ChunkRow RowAt(int64_t r) const {
    const RowStatistic own = r < rows_.rows ? block_.rows[rows_.row + r].statistic : RowStatistic{};
    return {scores(r), dweights(r), own.base * kLog2E, own.delta};
  }

  PairTargets TargetsAt(int64_t r) const {
    const int64_t at = Parts::TileAt(keys_.first, group_) + r * kPairColumns;
    return {parts_.weight_tiles + at, parts_.dscore_tiles + at,
            parts_.dscore_rows + r * kDscores + keys_.first};
  }

  // The rules; and all the rest where there is more to it than StorePair knows.
  RowState Prepare(int64_t r) const {
    if (r >= rows_.rows) {
      std::fill_n(scores(r), count(), kBlocked);
      return RowState::kScores;
    }
    const int64_t n = rows_.row + r;
    const Row& row = block_.block.rows[n];
    const BackwardRow& own = block_.rows[n];
    if (HWY_UNLIKELY(all_at_length_ || own.dbias != nullptr || own.bias_sum != nullptr ||
                     !(std::abs(own.statistic.base) <= kLargestPairBase))) {
      Scale(scores(r));
      DifferentiateRow(block_, n, tile_, keys_, Exponent::kSubtraction, scores(r) - keys_.first,
                       dweights(r) - keys_.first, parts_.bias_sums + n);
      return RowState::kDone;
    }
    const Range seen = VisibleInTile(row, tile_.first, kBackwardKeys);
    if (HWY_LIKELY(!every_row_ && seen.first <= keys_.first && keys_.last <= seen.last))
      return RowState::kScores;
    if (scale_first_) Scale(scores(r));
    const Range range = {std::clamp(seen.first, keys_.first, keys_.last),
                         std::clamp(seen.last, keys_.first, keys_.last)};
    ApplyRulesWithin(*block_.block.rules, row, tile_.first, range, keys_, scores(r) - keys_.first);
    return RowState::kScores;
  }

  void Scale(float* s) const {
    const __m512 scale = _mm512_set1_ps(scale_);
    for (int64_t j = 0; j < count(); j += 16)
      _mm512_store_ps(s + j, _mm512_mul_ps(_mm512_load_ps(s + j), scale));
  }

  const BackwardBlock& block_;
  const BackwardTile& tile_;
  const Parts& parts_;
  int64_t group_;
  Group rows_;
  Range keys_;
  float scale_;
  bool scale_first_, every_row_, all_at_length_;
};

// S = Q K^T of a group and chunk, or dP = dO V^T: rows of `depth` elements times packed keys.
template <class Products>
void MultiplyChunk(const Group& group, Range keys, const BFloat16* rows, int64_t depth, const BFloat16* packed,
                   float* to, Products& products) {
  const int64_t steps = depth / kPairDepth, next = steps * kPairTile;  // from 16 keys to the next
  for (int64_t key = keys.first; key < keys.last; key += 2 * kPairColumns) {
    const BFloat16* b = packed + key / kPairColumns * next;
    products.Run({rows + group.row * depth,
                  depth,
                  {b, b + next},
                  to + key - keys.first,
                  kScores,
                  group.rows,
                  steps,
                  Start::kZero});
  }
}

// dQ = dS K of a group.
template <class Products>
void MultiplyKeyRows(const Group& group, const Parts& parts, Products& products) {
  constexpr int64_t kNext = kKeyTile / kPairDepth * kPairTile;  // from 16 channels to the next
  for (int64_t c = 0; c < parts.d; c += 2 * kPairColumns) {
    const BFloat16* b = parts.key_rows + c / kPairColumns * kNext + group.keys.first * kPairColumns;
    products.Run({parts.dscore_rows + group.keys.first,
                  kDscores,
                  {b, b + kNext},
                  parts.dq + group.row * parts.d + c,
                  parts.d,
                  group.rows,
                  (group.keys.last - group.keys.first) / kPairDepth,
                  Start::kZero});
  }
}

// to (channels, keys) += columns (channels, rows) * tiles (rows, keys), for 32 keys and groups [first, last).
template <class Products>
void MultiplyTiles(int64_t key, int64_t first, int64_t last, const BFloat16* columns, int64_t stride, int64_t channels,
                   const BFloat16* tiles, float* to, Products& products) {
  for (int64_t c = 0; c < channels; c += kPairGroupRows) {
    products.Run({columns + c * stride + first * kPairGroupRows,
                  stride,
                  {tiles + Parts::TileAt(key, first), tiles + Parts::TileAt(key + kPairColumns, first)},
                  to + c * kColumnKeys + key,
                  kColumnKeys,
                  kPairGroupRows,
                  last - first,
                  Start::kAdd});
  }
}

// dV^T += dO^T P and dK^T += Q^T dS, over the groups that see each 32 keys only.
template <class Products>
void AddKeysAndValues(const Groups& groups, const RowOperands<const BFloat16>& rows, const Parts& parts,
                      Products& products) {
  for (int64_t key = groups.all.first; key < groups.all.last; key += kPairDepth) {
    const auto sees = [&](int64_t g) {
      return g < groups.count && groups.group[g].keys.first <= key && key < groups.group[g].keys.last;
    };
    for (int64_t g = 0; g < groups.count; ++g) {
      const int64_t first = g;
      while (sees(g)) ++g;
      if (g == first) continue;
      MultiplyTiles(key, first, g, rows.dout_columns, rows.stride, parts.dv, parts.weight_tiles, parts.dv_columns,
                    products);
      MultiplyTiles(key, first, g, rows.query_columns, rows.stride, parts.d, parts.dscore_tiles, parts.dk_columns,
                    products);
    }
  }
}

template <class Products>
void RunGroup(const BackwardBlock& block, const BackwardTile& tile, const Group& group,
              const RowOperands<const BFloat16>& rows, const Parts& parts, Products& products) {
  PhaseTimer timer(Phase::kScores);
  const Range all = group.keys;
  for (int64_t chunk = all.first / kChunk * kChunk; chunk < all.last; chunk += kChunk) {
    const Range keys = {std::max(chunk, all.first), std::min(chunk + kChunk, all.last)};
    timer.Next(Phase::kScores);
    MultiplyChunk(group, keys, rows.queries, parts.d, parts.keys, parts.scores, products);
    MultiplyChunk(group, keys, rows.douts, parts.dv, parts.values, parts.dweights, products);
    timer.Next(Phase::kSoftmax);
    ChunkGradients(block, tile, parts, group.row / kPairGroupRows, group, keys).Run();
  }
  timer.Next(Phase::kGradients);
  MultiplyKeyRows(group, parts, products);
}

template <class Products>
bool AddBlock(const BackwardBlock& block, const BackwardTile& tile, BackwardScratch& scratch) noexcept {
  const Groups groups(block.block, tile.first);
  if (groups.all.empty()) return false;
  const Parts parts(scratch);
  const RowOperands rows(scratch.layout, block.block.count, reinterpret_cast<const BFloat16*>(block.prepared));
  std::fill_n(parts.bias_sums, block.block.count, 0.0f);
  Products products;
  for (int64_t g = 0; g < groups.count; ++g) {
    const Group& group = groups.group[g];
    if (group.keys.empty())
      std::fill_n(parts.dq + group.row * parts.d, group.rows * parts.d, 0.0f);
    else
      RunGroup(block, tile, group, rows, parts, products);
  }
  const PhaseTimer timer(Phase::kGradients);
  AddKeysAndValues(groups, rows, parts, products);
  if (block.finite == Values::kFinite) return true;
  AddNotFinite(
      block, tile, [&](int64_t r, int64_t c) { return ToFloat(rows.douts[r * parts.dv + c]); },
      [&](int64_t r, int64_t j) {
        const int64_t pair = r % kPairGroupRows / 2 * kPairDepth + j % kPairColumns * 2;
        return ToFloat(parts.weight_tiles[Parts::TileAt(j, r / kPairGroupRows) + pair + r % 2]);
      },
      [&](int64_t j, int64_t c) -> float& { return parts.dv_columns[c * kColumnKeys + j]; });
  return true;
}

void AddRows(const BackwardBlock& block, BackwardScratch& scratch) noexcept {
  const Parts parts(scratch);
  AddParts(block, parts.dq, parts.d, parts.bias_sums);
}

// Columns of keys become rows, times `scale`, and are stored.
void StoreColumns(const float* columns, int64_t channels, float scale, int64_t count, float* turned,
                  const GradientRows& to) {
  const F32 tag;
  const int64_t stride = Padded(channels);
  for (int64_t key = 0; key < count; key += kPairColumns) {
    for (int64_t c = 0; c < stride; c += kPairColumns) {
      const float* rows[kPairColumns];
      for (int64_t i = 0; i < kPairColumns; ++i) rows[i] = columns + (c + i) * kColumnKeys;
      TransposeSquare(rows, key, turned + key * stride + c, stride);
    }
  }
  for (int64_t i = 0; i < count * stride; i += Lanes()) {
    hn::Store(hn::Mul(hn::Load(tag, turned + i), hn::Set(tag, scale)), tag, turned + i);
  }
  Store(turned, stride, count, channels, to);
}

void StoreTile(const BackwardTile& tile, const GradientRows& dk, const GradientRows& dv,
               BackwardScratch& scratch) noexcept {
  const PhaseTimer timer(Phase::kRows);
  const Parts parts(scratch);
  const Layout& layout = scratch.layout;
  StoreColumns(parts.dk_columns, layout.d, static_cast<float>(layout.scale), tile.held, parts.turned, dk);
  StoreColumns(parts.dv_columns, layout.dv, 1.0f, tile.held, parts.turned, dv);
}

template <class Products>
BackwardKernels Table() {
  return {PairPackKernels(), kRows,     &ScratchFloats, &Statistic, &PreparedFloats, &PrepareRows,
          &BeginTile, &AddBlock<Products>, &AddRows, &StoreTile, &Store};
}

}  // namespace

BackwardKernels BackwardTileTable() { return Table<TileProducts>(); }
BackwardKernels BackwardDotTable() { return Table<DotProducts>(); }

}  // namespace HWY_NAMESPACE
}  // namespace qkv
HWY_POP_ATTRIBUTES
#endif  // AVX-512

#if HWY_ONCE
namespace qkv {
#if HWY_TARGETS & HWY_AVX3
BackwardKernels PairBackwardKernelsFor(Isa isa) {
  return isa == Isa::kAmx ? N_AVX3::BackwardTileTable() : N_AVX3::BackwardDotTable();
}
#else
BackwardKernels PairBackwardKernelsFor(Isa) { return {}; }
#endif
}  // namespace qkv
#endif
