// Writing what was summed in another precision.
#pragma once

#include <array>
#include <cstdint>

#include "kernels/load.h"
#include "qkv/tensor.h"

namespace qkv {

// values: contiguous, of the tensor's shape.
template <class T>
void StoreElements(const T* values, const Tensor& to) {
  std::array<int64_t, kMaxRank> index{};
  const int64_t count = to.shape.elements();
  for (int64_t n = 0, at = 0; n < count; ++n) {
    StoreDouble(values[n], to.mutable_data(), to.dtype, at);
    for (int axis = to.rank() - 1; axis >= 0; --axis) {
      const size_t a = static_cast<size_t>(axis);
      at += to.stride[a];
      if (++index[a] < to.size(axis)) break;
      at -= index[a] * to.stride[a];
      index[a] = 0;
    }
  }
}

}  // namespace qkv
