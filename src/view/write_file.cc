#include "view/write_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <system_error>

#include "qkv/error.h"

namespace qkv::view {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void Fail(const fs::path& file, int error) {
  throw Error(ErrorCode::kIo, "cannot write: " + std::generic_category().message(error), file.string());
}

// Returns 0 or the error number; the descriptor is closed either way.
int WriteAndClose(int descriptor, std::string_view bytes) {
  int error = 0;
  while (error == 0 && !bytes.empty()) {
    const ssize_t written = write(descriptor, bytes.data(), bytes.size());
    if (written >= 0)
      bytes.remove_prefix(static_cast<size_t>(written));
    else if (errno != EINTR)
      error = errno;
  }
  if (close(descriptor) != 0 && error == 0) error = errno;  // some file systems report a full disk only here
  return error;
}

// `file` is what the caller calls it.
void WriteInPlace(const fs::path& target, std::string_view bytes, const fs::path& file) {
  const int descriptor = open(target.c_str(), O_WRONLY | O_CLOEXEC);
  const int error = descriptor < 0 ? errno : WriteAndClose(descriptor, bytes);
  if (error != 0) Fail(file, error);
}

// Where the name leads; that file need not exist yet.
fs::path FollowLinks(const fs::path& file) {
  constexpr int kMostLinks = 40;  // as Linux itself
  std::error_code ignored;
  fs::path target = file;
  for (int links = 0; fs::is_symlink(target, ignored); ++links) {
    std::error_code error;
    const fs::path next = fs::read_symlink(target, error);
    if (error || links == kMostLinks) Fail(file, error ? error.value() : ELOOP);
    target = target.parent_path() / next;
  }
  return target;
}

mode_t UsualMode() {
  const mode_t mask = umask(0);
  umask(mask);
  return 0666 & ~mask;
}

}  // namespace

void WriteWholeFile(const fs::path& file, std::string_view bytes) {
  std::error_code ignored;
  const fs::path target = FollowLinks(file);
  const fs::file_status status = fs::status(target, ignored);
  if (fs::is_directory(status)) Fail(file, EISDIR);
  if (fs::exists(status) && !fs::is_regular_file(status)) return WriteInPlace(target, bytes, file);
  if (fs::exists(status) && access(target.c_str(), W_OK) != 0) Fail(file, errno);
  std::string beside = target.string() + ".XXXXXX";
  const int descriptor = mkostemp(beside.data(), O_CLOEXEC);
  if (descriptor < 0) Fail(file, errno);
  const mode_t mode = fs::exists(status) ? static_cast<mode_t>(status.permissions()) & 0777 : UsualMode();
  int error = fchmod(descriptor, mode) == 0 ? 0 : errno;
  if (const int failed = WriteAndClose(descriptor, bytes); failed != 0) error = failed;
  if (error == 0 && rename(beside.c_str(), target.c_str()) != 0) error = errno;
  if (error == 0) return;
  unlink(beside.c_str());
  Fail(file, error);
}

}  // namespace qkv::view
