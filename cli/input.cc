#include "cli/input.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "qkv/error.h"

namespace qkv::cli {
namespace {

// Far above any model's context. A character can take 200 bytes on its way to tokens, so this keeps the memory
// below 2 GB.
constexpr size_t kMostBytes = size_t{8} << 20;

struct Descriptor {
  int value;
  ~Descriptor() {
    if (value > STDIN_FILENO) close(value);
  }
};

[[noreturn]] void FailToRead(const std::string& name, int error) {
  throw Error(ErrorCode::kFile, error == ENOENT ? "no such file" : std::strerror(error),
              name.empty() ? "--file" : name);
}

// Read, not mapped: pipes and devices are texts too.
std::string ReadAll(const std::string& name, int descriptor) {
  struct stat status {};
  if (fstat(descriptor, &status) == 0 && S_ISDIR(status.st_mode)) FailToRead(name, EISDIR);
  std::string text;
  char block[1 << 16];
  while (true) {
    const ssize_t count = read(descriptor, block, sizeof(block));
    if (count == 0) break;
    if (count < 0) {
      if (errno == EINTR) continue;
      FailToRead(name, errno);
    }
    text.append(block, static_cast<size_t>(count));
    if (text.size() > kMostBytes) {
      throw Error(ErrorCode::kInvalidArgument, "the text is too long", name,
                  fmt::format("at most {} MiB", kMostBytes >> 20), "more");
    }
  }
  if (text.ends_with('\n')) text.pop_back();
  if (text.ends_with('\r')) text.pop_back();
  return text;
}

std::string ReadFile(const std::string& name) {
  if (name == "-") return ReadAll("standard input", STDIN_FILENO);
  const Descriptor file{open(name.c_str(), O_RDONLY | O_CLOEXEC)};
  if (file.value < 0) FailToRead(name, errno);
  return ReadAll(name, file.value);
}

}  // namespace

std::string ReadText(const std::optional<std::string>& text, const std::optional<std::string>& file,
                     const char* command) {
  const std::string hint = fmt::format("(see qkv {} --help)", command);
  if (text && file) {
    throw Error(ErrorCode::kInvalidArgument, "TEXT and --file exclude each other " + hint);
  }
  if (file) return ReadFile(*file);
  if (!text) {
    throw Error(ErrorCode::kInvalidArgument, "no text: give TEXT, --file FILE, or - for standard input " + hint);
  }
  return *text == "-" ? ReadFile("-") : *text;
}

}  // namespace qkv::cli
