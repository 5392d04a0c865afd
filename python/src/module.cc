// The extension module: the library's calls on described arrays. The package around it is python/qkv.
#include <nanobind/nanobind.h>

#include "bindings.h"
#include "qkv/error.h"

namespace nb = nanobind;

namespace {

PyObject* PythonType(qkv::ErrorCode code) {
  switch (code) {
    case qkv::ErrorCode::kInvalidArgument: return PyExc_ValueError;
    case qkv::ErrorCode::kWrongType: return PyExc_TypeError;
    case qkv::ErrorCode::kNotFinite: return PyExc_ArithmeticError;
    case qkv::ErrorCode::kOutOfMemory: return PyExc_MemoryError;
    case qkv::ErrorCode::kFile:
    case qkv::ErrorCode::kIo: return PyExc_OSError;
    default: return PyExc_RuntimeError;
  }
}

void Translate(const std::exception_ptr& pointer, void*) {
  try {
    std::rethrow_exception(pointer);
  } catch (const qkv::Error& error) {
    // A call that a signal ended has its exception already: KeyboardInterrupt, or what a handler raised.
    if (error.code() == qkv::ErrorCode::kCancelled && PyErr_Occurred() != nullptr) return;
    PyErr_SetString(PythonType(error.code()), error.what());
  }
}

}  // namespace

NB_MODULE(_core, module) {
  nb::register_exception_translator(&Translate);
  BindOperator(module);
  BindCache(module);
}
