// The second pass over score tiles: exact weights from the row's maximum and sum, and what is kept of them.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "kernels/block.h"
#include "runtime/aligned.h"

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

// Where a thread keeps the top of the row that it works on: weights descending, after a vector of infinities and before
// enough room for a vector, so that inserting moves whole vectors.
class TopList {
 public:
  explicit TopList(int64_t size)
      : size_(size), weights_(kFront + size + kFront), keys_(kFront + size + kFront) {
    std::fill_n(weights_.data(), kFront, HUGE_VALF);
    std::fill_n(weights_.data() + kFront, size + kFront, 0.0f);
    std::fill_n(keys_.data(), keys_.size(), -1);
  }
  int64_t size() const { return size_; }
  float* weights() { return weights_.data() + kFront; }
  int32_t* keys() { return keys_.data() + kFront; }

 private:
  static constexpr int64_t kFront = 16;  // floats of the widest vector
  int64_t size_;
  AlignedBuffer<float> weights_;
  AlignedBuffer<int32_t> keys_;
};

struct CaptureKernels {
  ScratchSizes (*scratch)(int64_t rows, const Layout& layout) noexcept;  // for blocks of up to so many rows
  void (*begin)(const Block& block, Scratch& scratch) noexcept;  // loads and scales the queries
  // Adds a tile to every row's capture (captures: one a row of the block; top: of the request's size).
  void (*add_tile)(const Block& block, const KeyTile& tile, RowCapture* captures, TopList& top, RowValues values,
                   Scratch& scratch) noexcept;
};

CaptureKernels CaptureKernelsFor(Isa isa);  // in float32, whatever the types

}  // namespace qkv
