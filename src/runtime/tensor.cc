#include "qkv/tensor.h"

#include <string>

#include "qkv/error.h"

namespace qkv {
namespace {

std::array<int64_t, kMaxRank> ContiguousStrides(const Shape& shape) {
  std::array<int64_t, kMaxRank> stride{};
  int64_t step = 1;
  for (int axis = shape.rank - 1; axis >= 0; --axis) {
    stride[static_cast<size_t>(axis)] = step;
    // A wrapped product is caught by Shape::elements in validation; it must only not be undefined here.
    step = static_cast<int64_t>(static_cast<uint64_t>(step) * static_cast<uint64_t>(shape[axis]));
  }
  return stride;
}

}  // namespace

size_t SizeOf(DType dtype) {
  switch (dtype) {
    case DType::kF64:
    case DType::kI64: return 8;
    case DType::kF32:
    case DType::kI32: return 4;
    case DType::kBF16:
    case DType::kF16: return 2;
    case DType::kI8:
    case DType::kU8:
    case DType::kBool: return 1;
  }
  return 0;
}

const char* NameOf(DType dtype) {
  switch (dtype) {
    case DType::kF64: return "float64";
    case DType::kF32: return "float32";
    case DType::kBF16: return "bfloat16";
    case DType::kF16: return "float16";
    case DType::kI64: return "int64";
    case DType::kI32: return "int32";
    case DType::kI8: return "int8";
    case DType::kU8: return "uint8";
    case DType::kBool: return "bool";
  }
  return "unknown";
}

Shape::Shape(std::initializer_list<int64_t> sizes) {
  if (sizes.size() > static_cast<size_t>(kMaxRank)) {
    throw Error(ErrorCode::kInvalidArgument, "too many axes", "shape", "at most 4", std::to_string(sizes.size()));
  }
  for (int64_t s : sizes) size[static_cast<size_t>(rank++)] = s;
}

bool Shape::operator==(const Shape& other) const {
  if (rank != other.rank) return false;
  for (int axis = 0; axis < rank; ++axis) {
    if ((*this)[axis] != other[axis]) return false;
  }
  return true;
}

int64_t Shape::elements() const {
  int64_t product = 1;
  bool overflow = false, empty = false;
  for (int axis = 0; axis < rank; ++axis) {
    if ((*this)[axis] == 0) empty = true;
    overflow |= __builtin_mul_overflow(product, (*this)[axis], &product);
  }
  if (empty) return 0;
  if (overflow) {
    throw Error(ErrorCode::kInvalidArgument, "too many elements", "shape", "fewer than 2^63", ToString(*this));
  }
  return product;
}

std::string ToString(const Shape& shape) {
  std::string text = "(";
  for (int axis = 0; axis < shape.rank; ++axis) {
    if (axis > 0) text += ", ";
    text += std::to_string(shape[axis]);
  }
  return text + ")";
}

ConstTensor::ConstTensor(const void* first, DType type, Shape sizes)
    : data(first), dtype(type), shape(sizes), stride(ContiguousStrides(sizes)) {}

ConstTensor::ConstTensor(const void* first, DType type, Shape sizes, std::array<int64_t, kMaxRank> steps)
    : data(first), dtype(type), shape(sizes), stride(steps) {}

}  // namespace qkv
