// Between Python's arrays and the library's views.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "qkv/attention.h"
#include "qkv/tensor.h"

qkv::DType DTypeFrom(const std::string& name);  // Error{kWrongType} for an unknown name

enum class Access { kRead, kWrite };

// A view of a numpy array's or a PyTorch tensor's memory, which stays the array's. Error{kInvalidArgument} or
// Error{kWrongType} naming the argument.
qkv::Tensor Describe(const std::string& argument, nanobind::handle array, Access access);

// Signals are looked at now and then, so that Ctrl-C ends a long call.
qkv::Progress SignalProgress();
