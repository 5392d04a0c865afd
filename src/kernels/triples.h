// Kernels for attention in float32 on AMX's tiles of bfloat16: every number is a triple of bfloat16 numbers
// whose sum it is (kernels/triple_products-inl.h says how products are made of them, and how near they come).
//
// Packed as kernels/pairs.h has it, with a triple tile, the pair tiles of the high, the middle and the low
// parts, where a pair tile stands there: 3 KiB for 32 x 16 numbers. Of each 32 values, however, key i and key
// 16 + i are a pair: so the weights leave two registers with a shift and an or. Numbers that triples cannot
// stand for, infinite, NaN, above 2^60 or, but for zero, below 2^-102, are left out, and what depends on them
// is made of them as they lie.
#pragma once

#include "kernels/backward.h"
#include "kernels/block.h"
#include "kernels/pack.h"

namespace qkv {

// Whether the set has such kernels; the following may be called only then.
bool HasTripleKernels(Isa isa);
PackKernels TriplePackKernels();  // from any type
BackwardKernels TripleBackwardKernels();
ForwardKernels
TripleForwardKernels();  // without stream_tile: few rows are multiplied faster in float32 as they are

}  // namespace qkv
