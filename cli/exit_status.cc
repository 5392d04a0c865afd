#include "cli/exit_status.h"

#include <fmt/format.h>

#include <algorithm>
#include <new>

#include "cli/output.h"
#include "runtime/printable.h"

namespace qkv::cli {
namespace {

ExitStatus Print(std::string_view command, ExitStatus status, std::string_view message) {
  PrintNote(command.empty() ? fmt::format("qkv: {}", message) : fmt::format("qkv: {}: {}", command, message));
  return status;
}

}  // namespace

ExitStatus StatusOf(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalidArgument:
    case ErrorCode::kWrongType: return kUsage;
    case ErrorCode::kFile: return kBadFile;
    case ErrorCode::kOutOfMemory: return kNoMemory;
    case ErrorCode::kIo:
    case ErrorCode::kInternal:
    case ErrorCode::kNotFinite: return kOtherFailure;
    case ErrorCode::kCancelled: return kInterrupted;
  }
  return kOtherFailure;
}

ExitStatus Report(std::string_view command, std::exception_ptr failure) {
  try {
    std::rethrow_exception(failure);
  } catch (const ReaderGone&) {
    return kDone;
  } catch (const Error& error) {
    return Print(command, StatusOf(error.code()), error.what());
  } catch (const std::bad_alloc&) {
    return Print(command, kNoMemory, "out of memory");
  } catch (const std::exception& error) {
    return Print(command, kOtherFailure, error.what());
  }
}

std::string OneLine(std::string_view text) {
  std::string line;
  for (size_t start = 0; start <= text.size();) {
    const size_t end = std::min(text.find('\\', start), text.size());
    if (start > 0) line += '\\';
    line += Printable(text.substr(start, end - start), text.size() * 8);
    start = end + 1;
  }
  return line;
}

std::string Quote(std::string_view text) {
  constexpr size_t kBytes = 60;  // enough to recognise one's own words by
  return fmt::format("\"{}\"", Printable(text, kBytes));
}

}  // namespace qkv::cli
