#include "arrays.h"

#include <algorithm>
#include <iterator>
#include <string_view>

#include "attention/validate.h"
#include "qkv/error.h"

namespace nb = nanobind;

namespace {

using qkv::DType;

// The types that the library's views know; which of them an argument may have, the library says.
constexpr DType kKnown[] = {DType::kF64, DType::kF32, DType::kBF16, DType::kF16, DType::kI64,
                            DType::kI32, DType::kI8,  DType::kU8,   DType::kBool};

std::string Text(nb::handle value) { return nb::str(value).c_str(); }

std::string ExpectedTypes(std::string_view argument) {
  if (argument == "mask") return "bool";
  if (argument == "bias") return "float32 or q's type";
  for (std::string_view name : {"alibi_slopes", "sink", "lse", "dlse"}) {
    if (argument == name) return "float32";
  }
  return "float32, bfloat16, float16 or float64";
}

[[noreturn]] void FailType(const std::string& argument, const std::string& expected, const std::string& got) {
  throw qkv::Error(qkv::ErrorCode::kWrongType, "wrong type", argument, expected, got);
}

template <size_t kSize>
struct Literal {
  char text[kSize];
  constexpr Literal(const char (&from)[kSize]) { std::copy_n(from, kSize, text); }
};

// The name as a string of Python's, made once: Python's cache of attributes knows strings by their address, and
// a description asks for some ten of them.
template <Literal kName>
nb::handle Name() {
  static PyObject* const name = PyUnicode_InternFromString(kName.text);
  return name;
}

template <Literal kName>
nb::object Get(nb::handle of) {
  return nb::object(of.attr(Name<kName>()));
}
template <Literal kName>
bool Is(nb::handle of) {
  return nb::cast<bool>(Get<kName>(of));
}

template <Literal kMethod>
nb::object Call(nb::handle of) {
  PyObject* const result = PyObject_CallMethodNoArgs(of.ptr(), Name<kMethod>().ptr());
  if (result == nullptr) nb::raise_python_error();
  return nb::steal(result);
}

// The type that numpy's or PyTorch's object for it means. They make its name anew each time, which is half the
// work on a small array, so the answer is kept.
DType TypeOf(const std::string& argument, nb::handle dtype) {
  static PyObject* const known = PyDict_New();
  if (PyObject* const index = PyDict_GetItemWithError(known, dtype.ptr()))
    return kKnown[PyLong_AsSize_t(index)];
  constexpr std::string_view kPrefix = "torch.";
  std::string name = Text(dtype);
  if (name.starts_with(kPrefix))
    name.erase(0, kPrefix.size());
  else
    name = Text(Get<"name">(dtype));
  const auto found =
      std::find_if(std::begin(kKnown), std::end(kKnown), [&](DType t) { return name == qkv::NameOf(t); });
  if (found == std::end(kKnown)) FailType(argument, ExpectedTypes(argument), name);
  nb::borrow<nb::dict>(known)[dtype] = found - std::begin(kKnown);
  return *found;
}

// What numpy's attribute __array_struct__ holds, as its page on the array interface gives it.
struct NumpyArray {
  int two;
  int rank;
  char kind;
  int item_size;
  int flags;
  Py_ssize_t* size;
  Py_ssize_t* step;  // in bytes
  void* data;
  PyObject* description;
};
constexpr int kOwnByteOrder = 0x200, kWritable = 0x400;

void CheckRank(const std::string& argument, size_t rank) {
  if (rank > static_cast<size_t>(qkv::kMaxRank)) {
    qkv::FailArgument(argument, "too many axes", "at most 4", std::to_string(rank));
  }
}

qkv::Tensor FromNumpy(const std::string& argument, nb::handle array, Access access) {
  const nb::object dtype = Get<"dtype">(array);
  qkv::Tensor tensor(nullptr, TypeOf(argument, dtype), {});
  const nb::object capsule = Get<"__array_struct__">(array);
  const auto& from = *static_cast<const NumpyArray*>(PyCapsule_GetPointer(capsule.ptr(), nullptr));
  if ((from.flags & kOwnByteOrder) == 0) {
    throw qkv::Error(qkv::ErrorCode::kWrongType, "wrong byte order", argument, "the machine's own",
                     Text(dtype));
  }
  if (access == Access::kWrite && (from.flags & kWritable) == 0) {
    qkv::FailArgument(argument, "read-only", "an array that may be written", "");
  }
  CheckRank(argument, static_cast<size_t>(from.rank));
  tensor.data = from.data;
  tensor.shape.rank = from.rank;
  for (size_t axis = 0; axis < static_cast<size_t>(from.rank); ++axis) {
    if (from.size[axis] > 1 && from.step[axis] % from.item_size != 0) {
      qkv::FailArgument(argument, "strides are not whole elements", "",
                        Text(Get<"strides">(array)) + " bytes of " + std::to_string(from.item_size) + " each");
    }
    tensor.shape.size[axis] = from.size[axis];
    tensor.stride[axis] = from.step[axis] / from.item_size;
  }
  return tensor;
}

qkv::Tensor FromTorch(const std::string& argument, nb::handle torch, nb::handle array, Access access) {
  if (!Is<"is_cpu">(array)) qkv::FailArgument(argument, "wrong device", "cpu", Text(Get<"device">(array)));
  const bool nested = Is<"is_nested">(array);
  const nb::object layout = Get<"layout">(array);
  if (nested || !layout.is(Get<"strided">(torch))) {
    qkv::FailArgument(argument, "wrong layout", "a strided tensor", nested ? "nested" : Text(layout));
  }
  qkv::Tensor tensor(nullptr, TypeOf(argument, Get<"dtype">(array)), {});
  // The imaginary part of a lazy conjugate; a conjugate itself is complex, which is no known type.
  if (nb::cast<bool>(Call<"is_neg">(array))) {
    qkv::FailArgument(argument, "a lazy conjugate or negative", "plain memory: resolve_neg() makes it so", "");
  }
  if (access == Access::kWrite && Is<"requires_grad">(array) &&
      nb::cast<bool>(Call<"is_grad_enabled">(torch))) {
    qkv::FailArgument(argument, "requires grad", "a tensor that may be written in place", "");
  }
  const nb::tuple size(Get<"shape">(array)), step(Call<"stride">(array));
  CheckRank(argument, size.size());
  tensor.data = reinterpret_cast<void*>(nb::cast<uintptr_t>(Call<"data_ptr">(array)));
  tensor.shape.rank = static_cast<int>(size.size());
  for (size_t axis = 0; axis < size.size(); ++axis) {
    tensor.shape.size[axis] = nb::cast<int64_t>(size[axis]);
    tensor.stride[axis] = nb::cast<int64_t>(step[axis]);
  }
  return tensor;
}

}  // namespace

qkv::DType DTypeFrom(const std::string& name) {
  for (DType dtype : kKnown) {
    if (name == qkv::NameOf(dtype)) return dtype;
  }
  throw qkv::Error(qkv::ErrorCode::kWrongType, "unknown type", "dtype", "float32, bfloat16, float16 or int8",
                   name);
}

qkv::Tensor Describe(const std::string& argument, nb::handle array, Access access) {
  static const nb::object& ndarray = *new nb::object(nb::module_::import_("numpy").attr("ndarray"));
  if (array.type().is(ndarray)) return FromNumpy(argument, array, access);
  // PyTorch is asked only where somebody has imported it.
  const nb::object torch = nb::steal(PyImport_GetModule(Name<"torch">().ptr()));
  if (torch.is_valid() && nb::isinstance(array, Get<"Tensor">(torch)))
    return FromTorch(argument, torch, array, access);
  if (!nb::isinstance(array, ndarray) ||
      nb::isinstance(array, nb::module_::import_("numpy.ma").attr("MaskedArray"))) {
    FailType(argument, "a numpy array or a PyTorch tensor", Text(Get<"__name__">(array.type())));
  }
  return FromNumpy(argument, array, access);
}

qkv::Progress SignalProgress() {
  return [](int64_t, int64_t) {
    const nb::gil_scoped_acquire lock;
    return PyErr_CheckSignals() == 0;  // else the exception is set, and the caller lets it out
  };
}
