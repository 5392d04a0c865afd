// Blocks of products of float32 matrices on AMX's tiles, as triples of bfloat16
// (kernels/triple_products-inl.h), straight from where the factors lie: a thread splits what its block needs
// into its own caches and multiplies it there. Every element is one chain in ascending depth, whatever the
// block around it: groups of 32 rows, panels of 32 columns and pieces of the depth stand at fixed places.
//
// Numbers that triples cannot stand for (infinities, NaN, magnitudes above 2^60 or below 2^-102) are odd: a
// group and a panel of which either has one are multiplied in float32 in that piece.
//
//   size                 value  reason
//   piece                384    of depth at most: a group's triples (72 KiB) are read again for every panel
//   block, one piece     1,024 rows, 640 columns: the columns' triples (1.4 MiB) stay in the second-level cache
//   block, more pieces   512 rows, 384 columns: so do their triples (864 KiB) beside the sums (768 KiB)
#pragma once

#include <cstdint>

#include "kernels/matmul_block.h"
#include "runtime/cpu.h"

namespace qkv {

inline constexpr int64_t kTriplePiece = 384;
inline constexpr int kLeastMultiplied = -102;  // exponent below which a number but zero is odd: its low part counts
// With up to so many rows or columns, splitting the other factor takes longer than what it saves.
inline constexpr int64_t kFewTripleLines = 72;
inline constexpr int64_t kTriplePanel = 64;  // columns that always lie side by side in a row

struct BlockLimits {
  int64_t rows, columns;
};
inline constexpr BlockLimits kTripleBlockOfPiece{1024, 640}, kTripleBlockOfPieces{512, 384};
constexpr BlockLimits TripleBlockLimits(int64_t depth) {
  return depth <= kTriplePiece ? kTripleBlockOfPiece : kTripleBlockOfPieces;
}

struct TripleFactor : Factor<float> {
  // In order kRows: elements from 64 columns of a row to the next 64. kTriplePanel is an ordinary matrix; a
  // weight in panels (kernels/project.h) has them further apart, with rows `stride` = 64 apart.
  int64_t panel = kTriplePanel;
};

// A right factor that was split beforehand: for each 32 of its depth and each 16 of its columns, padded to whole panels
// of 32, a triple tile. Those of a piece of the depth lie column after column.
struct TripleColumns {
  BFloat16* tiles = nullptr;  // TripleColumnElements
  uint8_t* odd = nullptr;     // (steps of the depth, panels): at a piece's first step, whether it has odd numbers
  int64_t depth = 0, columns = 0;

  static constexpr int64_t kStep = 32;  // of the depth; and columns of a panel

  int64_t steps() const { return (depth + kStep - 1) / kStep; }
  int64_t panels() const { return (columns + kStep - 1) / kStep; }
};
int64_t TripleColumnElements(const TripleColumns& columns);
// Splits kTriplePanel columns from `column` on, where b begins. Needs HasTripleMatMul(ChosenIsa()).
void SplitTripleColumns(const TripleFactor& b, int64_t column, const TripleColumns& to) noexcept;

// The product of a (rows, depth) and b (depth, columns), within TripleBlockLimits; depth > 0. Apart from each
// other, but `added` may be out.
struct TripleBlock : BlockResult {
  TripleFactor a, b;
  int64_t depth = 0;
  const TripleColumns* split = nullptr;  // all of b, from whose column split_column on this block's are; or null
  int64_t split_column = 0;
  float* column_sums = nullptr;  // (columns): += the sums of b's columns, which lie row after row; or null
};

bool HasTripleMatMul(Isa isa);
// `scratch`: TripleMatMulScratch() floats that no other thread uses, aligned. Needs
// HasTripleMatMul(ChosenIsa()).
int64_t TripleMatMulScratch();
void MultiplyTripleBlock(const TripleBlock& block, float* scratch) noexcept;

}  // namespace qkv
