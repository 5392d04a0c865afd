// Kernels for attention in float32 on AMX's tiles of bfloat16: every number is a triple of bfloat16 numbers
// whose sum it is (kernels/triple_products-inl.h says how products are made of them, and how near they come).
//
// Packed as kernels/pairs.h has it, with a triple tile, the pair tiles of the high, the middle and the low
// parts, where a pair tile stands there: 3 KiB for 32 x 16 numbers. Of each 32 values, however, key i and key
// 16 + i are a pair: so the weights leave two registers with a shift and an or. Numbers that triples do not
// stand for (infinite, NaN, above 2^60; but for zeros, below 2^-126, of values below 2^-60) are reported as they are
// packed, values as zeros, and rows that see any are to be made in float32.
#pragma once

#include "kernels/block.h"
#include "kernels/capture.h"
#include "kernels/pack.h"

namespace qkv {

// Exponents below which a number but zero has no triple.
inline constexpr int kLeastScored = -126;  // of what becomes a score: its low part's share is nothing there
inline constexpr int kLeastWeighed = -60;  // of values: small weights' parts still count
inline constexpr int kMostOfTriples = 60;  // and above which none has

// Whether key j and its value are numbers that have triples.
bool HasTriples(const KeyValues& key_values, int64_t j, const Layout& layout);

// Whether the set has such kernels; the following may be called only then.
bool HasTripleKernels(Isa isa);
PackKernels TriplePackKernels();  // from any type
ForwardKernels
TripleForwardKernels();  // without stream_tile: few rows are multiplied faster in float32 as they are
CaptureKernels TripleCaptureKernels();  // of rows whose log-sum-exp those kernels made

}  // namespace qkv
