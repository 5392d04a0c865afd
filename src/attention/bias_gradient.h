// The gradient of a bias: dS, summed over the axes that were broadcast.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "attention/backward_problem.h"
#include "attention/backward_rows.h"

namespace qkv {

class BiasGradient {
 public:
  // Takes all memory. Without a dbias there is nothing to do.
  explicit BiasGradient(const BackwardProblem& problem);

  // Whether tiles of keys add to it. Otherwise it has no axis of keys, and takes the rows' sums of dS.
  bool IsByTiles() const { return target_ != nullptr; }
  bool IsByRows() const { return problem_.dbias && !IsByTiles(); }
  bool SharesSequences() const { return stride_[0] == 0; }
  bool SharesHeads() const { return stride_[1] == 0; }

  // By tiles: zeros for the keys from `first` on and all heads of the job, or the one that they share.
  void Clear(const BackwardJob& job, int64_t first, int64_t count) const;
  float* RowOf(const Row& row) const { return IsByTiles() ? At(row.batch, row.head, row.query) : nullptr; }
  int64_t key_stride() const { return stride_[3]; }
  void StoreTiles() const;

  // By rows: adds up their sums.
  void StoreSums(const BackwardRows& rows) const;

 private:
  float* At(int64_t b, int64_t h, int64_t i) const {
    return target_ + b * stride_[0] + h * stride_[1] + i * stride_[2];
  }

  const BackwardProblem& problem_;
  float* target_ = nullptr;  // what is added to: dbias where it is float32, else kept_
  std::array<int64_t, kMaxRank> stride_{};
  mutable AlignedBuffer<float> kept_;
};

}  // namespace qkv
