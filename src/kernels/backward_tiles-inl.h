// The fused backward pass on tiles of bfloat16: kernels/backward.cc's five products in pair tiles, of bfloat16
// numbers (kernels/backward_pairs.cc) or of the triples that stand for float32 (kernels/backward_triples.cc).
// Loops: tile of keys > block of rows > chunk of keys > group of 32 rows. A chunk's group is an item, in three
// stages: S and dP are multiplied; vectors make P and dS of them; dQ is added to, and after the chunk's last
// group dK and dV. While vectors work on an item, tiles multiply the one after it and the one before it:
// neither waits for the other, and the tiles' unit, which takes a third of a microsecond to wake up, does not
// fall asleep.
//
// Products read their right operand in pair tiles, whose pairs run along the sum's index: keys for dQ, rows for
// dK and dV. Two rows at a time, so P and dS leave the registers as they are needed: dS as rows for dQ = dS K,
// both as pair tiles of 32 rows and 16 keys for dV^T = dO^T P and dK^T = Q^T dS. Only Q, dO, dK and dV are ever
// turned.

#if defined(QKV_KERNELS_BACKWARD_TILES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef QKV_KERNELS_BACKWARD_TILES_INL_H_
#undef QKV_KERNELS_BACKWARD_TILES_INL_H_
#else
#define QKV_KERNELS_BACKWARD_TILES_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>

#include "hwy/highway.h"
#include "kernels/backward-inl.h"
#include "kernels/pair_products-inl.h"
#include "kernels/pair_transpose-inl.h"
#include "kernels/pairs.h"
#include "kernels/phase.h"
#include "kernels/transpose-inl.h"

HWY_PUSH_ATTRIBUTES(HWY_TARGET_STR ",avx512bf16")
namespace qkv {
namespace HWY_NAMESPACE {

// Of 16 keys.
struct Gradients {
  __m512 weight, dscore;
};

// A row of a chunk: P = 2^(s * factor - shift), dS = P (dP - delta).
struct ChunkRow {
  const float* scores;
  const float* dweights;
  float shift, delta;
};

// Where two rows' P and dS go.
struct PairTargets {
  BFloat16* weights;  // their line of the first key's tile
  BFloat16* dscores;
  BFloat16* dscore_row;  // the first row's
  int64_t next_keys;     // elements from 16 keys' tile to the next
  int64_t next_row;      // from the first row's dS to the second's
  int64_t next_part;     // from a part of a row's dS to the next
};

struct RowPair {
  ChunkRow row[2];
  float factor;
  PairTargets to;
};

// Numbers: what stands for a number and how P and dS are made and stored.
//   Products             multiplies; its kParts pair tiles hold 32 x 16 numbers
//   kGroups, kChunk      of a block: groups of 32 rows; of a chunk: keys
//   kUnit                P and dS are stored multiplied by it
//   kExponent, kLargest  how exp(s - base) is taken; the largest base that StorePair takes
//   LoadRows             a row's q and dO, padded
//   GradientsOf          P and dS of 16 keys
//   Store                P and dS of two rows and the 32 keys from j on
template <class Numbers>
class TileBackward {
 public:
  static BackwardKernels Table(const PackKernels& pack) {
    return {pack,       kRows,     &ScratchFloats, &Statistic,  &PreparedFloats, &PrepareRows,
            &BeginTile, &AddBlock, &AddRows,       &FinishTile, &Store};
  }

 private:
  using Products = typename Numbers::Products;
  static constexpr int64_t kParts = Products::kParts, kTile = kParts * kPairTile;
  static constexpr int64_t kChunk = Numbers::kChunk, kGroups = Numbers::kGroups,
                           kRows = kGroups * kPairGroupRows;
  static constexpr int64_t kScores =
      kChunk + 16;  // floats from a row of S or dP to the next: off powers of two
  static constexpr int64_t kDscores = kChunk + 32;  // elements from a part of a row of dS to the next, likewise
  static constexpr int64_t kColumnKeys =
      kBackwardKeys + 16;  // from a channel of dK or dV to the next, likewise

  static int64_t Padded(int64_t channels) { return PaddedWidth(channels, kPairDepth); }

  // A block's prepared rows, as many as whole groups have: Q and dO as they came, then turned, without what is
  // not finite. A row's, or a channel's, parts stand one after the other.
  template <class T>
  struct RowOperands {
    int64_t d, dv, stride;
    T *queries, *douts;               // (rows, parts, D), (rows, parts, Dv)
    T *query_columns, *dout_columns;  // (D, parts, rows), (Dv, parts, rows)

    RowOperands(const Layout& layout, int64_t rows, T* memory)
        : d(Padded(layout.d)),
          dv(Padded(layout.dv)),
          stride(PaddedWidth(rows, kPairGroupRows)),
          queries(memory),
          douts(queries + stride * d * kParts),
          query_columns(douts + stride * dv * kParts),
          dout_columns(query_columns + stride * d * kParts) {}
  };

  static int64_t PreparedFloats(const Layout& layout, int64_t rows) noexcept {
    return PaddedWidth(rows, kPairGroupRows) * (Padded(layout.d) + Padded(layout.dv)) * kParts;
  }

  // The scratch memory's parts. Channels are padded with zeros to whole pair tiles, and so are a block's rows.
  struct Parts {
    int64_t d, dv;           // padded
    int64_t floats = 0;      // of all
    BFloat16* keys;          // packed as keys
    BFloat16* key_rows;      // K packed as values
    BFloat16* values;        // V packed as keys
    float* scores;           // (2, 32, chunk): S of items in turn
    float* dweights;         // (2, 32, chunk): dP
    BFloat16* weight_tiles;  // P of chunks in turn: for each 16 keys, for each group, a tile
    BFloat16* dscore_tiles;  // dS
    BFloat16* dscore_rows;   // (2, 32, parts, chunk): dS of items in turn
    float* dq;               // (rows, D)
    float* bias_sums;        // (rows)
    float* dk_columns;       // (D, keys), without the scale
    float* dv_columns;       // (Dv, keys)
    float* dk;               // (keys, D)
    float* dv_rows;          // (keys, Dv)

    explicit Parts(BackwardScratch& scratch) : Parts(scratch.layout, scratch.memory.data()) {}
    Parts(const Layout& layout, float* memory) : d(Padded(layout.d)), dv(Padded(layout.dv)) {
      const auto take = [&](int64_t count) {
        float* part = memory + floats;
        floats += PaddedWidth(count, kAlignment / sizeof(float));
        return part;
      };
      const auto numbers = [&](int64_t count) { return reinterpret_cast<BFloat16*>(take(count * kParts / 2)); };
      keys = numbers(kBackwardKeys * d), key_rows = numbers(kKeyTile * d), values = numbers(kBackwardKeys * dv);
      scores = take(2 * kPairGroupRows * kScores), dweights = take(2 * kPairGroupRows * kScores);
      weight_tiles = numbers(2 * kRows * kChunk), dscore_tiles = numbers(2 * kRows * kChunk);
      dscore_rows = numbers(2 * kPairGroupRows * kDscores);
      dq = take(kRows * d), bias_sums = take(kRows);
      dk_columns = take(d * kColumnKeys), dv_columns = take(dv * kColumnKeys);
      dk = take(kBackwardKeys * d), dv_rows = take(kBackwardKeys * dv);
    }

    BFloat16* DscoreRows(int64_t buffer) const {
      return dscore_rows + buffer * kPairGroupRows * kParts * kDscores;
    }

    // The tile of 16 keys and a group, of weight_tiles or dscore_tiles; the next group's follows.
    static int64_t TileAt(int64_t key, int64_t group) {
      return (key % (2 * kChunk) / kPairColumns * kGroups + group) * kTile;
    }
  };

  static int64_t ScratchFloats(const Layout& layout) noexcept { return Parts(layout, nullptr).floats; }

  static void BeginTile(const BackwardTile& tile, const PackKernels& pack, BackwardScratch& scratch) noexcept {
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

    Groups(const Block& block, int64_t tile_first)
        : count((block.count + kPairGroupRows - 1) / kPairGroupRows) {
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

  // Returns whether dO is finite. Rows that see nothing are zeros, as are those past the block's.
  static Values PrepareRows(const BackwardBlock& block, float* prepared) noexcept {
    const PhaseTimer timer(Phase::kRows);
    const RowOperands to(*block.block.layout, block.block.count, reinterpret_cast<BFloat16*>(prepared));
    const int64_t d_row = kParts * to.d, dv_row = kParts * to.dv, stride = kParts * to.stride;
    Values finite = Values::kFinite;
    for (int64_t row = 0; row < to.stride; row += kPairGroupRows) {
      BFloat16* queries = to.queries + row * d_row;
      BFloat16* douts = to.douts + row * dv_row;
      for (int64_t r = 0; r < kPairGroupRows; ++r) {
        const int64_t n = row + r;
        if (n < block.block.count && block.block.rows[n].first < block.block.rows[n].last) {
          Numbers::LoadRows(block, n, queries + r * d_row, to.d, douts + r * dv_row, to.dv);
        } else {
          std::fill_n(queries + r * d_row, d_row, BFloat16{});
          std::fill_n(douts + r * dv_row, dv_row, BFloat16{});
        }
      }
      for (int64_t p = 0; p < kParts; ++p) {
        TurnRows(queries + p * to.d, d_row, to.d, to.query_columns + p * to.stride + row, stride);
        const Values some =
            TurnRows(douts + p * to.dv, dv_row, to.dv, to.dout_columns + p * to.stride + row, stride);
        if (some != Values::kFinite) finite = some;
      }
    }
    return finite;
  }

  // What a row of a chunk holds: S and dP, of which one step makes P and dS, or those already.
  enum class RowState { kScores, kDone };

  template <RowState kState>
  static HWY_INLINE Gradients GradientsAt(const ChunkRow& row, int64_t j, __m512 factor) {
    const __m512 s = _mm512_load_ps(row.scores + j), dp = _mm512_load_ps(row.dweights + j);
    if constexpr (kState == RowState::kScores) return Numbers::GradientsOf(s, dp, row, factor);
    const __m512 unit = _mm512_set1_ps(Numbers::kUnit);
    return {_mm512_mul_ps(s, unit), _mm512_mul_ps(dp, unit)};
  }

  // P and dS of two rows and 32 keys.
  template <RowState kFirst, RowState kSecond>
  static void StorePair(const RowPair& pair, int64_t j) {
    const __m512 factor = _mm512_set1_ps(pair.factor);
    Gradients even[2], odd[2];
    QKV_UNROLL for (int n = 0; n < 2; ++n) {
      even[n] = GradientsAt<kFirst>(pair.row[0], j + 16 * n, factor);
      odd[n] = GradientsAt<kSecond>(pair.row[1], j + 16 * n, factor);
    }
    Numbers::Store(even, odd, pair.to, j);
  }

  // A group's part of a chunk.
  struct Item {
    Group group;
    Range keys;
    int64_t buffer;   // of two
    bool ends_chunk;  // no group after it sees the chunk
  };

  // An item's S and dP become P and dS, two rows at a time.
  class ItemGradients {
   public:
    ItemGradients(const BackwardBlock& block, const BackwardTile& tile, const Parts& parts)
        : block_(block), tile_(tile), parts_(parts) {
      const ScoreRules& rules = *block.block.rules;
      scale_ = static_cast<float>(block.block.layout->scale);
      // Rules on scores want them scaled; and minus infinity times the scale must stay what it is.
      scale_first_ = rules.softcap || rules.has_alibi || rules.has_bias || !(scale_ > 0);
      every_row_ = rules.has_mask || scale_first_;
      all_at_length_ = rules.softcap || rules.dropout;
    }

    void Begin(const Item& item) {
      rows_ = item.group, keys_ = item.keys;
      scores_ = parts_.scores + item.buffer * kPairGroupRows * kScores;
      dweights_ = parts_.dweights + item.buffer * kPairGroupRows * kScores;
      dscore_rows_ = parts_.DscoreRows(item.buffer);
      row_ = key_ = 0;
    }

    // 32 keys of two rows, if there are any left.
    HWY_INLINE void RunPiece() {
      if (row_ == kPairGroupRows) return;
      if (key_ == 0) BeginPair();
      store_(pair_, key_);
      key_ += kPairDepth;
      if (key_ < count()) return;
      key_ = 0, row_ += 2;
    }
    void Finish() {
      while (row_ < kPairGroupRows) RunPiece();
    }

   private:
    void BeginPair() {
      constexpr RowState kScores = RowState::kScores, kDone = RowState::kDone;
      const RowState first = Prepare(row_), second = Prepare(row_ + 1);
      if (first == kScores)
        store_ = second == kScores ? &StorePair<kScores, kScores> : &StorePair<kScores, kDone>;
      else
        store_ = second == kScores ? &StorePair<kDone, kScores> : &StorePair<kDone, kDone>;
      pair_ = {{RowAt(row_), RowAt(row_ + 1)}, scale_first_ ? kLog2E : scale_ * kLog2E, TargetsAt(row_)};
    }

    int64_t count() const { return keys_.last - keys_.first; }
    float* scores(int64_t r) const { return scores_ + r * kScores; }
    float* dweights(int64_t r) const { return dweights_ + r * kScores; }

    ChunkRow RowAt(int64_t r) const {
      const RowStatistic own = r < rows_.rows ? block_.rows[rows_.row + r].statistic : RowStatistic{};
      const float delta = Numbers::kExponent == Exponent::kOneMultiplication ? own.delta * own.lost : own.delta;
      return {scores(r), dweights(r), own.base * kLog2E, delta};
    }

    PairTargets TargetsAt(int64_t r) const {
      const int64_t at = Parts::TileAt(keys_.first, rows_.row / kPairGroupRows) + r * kPairColumns;
      return {parts_.weight_tiles + at, parts_.dscore_tiles + at, dscore_rows_ + r * kParts * kDscores,
              kGroups * kTile,          kParts * kDscores,        kDscores};
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
                       !(std::abs(own.statistic.base) <= Numbers::kLargest))) {
        Scale(scores(r));
        DifferentiateRow(block_, n, tile_, keys_, Numbers::kExponent, scores(r) - keys_.first,
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
    float scale_;
    bool scale_first_, every_row_, all_at_length_;
    Group rows_;
    Range keys_;
    float *scores_ = nullptr, *dweights_ = nullptr;
    BFloat16* dscore_rows_ = nullptr;
    int64_t row_ = kPairGroupRows, key_ = 0;  // what is next
    RowPair pair_;                            // the one at row_
    void (*store_)(const RowPair& pair, int64_t j) = nullptr;
  };

  // A block's items one after the other.
  class Pipeline {
   public:
    Pipeline(const BackwardBlock& block, const BackwardTile& tile, const Groups& groups, const Parts& parts)
        : block_(block),
          tile_(tile),
          groups_(groups),
          parts_(parts),
          rows_(*block.block.layout, block.block.count, reinterpret_cast<const BFloat16*>(block.prepared)),
          gradients_(block, tile, parts),
          ahead_(reinterpret_cast<const char*>(block.ahead)),
          ahead_end_(block.ahead == nullptr ? ahead_
                                            : ahead_ + PreparedFloats(*block.block.layout, kRows) * 4) {}

    void Run() {
      const Range all = groups_.all;
      for (int64_t chunk = all.first / kChunk * kChunk; chunk < all.last; chunk += kChunk) RunChunk(chunk);
      Drain();
    }

   private:
    static Range Meet(Range keys, int64_t chunk) {
      return {std::max(chunk, keys.first), std::min(chunk + kChunk, keys.last)};
    }

    void RunChunk(int64_t chunk) {
      int64_t last = groups_.count - 1;
      while (last >= 0 && Meet(groups_.group[last].keys, chunk).empty()) --last;
      if (last < 0) return Drain();  // tiles are of two chunks that follow each other
      for (int64_t g = 0; g <= last; ++g) {
        const Range keys = Meet(groups_.group[g].keys, chunk);
        if (keys.empty()) continue;
        const Item item = {groups_.group[g], keys, buffer_ ^= 1, g == last};
        Advance(&item);
      }
    }

    void Drain() {
      Advance(nullptr);
      Advance(nullptr);
    }

    // The next item's S and dP, the present one's P and dS, what follows from the one before.
    void Advance(const Item* next) {
      PhaseTimer timer(Phase::kScores);
      if (next != nullptr) {
        MultiplyScores(*next, rows_.queries, parts_.d, parts_.keys, parts_.scores);
        MultiplyScores(*next, rows_.douts, parts_.dv, parts_.values, parts_.dweights);
      }
      timer.Next(Phase::kGradients);
      if (before_) {
        MultiplyKeyRows(*before_);
        if (before_->ends_chunk) AddKeysAndValues(before_->keys.first / kChunk * kChunk);
      }
      timer.Next(Phase::kSoftmax);
      gradients_.Finish();
      before_ = present_;
      present_.reset();
      if (next == nullptr) return;
      present_ = *next;
      gradients_.Begin(*next);
    }

    void Multiply(const PairProduct& product) {
      products_.RunAmong(product, [&] {
        gradients_.RunPiece();
        Ask();
      });
    }

    // For the next block's rows, so that they are there when their turn comes.
    HWY_INLINE void Ask() {
      if (ahead_ >= ahead_end_) return;
      QKV_UNROLL for (int line = 0; line < kAskedLines; ++line) _mm_prefetch(ahead_ + line * 64, _MM_HINT_T1);
      ahead_ += kAskedLines * 64;
    }
    static constexpr int kAskedLines = 8;

    // S = Q K^T of an item, or dP = dO V^T: rows of `depth` numbers times packed keys.
    void MultiplyScores(const Item& item, const BFloat16* rows, int64_t depth, const BFloat16* packed,
                        float* to) {
      const int64_t steps = depth / kPairDepth, next = steps * kTile;  // from 16 keys to the next
      to += item.buffer * kPairGroupRows * kScores;
      for (int64_t key = item.keys.first; key < item.keys.last; key += 2 * kPairColumns) {
        const BFloat16* b = packed + key / kPairColumns * next;
        Multiply({rows + item.group.row * kParts * depth,
                  kParts * depth,
                  {b, b + next},
                  to + key - item.keys.first,
                  kScores,
                  item.group.rows,
                  steps,
                  Start::kZero,
                  depth});
      }
    }

    // dQ += dS K of an item.
    void MultiplyKeyRows(const Item& item) {
      constexpr int64_t kNext = kKeyTile / kPairDepth * kTile;  // from 16 channels to the next
      const int64_t first_chunk = item.group.keys.first / kChunk, chunk = item.keys.first / kChunk;
      for (int64_t c = 0; c < parts_.d; c += 2 * kPairColumns) {
        const BFloat16* b = parts_.key_rows + c / kPairColumns * kNext + item.keys.first / kPairDepth * kTile;
        Multiply({parts_.DscoreRows(item.buffer),
                  kParts * kDscores,
                  {b, b + kNext},
                  parts_.dq + item.group.row * parts_.d + c,
                  parts_.d,
                  item.group.rows,
                  (item.keys.last - item.keys.first) / kPairDepth,
                  chunk == first_chunk ? Start::kZero : Start::kAdd,
                  kDscores});
      }
    }

    // to (channels, keys) += columns (channels, rows) * tiles (rows, keys), for 32 keys and groups [first,
    // last).
    void MultiplyTiles(int64_t key, int64_t first, int64_t last, const BFloat16* columns, int64_t channels,
                       const BFloat16* tiles, float* to) {
      for (int64_t c = 0; c < channels; c += kPairGroupRows) {
        Multiply({columns + c * kParts * rows_.stride + first * kPairGroupRows,
                  kParts * rows_.stride,
                  {tiles + Parts::TileAt(key, first), tiles + Parts::TileAt(key + kPairColumns, first)},
                  to + c * kColumnKeys + key,
                  kColumnKeys,
                  kPairGroupRows,
                  last - first,
                  Start::kAdd,
                  rows_.stride});
      }
    }

    bool Sees(int64_t g, int64_t key) const {
      return g < groups_.count && groups_.group[g].keys.first <= key && key < groups_.group[g].keys.last;
    }

    // dV^T += dO^T P and dK^T += Q^T dS of a chunk, over the groups that see each 32 keys only.
    void AddKeysAndValues(int64_t chunk) {
      const Range keys = Meet(groups_.all, chunk);
      for (int64_t key = keys.first; key < keys.last; key += kPairDepth) {
        for (int64_t g = 0; g < groups_.count; ++g) {
          const int64_t first = g;
          while (Sees(g, key)) ++g;
          if (g == first) continue;
          MultiplyTiles(key, first, g, rows_.dout_columns, parts_.dv, parts_.weight_tiles, parts_.dv_columns);
          MultiplyTiles(key, first, g, rows_.query_columns, parts_.d, parts_.dscore_tiles, parts_.dk_columns);
        }
      }
      if constexpr (kParts == 1) {
        if (block_.finite == Values::kSomeNotFinite) AddLost(keys);
      }
    }

    // What of dO was not finite.
    void AddLost(Range keys) {
      AddNotFinite(
          block_, tile_, keys, [&](int64_t r, int64_t c) { return ToFloat(rows_.douts[r * parts_.dv + c]); },
          [&](int64_t r, int64_t j) {
            const int64_t pair = r % kPairGroupRows / 2 * kPairDepth + j % kPairColumns * 2;
            return ToFloat(parts_.weight_tiles[Parts::TileAt(j, r / kPairGroupRows) + pair + r % 2]);
          },
          [&](int64_t j, int64_t c) -> float& { return parts_.dv_columns[c * kColumnKeys + j]; });
    }

    const BackwardBlock& block_;
    const BackwardTile& tile_;
    const Groups& groups_;
    const Parts& parts_;
    RowOperands<const BFloat16> rows_;
    ItemGradients gradients_;  // of present_
    Products products_;
    std::optional<Item> present_, before_;
    int64_t buffer_ = 0;
    const char *ahead_, *ahead_end_;
  };

  static bool AddBlock(const BackwardBlock& block, const BackwardTile& tile,
                       BackwardScratch& scratch) noexcept {
    const Groups groups(block.block, tile.first);
    if (groups.all.empty()) return false;
    const Parts parts(scratch);
    std::fill_n(parts.bias_sums, block.block.count, 0.0f);
    for (int64_t g = 0; g < groups.count; ++g) {
      const Group& group = groups.group[g];
      if (group.keys.empty()) std::fill_n(parts.dq + group.row * parts.d, group.rows * parts.d, 0.0f);
    }
    Pipeline(block, tile, groups, parts).Run();
    return true;
  }

  static void AddRows(const BackwardBlock& block, BackwardScratch& scratch) noexcept {
    const Parts parts(scratch);
    AddParts(block, parts.dq, parts.d, 1 / Numbers::kUnit, parts.bias_sums);
  }

  // Columns of keys become rows, times `scale`.
  static void TurnColumns(const float* columns, int64_t channels, float scale, int64_t count, float* rows) {
    const F32 tag;
    for (int64_t key = 0; key < count; key += kPairColumns) {
      for (int64_t c = 0; c < channels; c += kPairColumns) {
        const float* from[kPairColumns];
        for (int64_t i = 0; i < kPairColumns; ++i) from[i] = columns + (c + i) * kColumnKeys;
        TransposeSquare(from, key, rows + key * channels + c, channels);
      }
    }
    for (int64_t i = 0; i < count * channels; i += Lanes()) {
      hn::Store(hn::Mul(hn::Load(tag, rows + i), hn::Set(tag, scale)), tag, rows + i);
    }
  }

  static TileGradients FinishTile(const BackwardTile& tile, BackwardScratch& scratch) noexcept {
    const PhaseTimer timer(Phase::kRows);
    const Parts parts(scratch);
    const float scale = static_cast<float>(scratch.layout.scale) / Numbers::kUnit;
    TurnColumns(parts.dk_columns, parts.d, scale, tile.held, parts.dk);
    TurnColumns(parts.dv_columns, parts.dv, 1 / Numbers::kUnit, tile.held, parts.dv_rows);
    return {parts.dk, parts.dv_rows, parts.d, parts.dv};
  }
};

}  // namespace HWY_NAMESPACE
}  // namespace qkv
HWY_POP_ATTRIBUTES

#endif  // include guard
