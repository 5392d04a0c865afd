#include "runtime/write_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "qkv/error.h"

namespace qkv {
namespace {

namespace fs = std::filesystem;

constexpr size_t kRandomLetters = 6;  // that mkostemp puts in place of X

[[noreturn]] void FailToWrite(const fs::path& file, int error) {
  throw Error(ErrorCode::kIo, "cannot write: " + std::generic_category().message(error), file.string());
}

// Where the name leads; that file need not exist yet.
fs::path FollowLinks(const fs::path& file) {
  constexpr int kMostLinks = 40;  // as Linux itself
  std::error_code ignored;
  fs::path target = file;
  for (int links = 0; fs::is_symlink(target, ignored); ++links) {
    std::error_code error;
    const fs::path next = fs::read_symlink(target, error);
    if (error || links == kMostLinks) FailToWrite(file, error ? error.value() : ELOOP);
    target = target.parent_path() / next;
  }
  return target;
}

mode_t UsualMode() {
  const mode_t mask = umask(0);
  umask(mask);
  return 0666 & ~mask;
}

// A rename is on the disk once its folder is. Folders that cannot be synced (some file systems) are no failure.
void SyncFolder(const fs::path& file) {
  const fs::path folder = file.has_parent_path() ? file.parent_path() : fs::path(".");
  const int descriptor = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) return;
  fsync(descriptor);
  close(descriptor);
}

}  // namespace

FileWriter::FileWriter(const fs::path& file) : file_(file), target_(FollowLinks(file)) {
  std::error_code ignored;
  const fs::file_status status = fs::status(target_, ignored);
  if (fs::is_directory(status)) Fail(EISDIR);
  if (fs::exists(status) && !fs::is_regular_file(status)) {
    descriptor_ = open(target_.c_str(), O_WRONLY | O_CLOEXEC);
    if (descriptor_ < 0) Fail(errno);
    return;
  }
  if (fs::exists(status) && access(target_.c_str(), W_OK) != 0) Fail(errno);
  beside_ = target_.string() + "." + std::string(kRandomLetters, 'X');
  descriptor_ = mkostemp(beside_.data(), O_CLOEXEC);
  if (descriptor_ < 0) {
    beside_.clear();
    Fail(errno);
  }
  const mode_t mode = fs::exists(status) ? static_cast<mode_t>(status.permissions()) & 0777 : UsualMode();
  if (fchmod(descriptor_, mode) == 0) return;
  const int error = errno;
  Close();
  Fail(error);
}

FileWriter::~FileWriter() { Close(); }

void FileWriter::Close() {
  if (descriptor_ >= 0) close(descriptor_);
  descriptor_ = -1;
  if (!beside_.empty()) unlink(beside_.c_str());
  beside_.clear();
}

void FileWriter::Fail(int error) const { FailToWrite(file_, error); }

void FileWriter::Write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t written = write(descriptor_, bytes.data(), bytes.size());
    if (written >= 0)
      bytes = bytes.subspan(static_cast<size_t>(written));
    else if (errno != EINTR)
      Fail(errno);
  }
}

void FileWriter::Commit() {
  if (!beside_.empty() && fsync(descriptor_) != 0) Fail(errno);
  const int descriptor = std::exchange(descriptor_, -1);
  if (close(descriptor) != 0) Fail(errno);  // some file systems report a full disk only here
  if (beside_.empty()) return;
  if (rename(beside_.c_str(), target_.c_str()) != 0) Fail(errno);
  beside_.clear();
  SyncFolder(target_);
}

void RemoveUnfinished(const fs::path& file) {
  const std::string start = file.filename().string() + ".";
  std::error_code ignored;
  std::vector<fs::path> unfinished;
  for (const auto& entry : fs::directory_iterator(file.has_parent_path() ? file.parent_path() : ".", ignored)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with(start) && name.size() == start.size() + kRandomLetters)
      unfinished.push_back(entry.path());
  }
  for (const fs::path& path : unfinished) fs::remove(path, ignored);
}

void WriteWholeFile(const fs::path& file, std::string_view bytes) {
  FileWriter writer(file);
  writer.Write(bytes);
  writer.Commit();
}

}  // namespace qkv
