// The one exception type of the library. Validation and parsers throw it; kernels are noexcept and the
// library never prints or exits.
#pragma once

#include <exception>
#include <string>

#include "qkv/export.h"

namespace qkv {

// What kind of thing went wrong; the command maps it to its exit status, Python to an exception type.
enum class ErrorCode {
  kInvalidArgument,  // a wrong shape, value, name or combination              exit 2, ValueError
  kWrongType,        // a wrong or unsupported element type                    exit 2, TypeError
  kFile,             // missing, unreadable or damaged file, invalid UTF-8     exit 3, OSError
  kOutOfMemory,      //                                                        exit 4, MemoryError
  kIo,               // output that cannot be written, a full disk             exit 1, OSError
  kInternal,         // an unexpected failure of a dependency                  exit 1, RuntimeError
  kNotFinite,        // a loss or a gradient that is NaN or infinite           exit 1, ArithmeticError
  kCancelled,        // the progress callback asked to stop                    exit 130, KeyboardInterrupt
};

// `where` names the argument, file, tensor or key; `expected` and `got` may be empty.
class QKV_API Error : public std::exception {
 public:
  Error(ErrorCode code, std::string what, std::string where = {}, std::string expected = {},
        std::string got = {});

  const char* what() const noexcept override { return message_.c_str(); }  // one line holding all parts
  ErrorCode code() const noexcept { return code_; }
  const std::string& reason() const noexcept { return reason_; }
  const std::string& where() const noexcept { return where_; }
  const std::string& expected() const noexcept { return expected_; }
  const std::string& got() const noexcept { return got_; }

 private:
  ErrorCode code_;
  std::string reason_, where_, expected_, got_, message_;
};

}  // namespace qkv
