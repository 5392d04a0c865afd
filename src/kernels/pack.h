// Packing tiles of keys and values into float32 panels, whatever their type and strides.
//
// A tile holds kKeyTile keys. Packed keys: panels of `panel` keys, each (D, panel), so that a row of a panel is one
// channel of consecutive keys. Packed values: panels of `panel` channels, or of all of them in whole vectors where that
// is less, each (kKeyTile, panel); the last one is padded with zeros. Past the tile's `count` keys, packed keys are
// zeros up to a whole vector; what is beyond is never read.
//
// Kernels that multiply bfloat16 pairs have a layout of their own (kernels/pairs.h, kernels/triples.h), counted in floats
// all the same.
#pragma once

#include <cstdint>

#include "kernels/problem.h"
#include "runtime/cpu.h"

namespace qkv {

// What packing found out about the numbers of a tile. A layout that cannot hold all finite numbers (kernels/triples.h) has
// kSomeNotFinite for those, too.
enum class Values { kFinite, kSomeNotFinite };

inline int64_t PaddedWidth(int64_t width, int64_t panel) { return (width + panel - 1) / panel * panel; }

struct PackKernels {
  int64_t panel;  // keys or channels of a panel
  int64_t lanes;  // floats of a vector
  // Keys first ... first + count - 1 (count <= kKeyTile) into KeyFloats(d) floats. Layouts that hold every number return
  // kFinite: products bring out what is not.
  Values (*keys)(const Strided& k, int64_t first, int64_t count, int64_t d, float* packed) noexcept;
  // Into ValueFloats(dv) floats. Elements that are not finite are packed as zeros, so that a key
  // that is blocked for a row cannot reach it; rows that do see such a key add it afterwards (kernels/forward.cc).
  Values (*values)(const Strided& v, int64_t first, int64_t count, int64_t dv, float* packed) noexcept;
  int64_t depth = 1;      // a key is padded to a multiple of so many channels
  int64_t bytes = sizeof(float);  // of a number

  int64_t KeyFloats(int64_t d) const { return Floats(PaddedWidth(d, depth)); }  // of a tile
  int64_t ValueFloats(int64_t dv) const { return Floats(PaddedWidth(dv, panel)); }

 private:
  int64_t Floats(int64_t width) const { return kKeyTile * width * bytes / static_cast<int64_t>(sizeof(float)); }
};

PackKernels PackKernelsFor(Isa isa);  // to float32, from any type

}  // namespace qkv
