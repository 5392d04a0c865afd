#include "train/run_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <system_error>

#include "qkv/error.h"

namespace qkv::train {

RunLock::RunLock(const std::filesystem::path& folder) {
  const std::filesystem::path file = folder / "run.lock";
  descriptor_ = open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (descriptor_ < 0) {
    throw Error(ErrorCode::kIo, "cannot write: " + std::generic_category().message(errno), file.string());
  }
  if (flock(descriptor_, LOCK_EX | LOCK_NB) == 0) return;
  const int error = errno;
  close(descriptor_);
  if (error == EWOULDBLOCK) {
    throw Error(ErrorCode::kInvalidArgument, "another process trains in this folder", folder.string());
  }
  throw Error(ErrorCode::kIo, "cannot lock: " + std::generic_category().message(error), file.string());
}

RunLock::~RunLock() { close(descriptor_); }

}  // namespace qkv::train
