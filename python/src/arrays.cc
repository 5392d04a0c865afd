#include "arrays.h"

#include "qkv/error.h"

namespace nb = nanobind;

qkv::DType DTypeFrom(const std::string& name) {
  using qkv::DType;
  for (DType dtype : {DType::kF64, DType::kF32, DType::kBF16, DType::kF16, DType::kI64, DType::kI32, DType::kI8,
                      DType::kU8, DType::kBool}) {
    if (name == qkv::NameOf(dtype)) return dtype;
  }
  throw qkv::Error(qkv::ErrorCode::kWrongType, "unknown type", "dtype",
                   "float32, bfloat16, float16 or int8", name);
}

qkv::Tensor TensorFrom(const std::string& argument, const ArrayDescription& array) {
  const auto& [address, dtype, sizes, steps] = array;
  if (sizes.size() > static_cast<size_t>(qkv::kMaxRank)) {
    throw qkv::Error(qkv::ErrorCode::kInvalidArgument, "too many axes", argument, "at most 4",
                     std::to_string(sizes.size()));
  }
  qkv::Shape shape;
  std::array<int64_t, qkv::kMaxRank> stride{};
  for (size_t axis = 0; axis < sizes.size(); ++axis) {
    shape.size[axis] = sizes[axis];
    stride[axis] = steps[axis];
  }
  shape.rank = static_cast<int>(sizes.size());
  try {
    return {reinterpret_cast<void*>(address), DTypeFrom(dtype), shape, stride};
  } catch (const qkv::Error& error) {
    throw qkv::Error(error.code(), error.reason(), argument, error.expected(), error.got());
  }
}

qkv::Progress SignalProgress() {
  return [](int64_t, int64_t) {
    const nb::gil_scoped_acquire lock;
    return PyErr_CheckSignals() == 0;  // else the exception is set, and the caller lets it out
  };
}
