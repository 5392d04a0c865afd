// Blocks of products of bfloat16 matrices on AMX's tiles, straight from where the factors lie: what a block
// needs of them is brought into tiles on the way, in pieces that stay in the second-level cache. Sums are of
// float32, each element's one chain in ascending depth, whatever the block around it. A panel's sums are
// stored, with what is added to them, while the tiles multiply the next panel.
//
//   size           value  reason
//   group rows     32     two AMX registers of rows by two of columns: 4 products for 4 loads
//   block depth    512    a group's rows (32 KiB) are read from the first-level cache for all columns
//   block columns  384    their packed depth (384 KiB) stays in the second-level cache for all groups
//   block rows     512    the packing of the columns is spread over 16 groups; the sums (768 KiB), needed where
//   the
//                         depth is in several pieces, stay there too
#pragma once

#include <cstdint>

#include "kernels/matmul_block.h"
#include "runtime/cpu.h"

namespace qkv {

inline constexpr int64_t kPairBlockRows = 512, kPairBlockColumns = 384, kPairBlockDepth = 512;

using PairFactor = Factor<BFloat16>;

// The product of a (rows, depth) and b (depth, columns). rows <= kPairBlockRows, columns <= kPairBlockColumns. Apart
// from each other, but `added` may be out.
struct PairBlock : BlockResult {
  PairFactor a, b;
  const BFloat16* packed = nullptr;  // b in tiles, where several blocks use it; or null
  int64_t depth = 0;
  float* column_sums = nullptr;  // (columns): += the sums of b's columns, which lie row after row; or null
};

bool HasPairMatMul(Isa isa);
// `scratch`: PairMatMulScratch() floats that no other thread uses, aligned. Needs HasPairMatMul(ChosenIsa()).
int64_t PairMatMulScratch();
// b's columns in tiles, for the blocks that use them: PackedPairColumns(depth) elements, aligned.
constexpr int64_t PackedPairColumns(int64_t depth) {
  return (depth + kPairBlockDepth - 1) / kPairBlockDepth * kPairBlockDepth * kPairBlockColumns;
}
void PackPairColumns(const PairFactor& b, int64_t columns, int64_t depth, BFloat16* packed) noexcept;
void MultiplyPairBlock(const PairBlock& block, float* scratch) noexcept;

}  // namespace qkv
