#include "cli/output.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <system_error>

#include "cli/exit_status.h"
#include "qkv/error.h"

namespace qkv::cli {
namespace {

constexpr size_t kBufferBytes = 1 << 16;

// Returns 0 or the error's number.
int WriteAll(int descriptor, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = write(descriptor, bytes.data(), bytes.size());
    if (written < 0) {
      if (errno == EINTR) continue;
      return errno;
    }
    bytes.remove_prefix(static_cast<size_t>(written));
  }
  return 0;
}

[[noreturn]] void FailToWrite(const std::string& where, int error) {
  throw Error(ErrorCode::kIo, fmt::format("cannot write: {}", std::strerror(error)), where);
}

}  // namespace

void StandardOutput::Write(std::string_view text) {
  buffer_ += text;
  if (buffer_.size() >= kBufferBytes) Flush();
}

void StandardOutput::Flush() {
  const int error = WriteAll(STDOUT_FILENO, buffer_);
  buffer_.clear();
  if (error == EPIPE) throw ReaderGone();
  if (error != 0) FailToWrite("standard output", error);
}

void PrintText(std::string_view text) {
  StandardOutput output;
  output.Write(text);
  output.Flush();
}

void PrintNote(std::string_view line) { WriteAll(STDERR_FILENO, OneLine(line) + "\n"); }

void CheckWritable(const std::filesystem::path& file) {
  std::error_code ignored;
  const std::filesystem::path parent = file.has_parent_path() ? file.parent_path() : ".";
  if (!std::filesystem::exists(parent, ignored)) FailToWrite(file.string(), ENOENT);
  if (!std::filesystem::is_directory(parent, ignored)) FailToWrite(file.string(), ENOTDIR);
  if (std::filesystem::is_directory(file, ignored)) FailToWrite(file.string(), EISDIR);
  if (access(parent.c_str(), W_OK | X_OK) != 0) FailToWrite(file.string(), errno);
  if (std::filesystem::exists(file, ignored) && access(file.c_str(), W_OK) != 0) {
    FailToWrite(file.string(), errno);
  }
}

}  // namespace qkv::cli
