#include "qkv/error.h"

#include <utility>

namespace qkv {

Error::Error(ErrorCode code, std::string what, std::string where, std::string expected, std::string got)
    : code_(code),
      reason_(std::move(what)),
      where_(std::move(where)),
      expected_(std::move(expected)),
      got_(std::move(got)) {
  if (!where_.empty()) message_ = where_ + ": ";
  message_ += reason_;
  if (!expected_.empty()) message_ += ", expected " + expected_;
  if (!got_.empty()) message_ += ", got " + got_;
}

}  // namespace qkv
