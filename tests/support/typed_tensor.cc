#include "support/typed_tensor.h"

#include <cmath>
#include <numeric>
#include <utility>

#include "runtime/half.h"

namespace qkv::test {
namespace {

constexpr uint8_t kGap = 0xff;  // in every floating type a NaN

int SharedAxis(const Shape& shape) { return shape.rank == 4 ? 1 : shape.rank - 2; }

std::array<int64_t, kMaxRank> StridesOf(const Shape& shape, Layout layout) {
  std::array<int, kMaxRank> order{0, 1, 2, 3};  // outermost first
  const size_t rank = static_cast<size_t>(shape.rank);
  if (layout == Layout::kSwapped && rank >= 3) std::swap(order[rank - 3], order[rank - 2]);
  if (layout == Layout::kTransposed && rank >= 2) std::swap(order[rank - 2], order[rank - 1]);
  std::array<int64_t, kMaxRank> stride{};
  int64_t step = layout == Layout::kGaps ? 2 : 1;
  for (size_t n = rank; n-- > 0;) {
    const int axis = order[n];
    if (layout == Layout::kShared && rank >= 2 && axis == SharedAxis(shape)) continue;
    stride[static_cast<size_t>(axis)] = layout == Layout::kReversed ? -step : step;
    step *= shape[axis];
    if (n + 1 == rank && (layout == Layout::kGaps || layout == Layout::kRowGaps)) step += 3;
  }
  return stride;
}

// Elements from the lowest to the highest.
int64_t Extent(const Shape& shape, const std::array<int64_t, kMaxRank>& stride) {
  if (shape.elements() == 0) return 0;
  int64_t extent = 1;
  for (int axis = 0; axis < shape.rank; ++axis)
    extent += std::abs(stride[static_cast<size_t>(axis)]) * (shape[axis] - 1);
  return extent;
}

template <class T>
T* As(uint8_t* data, int64_t offset) {
  return reinterpret_cast<T*>(data) + offset;
}

}  // namespace

TypedTensor::TypedTensor(DType dtype, Shape shape, Layout layout, Edge edge)
    : dtype_(dtype),
      shape_(shape),
      stride_(StridesOf(shape, layout)),
      memory_(Extent(shape, stride_) * static_cast<int64_t>(SizeOf(dtype)), edge) {
  std::fill(memory_.begin(), memory_.end(), dtype == DType::kBool ? uint8_t{1} : kGap);
  data_ = memory_.data();
  if (layout == Layout::kReversed && memory_.size() > 0) data_ = memory_.end() - SizeOf(dtype);
}

int64_t TypedTensor::Offset(const Index& index) const {
  int64_t offset = 0;
  for (size_t axis = 0; axis < static_cast<size_t>(shape_.rank); ++axis) offset += index[axis] * stride_[axis];
  return offset;
}

bool TypedTensor::Next(Index& index) const {
  for (int axis = shape_.rank - 1; axis >= 0; --axis) {
    int64_t& at = index[static_cast<size_t>(axis)];
    if (++at < shape_[axis]) return true;
    at = 0;
  }
  return false;
}

double TypedTensor::At(const Index& index) const {
  const int64_t at = Offset(index);
  switch (dtype_) {
    case DType::kF64: return *As<double>(data_, at);
    case DType::kBF16: return ToFloat(*As<BFloat16>(data_, at));
    case DType::kF16: return ToFloat(*As<Float16>(data_, at));
    case DType::kBool: return *As<bool>(data_, at) ? 1 : 0;
    default: return static_cast<double>(*As<float>(data_, at));
  }
}

void TypedTensor::Set(const Index& index, double value) {
  const int64_t at = Offset(index);
  switch (dtype_) {
    case DType::kF64: *As<double>(data_, at) = value; return;
    case DType::kBF16: *As<BFloat16>(data_, at) = ToBFloat16(static_cast<float>(value)); return;
    case DType::kF16: *As<Float16>(data_, at) = ToFloat16(static_cast<float>(value)); return;
    case DType::kBool: *As<bool>(data_, at) = value != 0; return;
    default: *As<float>(data_, at) = static_cast<float>(value); return;
  }
}

bool TypedTensor::GapsAreUntouched() const {
  const int64_t size = static_cast<int64_t>(SizeOf(dtype_));
  std::vector<bool> is_element(static_cast<size_t>(memory_.size() / size));
  ForEach([&](const Index& index) {
    is_element[static_cast<size_t>((data_ - memory_.data()) / size + Offset(index))] = true;
  });
  for (int64_t i = 0; i < memory_.size(); ++i) {
    if (!is_element[static_cast<size_t>(i / size)] && memory_[i] != kGap) return false;
  }
  return true;
}

}  // namespace qkv::test
