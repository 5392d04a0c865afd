#include "kernels/triple_matmul.h"

#include <algorithm>

#include "kernels/pairs.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/triple_matmul.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h.
#include "hwy/highway.h"

#if HWY_TARGET == HWY_AVX3
#include "kernels/matmul_block-inl.h"
#include "kernels/triple_products-inl.h"

HWY_PUSH_ATTRIBUTES(HWY_TARGET_STR ",avx512bf16")
namespace qkv {
namespace HWY_NAMESPACE {
namespace {

constexpr int64_t kLines = 16;  // of a square: 16 lines of 32 numbers, or 32 lines of 16, are split at once
constexpr int64_t kGroupRows = kPairGroupRows, kPanelColumns = kBlockPanel;
constexpr int64_t kPanels = kTripleBlockOfPiece.columns / kPanelColumns;         // of any block
constexpr int64_t kSummedPanels = kTripleBlockOfPieces.columns / kPanelColumns;  // of one whose sums are kept
constexpr int64_t kSummedGroups = kTripleBlockOfPieces.rows / kGroupRows;
constexpr int64_t kPart = kTriplePiece + kPairDepth;  // from a packed row's part to the next: off powers of two
constexpr int64_t kRowStride = kTripleParts * kPart;
constexpr int64_t kPanel = 2 * kTriplePiece / kPairDepth * kTripleTile;  // elements at most

struct Scratch {
  BFloat16* columns;  // of b: panels
  BFloat16* rows;     // of a: a group
  float* sums;        // for each group, for each panel, (32, 32)

  explicit Scratch(float* memory)
      : columns(reinterpret_cast<BFloat16*>(memory)),
        rows(columns + kPanels * kPanel),
        sums(memory + Factors()) {}
  static int64_t Factors() { return (kPanels * kPanel + kGroupRows * kRowStride) / 2; }
  static int64_t Floats() { return Factors() + kSummedGroups * kSummedPanels * kPanelSums; }
};

// A piece of the depth: pieces are as even as whole steps allow.
struct Piece {
  int64_t first, depth;
  bool last;

  static int64_t Each(int64_t all) {
    const int64_t pieces = (all + kTriplePiece - 1) / kTriplePiece;
    return PaddedWidth((all + pieces - 1) / pieces, kPairDepth);
  }
  Piece(int64_t k, int64_t all) : first(k), depth(std::min(Each(all), all - k)), last(k + depth == all) {}
  bool whole() const { return first == 0 && last; }
  int64_t steps() const { return (depth + kPairDepth - 1) / kPairDepth; }
};

// A panel's part of columns that are split beforehand, in a piece.
struct SplitPart {
  BFloat16* tiles;
  uint8_t* odd;

  SplitPart(const TripleColumns& all, const Piece& piece, int64_t panel) {
    static_assert(TripleColumns::kStep == kPairDepth && TripleColumns::kStep == kPanelColumns);
    const int64_t before = piece.first / kPairDepth * all.panels();
    tiles = all.tiles + (before + panel * piece.steps()) * 2 * kTripleTile;
    odd = all.odd + before + panel;
  }
};

// What lies in a factor: `lines` lines, `count` numbers each. `ahead`: what will be read soon, so that memory
// is never idle; past the end of memory that does no harm.
struct Square {
  const float* from;
  int64_t stride, lines, count, ahead;
};

HWY_INLINE __mmask16 Some(int64_t count) { return FirstOf16(std::max<int64_t>(count, 0)); }

HWY_INLINE __m512 LoadLine(const Square& s, int64_t r, int64_t first, __mmask16 some) {
  const float* from = s.from + r * s.stride + first;
  __builtin_prefetch(from + s.ahead, /*rw=*/0, /*locality=*/2);
  return HWY_LIKELY(r < s.lines) ? _mm512_maskz_loadu_ps(some, from) : _mm512_setzero_ps();
}

// 16 lines of 32 numbers to triples, rows `stride` and parts `part` elements apart. Returns whether any is odd.
HWY_INLINE bool SplitRows(const Square& s, BFloat16* to, int64_t stride, int64_t part) {
  const __mmask16 lower = Some(s.count), upper = Some(s.count - 16);
  __mmask16 odd = 0;
  QKV_UNROLL for (int64_t r = 0; r < kLines; ++r, to += stride) {
    const __m512 first = LoadLine(s, r, 0, lower), second = LoadLine(s, r, 16, upper);
    odd |= OddOnes<kLeastMultiplied>(first) | OddOnes<kLeastMultiplied>(second);
    StoreTriples(first, second, to, part);
  }
  return odd != 0;
}

// 32 lines of 16 numbers to a triple tile: a pair is of two lines, a column a number. sums: (16), += the
// columns' sums, or null.
HWY_INLINE bool SplitColumns(const Square& s, BFloat16* to, float* sums) {
  const __mmask16 some = Some(s.count);
  __m512 sum = _mm512_setzero_ps();
  __mmask16 odd = 0;
  QKV_UNROLL for (int64_t r = 0; r < kPairDepth; r += 2, to += kPairDepth) {
    const __m512 first = LoadLine(s, r, 0, some), second = LoadLine(s, r + 1, 0, some);
    sum = _mm512_add_ps(sum, _mm512_add_ps(first, second));
    odd |= OddOnes<kLeastMultiplied>(first) | OddOnes<kLeastMultiplied>(second);
    StoreTripleColumns(first, second, to);
  }
  if (sums != nullptr) {
    _mm512_mask_storeu_ps(sums, some, _mm512_add_ps(_mm512_maskz_loadu_ps(some, sums), sum));
  }
  return odd != 0;
}

// A square's parts, turned: 16 rows of 16 pairs each to rows `stride` and parts `part` elements apart.
HWY_INLINE void Turn(const BFloat16* square, BFloat16* to, int64_t stride, int64_t part) {
  for (int64_t p = 0; p < kTripleParts; ++p, square += kPairTile, to += part) {
    __m512i a[kLines];
    QKV_UNROLL for (int64_t r = 0; r < kLines; ++r) a[r] = _mm512_load_si512(square + r * kPairDepth);
    TransposePairs(a, to, stride);
  }
}

// A block's factors as triples in the thread's own memory.
class Packed {
 public:
  // columns, rows: where they go; null where none are packed.
  Packed(const TripleBlock& block, BFloat16* columns, BFloat16* rows)
      : block_(block), packed_columns_(columns), rows_(rows) {}

  // All columns, unless they are split; memory is read along its lines.
  void PackColumns(const Piece& piece) {
    half_ = piece.steps() * kTripleTile;
    if (block_.split != nullptr) return UseSplit(piece);
    columns_ = packed_columns_;
    std::fill_n(odd_panels_, kPanels, false);
    const bool by_rows = block_.b.order == FactorOrder::kRows;
    const int64_t padded = PaddedWidth(block_.columns, kPanelColumns);
    if (by_rows) {
      for (int64_t k = 0; k < piece.depth; k += kPairDepth) {
        for (int64_t column = 0; column < padded; column += kLines) PackRowsOfColumns(piece, column, k);
      }
      return;
    }
    for (int64_t column = 0; column < padded; column += kLines) {
      for (int64_t k = 0; k < piece.depth; k += kPairDepth) PackTurnedColumns(piece, column, k);
    }
  }

  // A group of rows.
  void PackRows(const Piece& piece, int64_t row) {
    odd_rows_ = false;
    const bool by_rows = block_.a.order == FactorOrder::kRows;
    const int64_t last = std::min(block_.rows, row + kGroupRows);
    for (int64_t r = row; r < last; r += kLines) {
      for (int64_t k = 0; k < piece.depth; k += kPairDepth) {
        BFloat16* to = rows_ + (r - row) * kRowStride + k;
        odd_rows_ |= by_rows ? PackPlainRows(piece, r, k, to) : PackTurnedRows(piece, r, k, to);
      }
    }
  }

  const BFloat16* Rows() const { return rows_; }
  const BFloat16* Columns(int64_t column) const { return columns_ + column / kLines * half_; }
  int64_t half() const { return half_; }
  bool IsOdd(int64_t column) const { return odd_rows_ || odd_panels_[column / kPanelColumns]; }

 private:
  BFloat16* TileOf(int64_t column, int64_t k) {
    return packed_columns_ + column / kLines * half_ + k / kPairDepth * kTripleTile;
  }

  void UseSplit(const Piece& piece) {
    const SplitPart part(*block_.split, piece, block_.split_column / kPanelColumns);
    columns_ = part.tiles;
    for (int64_t p = 0; p * kPanelColumns < block_.columns; ++p) odd_panels_[p] = part.odd[p] != 0;
  }

  void PackRowsOfColumns(const Piece& piece, int64_t column, int64_t k) {
    const TripleFactor& b = block_.b;
    const float* from =
        b.data + column / kTriplePanel * b.panel + column % kTriplePanel + (piece.first + k) * b.stride;
    const Square square{from, b.stride, piece.depth - k, block_.columns - column, kPairDepth * b.stride};
    float* sums = block_.column_sums == nullptr ? nullptr : block_.column_sums + column;
    odd_panels_[column / kPanelColumns] |= SplitColumns(square, TileOf(column, k), sums);
  }
  void PackTurnedColumns(const Piece& piece, int64_t column, int64_t k) {
    const TripleFactor& b = block_.b;
    const float* from = b.data + column * b.stride + piece.first + k;
    alignas(64) BFloat16 turned[kTripleTile];
    const Square square{from, b.stride, block_.columns - column, piece.depth - k, kLines * b.stride};
    odd_panels_[column / kPanelColumns] |= SplitRows(square, turned, kPairDepth, kPairTile);
    Turn(turned, TileOf(column, k), kPairDepth, kPairTile);
  }
  bool PackPlainRows(const Piece& piece, int64_t row, int64_t k, BFloat16* to) {
    const TripleFactor& a = block_.a;
    const float* from = a.data + row * a.stride + piece.first + k;
    return SplitRows({from, a.stride, block_.rows - row, piece.depth - k, kGroupRows * a.stride}, to,
                     kRowStride, kPart);
  }
  bool PackTurnedRows(const Piece& piece, int64_t row, int64_t k, BFloat16* to) {
    const TripleFactor& a = block_.a;
    const float* from = a.data + (piece.first + k) * a.stride + row;
    alignas(64) BFloat16 turned[kTripleTile];
    const bool odd =
        SplitColumns({from, a.stride, piece.depth - k, block_.rows - row, kGroupRows}, turned, nullptr);
    Turn(turned, to, kRowStride, kPart);
    return odd;
  }

  const TripleBlock& block_;
  BFloat16 *packed_columns_, *rows_;
  const BFloat16* columns_ = nullptr;  // packed_columns_, or those that were split beforehand
  int64_t half_ = 0;                   // elements of a panel's 16 columns
  bool odd_rows_ = false, odd_panels_[kPanels] = {};
};

// 32 columns of float32, 32 of depth, zeros past the last.
void CopyColumns(const TripleFactor& b, int64_t k, int64_t depth, int64_t column, int64_t columns, float* to) {
  for (int64_t i = k; i < k + depth; ++i) {
    for (int64_t c = column; c < column + kPanelColumns; ++c, ++to) {
      const int64_t at = b.order == FactorOrder::kColumns
                             ? c * b.stride + i
                             : c / kTriplePanel * b.panel + c % kTriplePanel + i * b.stride;
      *to = c < columns ? b.data[at] : 0.0f;
    }
  }
}

// Four rows of sums += rows of a times 32 columns, in float32. a: element (r, k) at row[r] + k * across.
void AddOddRows(const float* const (&row)[4], int64_t across, int64_t depth, const float* columns,
                float* sums) {
  __m512 sum[4][2];
  QKV_UNROLL for (int r = 0; r < 4; ++r) {
    QKV_UNROLL for (int n = 0; n < 2; ++n) sum[r][n] = _mm512_load_ps(sums + r * kPanelColumns + n * 16);
  }
  for (int64_t k = 0; k < depth; ++k, columns += kPanelColumns) {
    const __m512 column0 = _mm512_load_ps(columns), column1 = _mm512_load_ps(columns + 16);
    QKV_UNROLL for (int r = 0; r < 4; ++r) {
      const __m512 factor = _mm512_set1_ps(row[r][k * across]);
      sum[r][0] = _mm512_fmadd_ps(factor, column0, sum[r][0]);
      sum[r][1] = _mm512_fmadd_ps(factor, column1, sum[r][1]);
    }
  }
  QKV_UNROLL for (int r = 0; r < 4; ++r) {
    QKV_UNROLL for (int n = 0; n < 2; ++n) _mm512_store_ps(sums + r * kPanelColumns + n * 16, sum[r][n]);
  }
}

// A group's products with a panel where either has odd numbers. Only numbers that exist are multiplied: padding
// would make NaN of infinity.
void MultiplyOdd(const TripleBlock& block, const Piece& piece, int64_t row, int64_t column, float* sums) {
  alignas(64) float columns[kPairDepth * kPanelColumns];
  const TripleFactor& a = block.a;
  const bool by_rows = a.order == FactorOrder::kRows;
  const int64_t down = by_rows ? a.stride : 1, across = by_rows ? 1 : a.stride;
  const int64_t last = std::min(block.rows, row + kGroupRows);
  if (piece.first == 0) std::fill_n(sums, kPanelSums, 0.0f);
  for (int64_t k = piece.first; k < piece.first + piece.depth; k += kPairDepth) {
    const int64_t depth = std::min(kPairDepth, piece.first + piece.depth - k);
    CopyColumns(block.b, k, depth, column, block.columns, columns);
    for (int64_t r = row; r < last; r += 4) {
      const float* rows[4];
      for (int64_t i = 0; i < 4; ++i) rows[i] = a.data + std::min(r + i, last - 1) * down + k * across;
      AddOddRows(rows, across, depth, columns, sums + (r - row) * kPanelColumns);
    }
  }
}

// Sums that need not be kept take turns in two places, which stay in the first-level cache.
int64_t SumsAt(const Piece& piece, int64_t row, int64_t column) {
  const int64_t panel = column / kPanelColumns;
  return (piece.whole() ? panel % 2 : row / kGroupRows * kSummedPanels + panel) * kPanelSums;
}

// A group's products with all panels; the last piece's go to their places. The next panel's sums are asked for
// on the way.
template <class Stores>
void MultiplyGroup(const TripleProducts& products, const TripleBlock& block, const Piece& piece,
                   const Packed& packed, int64_t row, float* all_sums, Stores& finished) {
  const int64_t steps = piece.steps(), stored = (kGroupRows + steps - 1) / steps;
  const int64_t rows = block.rows - row > kLines ? kGroupRows : kLines;
  const Start start = piece.first == 0 ? Start::kZero : Start::kAdd;
  for (int64_t column = 0; column < block.columns; column += kPanelColumns) {
    float* sums = all_sums + SumsAt(piece, row, column);
    const float* next = sums + kPanelSums;
    const auto between = [&]() HWY_ATTR {
      finished.StoreSome(stored);
      if (start == Start::kZero) return;
      for (int64_t r = 0; r < stored; ++r, next += kPanelColumns) {
        __builtin_prefetch(next), __builtin_prefetch(next + 16);
      }
    };
    if (piece.last) PrefetchOut(block, row, column);
    if (HWY_UNLIKELY(packed.IsOdd(column))) {
      finished.StoreSome(kGroupRows);  // from where sums may be
      MultiplyOdd(block, piece, row, column, sums);
    } else {
      const BFloat16* b = packed.Columns(column);
      products.RunAmong(
          {packed.Rows(), kRowStride, {b, b + packed.half()}, sums, kPanelColumns, rows, steps, start, kPart}, between);
    }
    if (piece.last) finished.Add(row, column, sums);
  }
}

void MultiplyBlock(const TripleBlock& block, float* memory) {
  const Scratch scratch(memory);
  const TripleProducts products;
  Packed packed(block, scratch.columns, scratch.rows);
  Finished<FloatElements, FloatElements> finished(block);
  for (int64_t k = 0; k < block.depth; k += Piece::Each(block.depth)) {
    const Piece piece(k, block.depth);
    packed.PackColumns(piece);
    for (int64_t row = 0; row < block.rows; row += kGroupRows) {
      packed.PackRows(piece, row);
      MultiplyGroup(products, block, piece, packed, row, scratch.sums, finished);
    }
  }
  finished.StoreSome(kGroupRows);
}

void SplitColumnsOnce(const TripleFactor& b, int64_t column, const TripleColumns& to) {
  TripleBlock block;
  block.b = b, block.depth = to.depth, block.columns = std::min(kTriplePanel, to.columns - column);
  for (int64_t k = 0; k < to.depth; k += Piece::Each(to.depth)) {
    const Piece piece(k, to.depth);
    const SplitPart part(to, piece, column / kPanelColumns);
    Packed packed(block, part.tiles, nullptr);
    packed.PackColumns(piece);
    for (int64_t c = 0; c < block.columns; c += kPanelColumns) part.odd[c / kPanelColumns] = packed.IsOdd(c);
  }
}

}  // namespace

int64_t TripleScratch() { return Scratch::Floats(); }
void TripleMatMulBlock(const TripleBlock& block, float* scratch) { MultiplyBlock(block, scratch); }
int64_t TripleColumnTiles(const TripleColumns& columns) { return columns.steps() * columns.panels() * 2 * kTripleTile; }
void SplitTriples(const TripleFactor& b, int64_t column, const TripleColumns& to) { SplitColumnsOnce(b, column, to); }

}  // namespace HWY_NAMESPACE
}  // namespace qkv
HWY_POP_ATTRIBUTES
#endif  // AVX-512

#if HWY_ONCE
namespace qkv {
#if HWY_TARGETS & HWY_AVX3
bool HasTripleMatMul(Isa isa) { return isa == Isa::kAmx; }
int64_t TripleMatMulScratch() { return N_AVX3::TripleScratch(); }
void MultiplyTripleBlock(const TripleBlock& block, float* scratch) noexcept {
  N_AVX3::TripleMatMulBlock(block, scratch);
}
int64_t TripleColumnElements(const TripleColumns& columns) { return N_AVX3::TripleColumnTiles(columns); }
void SplitTripleColumns(const TripleFactor& b, int64_t column, const TripleColumns& to) noexcept {
  N_AVX3::SplitTriples(b, column, to);
}
#else
bool HasTripleMatMul(Isa) { return false; }
int64_t TripleMatMulScratch() { return 0; }
void MultiplyTripleBlock(const TripleBlock&, float*) noexcept {}
int64_t TripleColumnElements(const TripleColumns&) { return 0; }
void SplitTripleColumns(const TripleFactor&, int64_t, const TripleColumns&) noexcept {}
#endif
}  // namespace qkv
#endif
