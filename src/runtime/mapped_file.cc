#include "runtime/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "qkv/error.h"

namespace qkv {
namespace {

[[noreturn]] void Fail(const std::filesystem::path& path, const char* what) {
  throw Error(ErrorCode::kFile, what, path.string());
}

[[noreturn]] void FailToMap(const std::filesystem::path& path, size_t size) {
  if (errno != ENOMEM) Fail(path, std::strerror(errno));
  throw Error(ErrorCode::kOutOfMemory, "out of memory", path.string(), std::to_string(size) + " bytes");
}

// Closes the descriptor when the mapping is made or has failed.
struct Descriptor {
  int value;
  ~Descriptor() {
    if (value >= 0) close(value);
  }
};

}  // namespace

MappedFile::MappedFile(const std::filesystem::path& path) {
  // O_NONBLOCK: opening a pipe that nobody writes to would wait for ever.
  const Descriptor file{open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
  if (file.value < 0) Fail(path, errno == ENOENT ? "no such file" : std::strerror(errno));
  struct stat status {};
  if (fstat(file.value, &status) != 0) Fail(path, std::strerror(errno));
  if (S_ISDIR(status.st_mode)) Fail(path, "is a folder, not a file");
  if (!S_ISREG(status.st_mode)) Fail(path, "is not a regular file");
  if (status.st_size == 0) return;
  const size_t size = static_cast<size_t>(status.st_size);
  void* memory = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.value, 0);
  if (memory == MAP_FAILED) FailToMap(path, size);
  bytes_ = {static_cast<const std::byte*>(memory), size};
}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

MappedFile::MappedFile(MappedFile&& other) noexcept : bytes_(std::exchange(other.bytes_, {})) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(bytes_, other.bytes_);
  return *this;
}

}  // namespace qkv
