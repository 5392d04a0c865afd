#include "kernels/pair_matmul.h"

#include <algorithm>
#include <cstring>

#include "kernels/pairs.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/pair_matmul.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h.
#include "hwy/highway.h"

#if HWY_TARGET == HWY_AVX3
#include "kernels/matmul_block-inl.h"
#include "kernels/pack_pairs-inl.h"
#include "kernels/pair_products-inl.h"

HWY_PUSH_ATTRIBUTES(HWY_TARGET_STR ",avx512bf16")
namespace qkv {
namespace HWY_NAMESPACE {
namespace {

constexpr int64_t kDepth = kPairBlockDepth, kColumns = kBlockPanel;  // of a piece, and of a panel
constexpr int64_t kRowStride = kDepth + kPairDepth;         // from a packed row to the next: off powers of two
constexpr int64_t kPanel = kDepth * kColumns;               // elements
constexpr int64_t kPanels = kPairBlockColumns / kColumns, kGroups = kPairBlockRows / kPairGroupRows;

struct Scratch {
  BFloat16* columns;  // of b: for each panel, for each 16 columns, the piece's pair tiles
  BFloat16* rows;     // of a, where they are not read where they lie
  float* sums;        // for each group, for each panel, (32, 32)

  explicit Scratch(float* memory)
      : columns(reinterpret_cast<BFloat16*>(memory)),
        rows(columns + kPanels * kPanel),
        sums(memory + (kPanels * kPanel + kPairBlockRows * kRowStride) / 2) {}
  static int64_t Floats() {
    return (kPanels * kPanel + kPairBlockRows * kRowStride) / 2 + kGroups * kPanels * kPanelSums;
  }
};

// Up to 32 elements, then zeros.
HWY_INLINE __m512i LoadSome(const BFloat16* from, int64_t count) {
  if (HWY_LIKELY(count >= kPairDepth)) return _mm512_loadu_si512(from);
  return _mm512_maskz_loadu_epi16(FirstOf32(count), from);
}

// Line r of `lines`, zeros from there on. The line that stands 32 on is asked for, so that memory is never
// idle.
HWY_INLINE __m512i LoadLine(const BFloat16* from, int64_t stride, int64_t r, int64_t lines, int64_t count) {
  __builtin_prefetch(from + (r + kPairDepth) * stride);
  return HWY_LIKELY(r < lines) ? LoadSome(from + r * stride, count) : _mm512_setzero_si512();
}

// 32 lines of which `lines` exist, `count` elements each, as two pair tiles `group` elements apart: a pair is
// of two lines, a column an element.
HWY_INLINE void PackLines(const BFloat16* from, int64_t stride, int64_t lines, int64_t count, BFloat16* to,
                          int64_t group) {
  QKV_UNROLL for (int64_t r = 0; r < kPairDepth; r += 2) {
    const __m512i even = LoadLine(from, stride, r, lines, count),
                  odd = LoadLine(from, stride, r + 1, lines, count);
    _mm512_store_si512(to + r * kPairColumns, PairLower(even, odd));
    _mm512_store_si512(to + r * kPairColumns + group, PairUpper(even, odd));
  }
}

// sums[c] += column c of 32 lines in two pair tiles.
HWY_INLINE void AddTileSums(const BFloat16* tile, int64_t group, int64_t columns, float* sums) {
  const __mmask32 some = FirstOf32(columns);
  QKV_UNROLL for (int half = 0; half < 2; ++half, tile += group, sums += kPairColumns) {
    const auto mask = static_cast<__mmask16>(some >> (half * kPairColumns));
    __m512 even = _mm512_setzero_ps(), odd = even;
    QKV_UNROLL for (int64_t pair = 0; pair < kPairDepth / 2; ++pair) {
      const __m512i bits = _mm512_load_si512(tile + pair * kPairDepth);
      even = _mm512_add_ps(even, _mm512_castsi512_ps(_mm512_slli_epi32(bits, 16)));
      odd = _mm512_add_ps(odd, _mm512_castsi512_ps(_mm512_and_si512(bits, _mm512_set1_epi32(-65536))));
    }
    _mm512_mask_storeu_ps(sums, mask,
                          _mm512_add_ps(_mm512_maskz_loadu_ps(mask, sums), _mm512_add_ps(even, odd)));
  }
}

// The same turned: 16 lines, a pair is of two elements of a line.
HWY_INLINE void PackTurned(const BFloat16* from, int64_t stride, int64_t lines, int64_t count, BFloat16* to) {
  __m512i a[kPairColumns];
  QKV_UNROLL for (int64_t r = 0; r < kPairColumns; ++r) a[r] = LoadLine(from, stride, r, lines, count);
  TransposePairs(a, to, 2 * kPairColumns);
}

// 32 channels of 32 lines, turned: row i of `to` is channel i of all lines.
HWY_INLINE void TurnSquare(const BFloat16* from, int64_t stride, int64_t lines, int64_t count, BFloat16* to) {
  __m512i lower[kPairColumns], upper[kPairColumns];
  QKV_UNROLL for (int64_t pair = 0; pair < kPairColumns; ++pair) {
    const __m512i even = LoadLine(from, stride, 2 * pair, lines, count);
    const __m512i odd = LoadLine(from, stride, 2 * pair + 1, lines, count);
    lower[pair] = PairLower(even, odd), upper[pair] = PairUpper(even, odd);
  }
  TransposePairs(lower, to, kRowStride);
  TransposePairs(upper, to + kPairColumns * kRowStride, kRowStride);
}

// A piece of the depth.
struct Piece {
  int64_t first, depth;
  bool last;

  Piece(int64_t k, int64_t all) : first(k), depth(std::min(kDepth, all - k)), last(k + kDepth >= all) {}
  bool whole() const { return first == 0 && last; }
  int64_t steps() const { return (depth + kPairDepth - 1) / kPairDepth; }
};

// The factor's columns as pair tiles, step by step: where they lie row after row, memory is read along its
// rows. sums:
// += the columns' sums, or null.
void PackPiece(const PairFactor& b, int64_t all_columns, const Piece& piece, BFloat16* to,
               float* sums = nullptr) {
  const int64_t half = piece.steps() * kPairTile;
  for (int64_t k = 0; k < piece.depth; k += kPairDepth, to += kPairTile) {
    for (int64_t column = 0; column < all_columns; column += kColumns) {
      const int64_t depth = piece.depth - k, columns = all_columns - column;
      BFloat16* panel = to + column / kColumns * kPanel;
      if (b.order == FactorOrder::kRows) {
        PackLines(b.data + (piece.first + k) * b.stride + column, b.stride, depth, columns, panel, half);
        if (sums != nullptr) AddTileSums(panel, half, columns, sums + column);
        continue;
      }
      const BFloat16* from = b.data + column * b.stride + piece.first + k;
      PackTurned(from, b.stride, columns, depth, panel);
      PackTurned(from + kPairColumns * b.stride, b.stride, columns - kPairColumns, depth, panel + half);
    }
  }
}

bool LiesInWholeGroups(const PairBlock& block) {
  return block.a.order == FactorOrder::kRows && block.rows % kPairGroupRows == 0 &&
         block.depth % kPairDepth == 0;
}

// a's rows, padded with zeros to whole groups and steps.
void PackRows(const PairBlock& block, const Piece& piece, BFloat16* to) {
  const PairFactor& a = block.a;
  for (int64_t k = 0; k < piece.depth; k += kPairDepth) {
    for (int64_t row = 0; row < block.rows; row += kPairGroupRows) {
      const int64_t depth = piece.depth - k, rows = block.rows - row;
      BFloat16* square = to + row * kRowStride + k;
      if (a.order == FactorOrder::kColumns) {
        TurnSquare(a.data + (piece.first + k) * a.stride + row, a.stride, depth, rows, square);
        continue;
      }
      const BFloat16* from = a.data + row * a.stride + piece.first + k;
      for (int64_t r = 0; r < kPairGroupRows; ++r) {
        _mm512_store_si512(square + r * kRowStride, LoadLine(from, a.stride, r, rows, depth));
      }
    }
  }
}

// Sums that need not be kept take turns in two places, which stay in the first-level cache.
int64_t SumsAt(const Piece& piece, int64_t group, int64_t panel) {
  return piece.whole() ? panel % 2 * kPanelSums : (group * kPanels + panel) * kPanelSums;
}

// A group's products with all panels; the last piece's go to their places. The next panel's sums are asked for
// on the way.
template <class Finished>
void MultiplyGroup(const TileProducts& products, const PairBlock& block, const Piece& piece,
                   const BFloat16* columns, int64_t row, const Scratch& scratch, Finished& finished) {
  const bool in_place = LiesInWholeGroups(block);
  const int64_t stride = in_place ? block.a.stride : kRowStride;
  const BFloat16* a = in_place ? block.a.data + piece.first + row * stride : scratch.rows + row * stride;
  const int64_t steps = piece.steps(), stored = (kPairGroupRows + steps - 1) / steps;
  const Start start = piece.first == 0 ? Start::kZero : Start::kAdd;
  for (int64_t column = 0; column < block.columns; column += kColumns) {
    const int64_t panel = column / kColumns;
    const BFloat16* b = columns + panel * kPanel;
    float* sums = scratch.sums + SumsAt(piece, row / kPairGroupRows, panel);
    const float* next = sums + kPanelSums;
    const auto between = [&]() HWY_ATTR {
      finished.StoreSome(stored);
      if (start == Start::kZero) return;
      for (int64_t r = 0; r < stored; ++r, next += kColumns)
        __builtin_prefetch(next), __builtin_prefetch(next + 16);
    };
    if (piece.last) PrefetchOut(block, row, column);
    products.RunBeside({a, stride, {b, b + steps * kPairTile}, sums, kColumns, kPairGroupRows, steps, start},
                       between);
    if (piece.last) finished.Add(row, column, sums);
  }
}

template <class Out, class Added>
void MultiplyBlock(const PairBlock& block, float* memory) {
  const Scratch scratch(memory);
  const TileProducts products;
  Finished<Out, Added> finished(block);
  for (int64_t k = 0; k < block.depth; k += kDepth) {
    const Piece piece(k, block.depth);
    const BFloat16* columns = block.packed == nullptr ? scratch.columns : block.packed + k * kPairBlockColumns;
    if (block.packed == nullptr) PackPiece(block.b, block.columns, piece, scratch.columns, block.column_sums);
    if (!LiesInWholeGroups(block)) PackRows(block, piece, scratch.rows);
    for (int64_t row = 0; row < block.rows; row += kPairGroupRows) {
      MultiplyGroup(products, block, piece, columns, row, scratch, finished);
    }
  }
  finished.StoreSome(kPairGroupRows);
}

}  // namespace

int64_t MatMulScratch() { return Scratch::Floats(); }

void PackColumns(const PairFactor& b, int64_t columns, int64_t depth, BFloat16* packed) {
  for (int64_t k = 0; k < depth; k += kDepth)
    PackPiece(b, columns, Piece(k, depth), packed + k * kPairBlockColumns);
}

void MatMulBlock(const PairBlock& block, float* scratch) {
  if (block.out_dtype == DType::kF32) return MultiplyBlock<FloatElements, FloatElements>(block, scratch);
  if (block.added == block.out) return MultiplyBlock<PairElements, PairElements>(block, scratch);
  MultiplyBlock<PairElements, FloatElements>(block, scratch);
}

}  // namespace HWY_NAMESPACE
}  // namespace qkv
HWY_POP_ATTRIBUTES
#endif  // AVX-512

#if HWY_ONCE
namespace qkv {
#if HWY_TARGETS & HWY_AVX3
bool HasPairMatMul(Isa isa) { return isa == Isa::kAmx; }
int64_t PairMatMulScratch() { return N_AVX3::MatMulScratch(); }
void PackPairColumns(const PairFactor& b, int64_t columns, int64_t depth, BFloat16* packed) noexcept {
  N_AVX3::PackColumns(b, columns, depth, packed);
}
void MultiplyPairBlock(const PairBlock& block, float* scratch) noexcept { N_AVX3::MatMulBlock(block, scratch); }
#else
bool HasPairMatMul(Isa) { return false; }
int64_t PairMatMulScratch() { return 0; }
void PackPairColumns(const PairFactor&, int64_t, int64_t, BFloat16*) noexcept {}
void MultiplyPairBlock(const PairBlock&, float*) noexcept {}
#endif
}  // namespace qkv
#endif
