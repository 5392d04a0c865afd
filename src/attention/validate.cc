#include "attention/validate.h"

#include <algorithm>
#include <cstdlib>
#include <limits>

namespace qkv {
namespace {

// Bytes from `data` to the lowest and past the highest element.
struct Extent {
  int64_t low = 0, high = 0;
};

Extent ExtentOf(const std::string& argument, const ConstTensor& tensor) {
  const int64_t size = static_cast<int64_t>(SizeOf(tensor.dtype));
  Extent extent{0, size};
  for (int axis = 0; axis < tensor.rank(); ++axis) {
    int64_t reach = 0;
    int64_t& side = tensor.stride[static_cast<size_t>(axis)] < 0 ? extent.low : extent.high;
    if (__builtin_mul_overflow(tensor.stride[static_cast<size_t>(axis)], tensor.size(axis) - 1, &reach) ||
        __builtin_mul_overflow(reach, size, &reach) || __builtin_add_overflow(side, reach, &side)) {
      FailArgument(argument, "strides reach too far", "offsets below 2^63 bytes", ToString(tensor.shape));
    }
  }
  return extent;
}

bool IsEmpty(const ConstTensor& tensor) { return tensor.shape.elements() == 0; }

}  // namespace

void FailArgument(const std::string& argument, const std::string& what, const std::string& expected,
                  const std::string& got) {
  throw Error(ErrorCode::kInvalidArgument, what, argument, expected, got);
}

void FailType(const std::string& argument, const std::string& expected, DType got) {
  throw Error(ErrorCode::kWrongType, "wrong type", argument, expected, NameOf(got));
}

void CheckTensor(const std::string& argument, const ConstTensor& tensor) {
  if (tensor.rank() < 0 || tensor.rank() > kMaxRank) {
    FailArgument(argument, "bad rank", "0 to 4", std::to_string(tensor.rank()));
  }
  for (int axis = 0; axis < tensor.rank(); ++axis) {
    if (tensor.size(axis) < 0) FailArgument(argument, "negative size", "0 or more", ToString(tensor.shape));
  }
  int64_t elements = 0;
  try {
    elements = tensor.shape.elements();
  } catch (const Error& error) {
    FailArgument(argument, error.reason(), error.expected(), error.got());
  }
  if (elements == 0) return;
  if (tensor.data == nullptr)
    FailArgument(argument, "no data", "a pointer to " + ToString(tensor.shape), "null");
  const size_t size = SizeOf(tensor.dtype);  // 0: no type, which is for others to refuse
  if (size > 1 && reinterpret_cast<uintptr_t>(tensor.data) % size != 0) {
    FailArgument(argument, "not aligned", "an address that is a multiple of " + std::to_string(size),
                 "another");
  }
  ExtentOf(argument, tensor);
}

void CheckShape(const std::string& argument, const ConstTensor& tensor, const Shape& expected) {
  if (!(tensor.shape == expected)) {
    FailArgument(argument, "wrong shape", ToString(expected), ToString(tensor.shape));
  }
}

void CheckDType(const std::string& argument, const ConstTensor& tensor, DType expected) {
  if (tensor.dtype != expected) FailType(argument, NameOf(expected), tensor.dtype);
}

void CheckWritable(const std::string& argument, const ConstTensor& tensor) {
  if (IsEmpty(tensor)) return;
  struct Axis {
    int64_t step, size;
  };
  std::vector<Axis> axes;
  for (int axis = 0; axis < tensor.rank(); ++axis) {
    if (tensor.size(axis) > 1) {
      axes.push_back({std::abs(tensor.stride[static_cast<size_t>(axis)]), tensor.size(axis)});
    }
  }
  std::sort(axes.begin(), axes.end(), [](const Axis& a, const Axis& b) { return a.step < b.step; });
  int64_t inner = 1;  // elements that the axes so far span
  for (const Axis& axis : axes) {
    if (axis.step < inner) {
      FailArgument(argument, "elements overlap", "strides that keep all elements apart",
                   ToString(tensor.shape));
    }
    inner = axis.step * (axis.size - 1) + inner;
  }
}

// Where a tensor's bytes lie within rows of `pitch` bytes: `length` of them from `first` on, perhaps past the
// row's end.
struct PartOfRow {
  int64_t first, length;
};
PartOfRow PartOf(const ConstTensor& tensor, int64_t pitch) {
  const auto size = static_cast<int64_t>(SizeOf(tensor.dtype));
  int64_t low = 0, high = size;
  for (int axis = 0; axis < tensor.rank(); ++axis) {
    const int64_t step = tensor.stride[static_cast<size_t>(axis)] * size;
    if (step % pitch != 0) (step < 0 ? low : high) += step * (tensor.size(axis) - 1);
  }
  const auto address =
      static_cast<int64_t>(reinterpret_cast<uintptr_t>(tensor.data) % static_cast<uintptr_t>(pitch));
  return {((address + low) % pitch + pitch) % pitch, high - low};
}

// Whether both are parts of the same rows side by side, as the gradients of queries, keys and values are in one
// array of (rows, 3 C): there is then a stride, the rows' pitch, within which they take different bytes.
bool LieSideBySide(const ConstTensor& tensor, const ConstTensor& other) {
  for (int axis = 0; axis < tensor.rank(); ++axis) {
    const int64_t stride = tensor.stride[static_cast<size_t>(axis)];
    const int64_t pitch = std::abs(stride) * static_cast<int64_t>(SizeOf(tensor.dtype));
    if (pitch == 0 || tensor.size(axis) == 1) continue;
    const PartOfRow a = PartOf(tensor, pitch), b = PartOf(other, pitch);
    const int64_t from_a_to_b = (b.first - a.first + pitch) % pitch,
                  from_b_to_a = (a.first - b.first + pitch) % pitch;
    if (a.length <= from_a_to_b && b.length <= from_b_to_a) return true;
  }
  return false;
}

void CheckApart(const std::string& argument, const ConstTensor& tensor, const std::string& other_argument,
                const ConstTensor& other) {
  if (IsEmpty(tensor) || IsEmpty(other) || LieSideBySide(tensor, other)) return;
  const Extent a = ExtentOf(argument, tensor), b = ExtentOf(other_argument, other);
  const uintptr_t a_at = reinterpret_cast<uintptr_t>(tensor.data),
                  b_at = reinterpret_cast<uintptr_t>(other.data);
  const uintptr_t a_first = a_at + static_cast<uintptr_t>(a.low),
                  a_last = a_at + static_cast<uintptr_t>(a.high);
  const uintptr_t b_first = b_at + static_cast<uintptr_t>(b.low),
                  b_last = b_at + static_cast<uintptr_t>(b.high);
  if (a_first < b_last && b_first < a_last) {
    FailArgument(argument, "overlaps " + other_argument, "memory of its own", "memory that both reach");
  }
}

ConstTensor BroadcastTo(const std::string& argument, const ConstTensor& tensor, const Shape& shape) {
  ConstTensor result(tensor.data, tensor.dtype, shape);
  const int skipped = shape.rank - tensor.rank();
  bool fits = skipped >= 0;
  for (int axis = 0; fits && axis < shape.rank; ++axis) {
    const int own = axis - skipped;
    const bool repeated = own < 0 || tensor.size(own) == 1;
    fits = repeated || tensor.size(own) == shape[axis];
    // What is empty is never looked at, so its strides may be anything.
    const bool counts = !repeated && shape.elements() != 0;
    result.stride[static_cast<size_t>(axis)] = counts ? tensor.stride[static_cast<size_t>(own)] : 0;
  }
  if (!fits) {
    FailArgument(argument, "does not broadcast", "a shape that broadcasts to " + ToString(shape),
                 ToString(tensor.shape));
  }
  return result;
}

void CheckLengths(const std::string& argument, const std::vector<int64_t>& lengths, int64_t batch,
                  int64_t most) {
  if (static_cast<int64_t>(lengths.size()) != batch) {
    FailArgument(argument, "wrong number of lengths", std::to_string(batch) + ", one per sequence",
                 std::to_string(lengths.size()));
  }
  for (size_t b = 0; b < lengths.size(); ++b) {
    if (lengths[b] < 0 || lengths[b] > most) {
      FailArgument(argument + "[" + std::to_string(b) + "]", "length out of range",
                   "0 to " + std::to_string(most), std::to_string(lengths[b]));
    }
  }
}

void CheckOffsets(const std::string& argument, const std::vector<int64_t>& offsets, int64_t total) {
  if (offsets.empty()) FailArgument(argument, "no offsets", "one more than there are sequences", "none");
  if (offsets.front() != 0) FailArgument(argument, "bad first offset", "0", std::to_string(offsets.front()));
  for (size_t b = 1; b < offsets.size(); ++b) {
    if (offsets[b] < offsets[b - 1]) {
      FailArgument(argument + "[" + std::to_string(b) + "]", "offsets descend",
                   "at least " + std::to_string(offsets[b - 1]), std::to_string(offsets[b]));
    }
  }
  if (offsets.back() != total) {
    FailArgument(argument, "bad last offset", std::to_string(total) + ", the number of rows",
                 std::to_string(offsets.back()));
  }
}

}  // namespace qkv
