// What a call ends with: the status, and one line on standard error where it failed.
#pragma once

#include <exception>
#include <string>
#include <string_view>

#include "qkv/error.h"

namespace qkv::cli {

enum ExitStatus : int {
  kDone = 0,          // or the reader closed the pipe
  kOtherFailure = 1,  // output that cannot be written, a full disk, anything unforeseen
  kUsage = 2,
  kBadFile = 3,
  kNoMemory = 4,
  kInterrupted = 130,
};

ExitStatus StatusOf(ErrorCode code);

// Prints the failure as "qkv: COMMAND: ..." in one line; `command` may be empty.
ExitStatus Report(std::string_view command, std::exception_ptr failure);

// A message as one line without control characters, whatever it holds. Escapes that it has already stay as they
// are.
std::string OneLine(std::string_view text);

// A user's word for an error line: printable, in quotation marks, shortened where it is long.
std::string Quote(std::string_view text);

}  // namespace qkv::cli
