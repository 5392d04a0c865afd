// The second pass over score tiles: exact weights from the row's maximum and sum, and what is kept of them.
#pragma once

#include <cstdint>

#include "kernels/block.h"

namespace qkv {

// What one row keeps. Null pointers: not asked for.
struct RowCapture {
  float max = 0, inverse_sum = 0;  // of the finished softmax, sink included
  float* entropy = nullptr;        // one number, added to
  float* received = nullptr;       // (Tk), added to
  float* values = nullptr;         // (Tk), written where the row sees keys
  int32_t* top_keys = nullptr;     // (top_k), filled with -1 beforehand
  float* top_weights = nullptr;    // (top_k), filled with 0 beforehand
};

enum class RowValues { kWeights, kScores };

struct CaptureKernels {
  void (*begin)(const Block& block, Scratch& scratch) noexcept;  // loads and scales the queries
  // Adds a tile to every row's capture (captures: one a row of the block).
  void (*add_tile)(const Block& block, const KeyTile& tile, RowCapture* captures, int64_t top_k,
                   RowValues values, Scratch& scratch) noexcept;
};

CaptureKernels CaptureKernelsFor(Isa isa);

}  // namespace qkv
