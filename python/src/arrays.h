// Between Python's arrays, described by the package's _arrays.py, and the library's views.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "qkv/attention.h"
#include "qkv/tensor.h"

// Address, type's name, shape, strides in elements.
using ArrayDescription = std::tuple<uintptr_t, std::string, std::vector<int64_t>, std::vector<int64_t>>;

qkv::DType DTypeFrom(const std::string& name);  // Error{kWrongType} for an unknown name
qkv::Tensor TensorFrom(const std::string& argument, const ArrayDescription& array);

// Signals are looked at now and then, so that Ctrl-C ends a long call.
qkv::Progress SignalProgress();
