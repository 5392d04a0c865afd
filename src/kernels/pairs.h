// Kernels for bfloat16 q, k and v on processors that multiply pairs of bfloat16: products are exact and are added up
// in float32. Two instruction sets have them: AMX (tdpbf16ps: tiles of 16 x 32 by 32 x 16) and AVX-512's vdpbf16ps.
//
// Both read the same packed tiles. A pair tile holds 32 x 16 elements as (16 pairs, 16 columns, 2): 1 KiB, what one
// AMX register takes. Packed keys: for each 16 keys, for each 32 channels, one pair tile; a pair is two channels, a
// column a key. Packed values: for each 16 channels, for each 32 keys of the tile, one pair tile; a pair is two keys, a
// column a channel. Channels are padded with zeros to multiples of 32; so are keys past the tile's count.
//
//   size         value  reason
//   group rows   32     two AMX registers of rows by two of columns: 4 products for 4 loads
//   chunk keys   128    weights of a group (8 KiB) stay in the first-level cache beside its sums; reading and writing
//                       the sums is spread over four steps of depth
//   column keys  32     scores of a group (4 KiB) become weights before the next column's are multiplied
//   dot rows     12     12 x 2 accumulators, 2 vectors of the tile and a broadcast fill 27 of 32 registers
#pragma once

#include <cstdint>

#include "kernels/backward.h"
#include "kernels/block.h"
#include "kernels/pack.h"

namespace qkv {

inline constexpr int64_t kPairDepth = 32;        // elements of depth in a pair tile
inline constexpr int64_t kPairColumns = 16;      // columns of a pair tile
inline constexpr int64_t kPairTile = kPairDepth * kPairColumns;
inline constexpr int64_t kPairGroupRows = 32;    // rows whose scores are in the cache together
inline constexpr int64_t kPairChunk = 128;       // keys of a group's scores

// Whether the set has such kernels; the following may be called only then.
bool HasPairKernels(Isa isa);
PackKernels PairPackKernels();
ForwardKernels PairForwardKernelsFor(Isa isa);
BackwardKernels PairBackwardKernelsFor(Isa isa);

}  // namespace qkv
