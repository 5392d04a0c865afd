// Tensors of every type and layout in guarded memory: reading or writing past either end is a crash, and what
// lies between the elements is watched.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "qkv/tensor.h"
#include "support/guard.h"

namespace qkv::test {

enum class Layout {
  kContiguous,
  kSwapped,     // the two axes before the last exchanged: (B, T, H, D) behind (B, H, T, D)
  kTransposed,  // the last two axes exchanged
  kReversed,    // every stride negative
  kGaps,        // every second element of the last axis, and three more between rows
  kRowGaps,     // three elements between rows
  kShared,      // stride 0 along the axis before the last two (or before the last, of three): all heads are one
};

using Index = std::array<int64_t, kMaxRank>;

class TypedTensor {
 public:
  TypedTensor(DType dtype, Shape shape, Layout layout, Edge edge = Edge::kEnd);

  Tensor view() const { return {data_, dtype_, shape_, stride_}; }
  double At(const Index& index) const;
  void Set(const Index& index, double value);
  bool GapsAreUntouched() const;  // nothing was written between the elements

  // value(index) for every element.
  template <class F>
  void Fill(const F& value) {
    ForEach([&](const Index& index) { Set(index, value(index)); });
  }
  template <class F>
  void ForEach(const F& body) const {
    if (shape_.elements() == 0) return;
    Index index{};
    do body(index);
    while (Next(index));
  }

 private:
  bool Next(Index& index) const;
  int64_t Offset(const Index& index) const;

  DType dtype_;
  Shape shape_;
  std::array<int64_t, kMaxRank> stride_{};
  GuardedBuffer<uint8_t> memory_;
  uint8_t* data_ = nullptr;  // of element (0, ..., 0)
};

}  // namespace qkv::test
