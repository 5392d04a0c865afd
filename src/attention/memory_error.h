// Running out of memory is one typed error, whoever ran out.
#pragma once

#include <new>
#include <stdexcept>

#include "qkv/error.h"

namespace qkv {

template <class Call> auto WithTypedMemoryError(const char* where, const Call& call) {
  try {
    return call();
  } catch (const std::bad_alloc&) {
    throw Error(ErrorCode::kOutOfMemory, "out of memory", where);
  } catch (const std::length_error&) {
    throw Error(ErrorCode::kOutOfMemory, "out of memory", where);
  }
}

}  // namespace qkv
