// One process at a time in a run's folder.
#pragma once

#include <filesystem>

namespace qkv::train {

// Held until destroyed or until the process ends in any way: the kernel lets go of it, so a kill leaves no lock. The
// file itself stays, as removing it would let two processes lock two files of one name.
class RunLock {
 public:
  // In `folder`, which must be there. Error{kInvalidArgument} where another process holds it; kIo naming the file.
  explicit RunLock(const std::filesystem::path& folder);
  ~RunLock();
  RunLock(const RunLock&) = delete;
  RunLock& operator=(const RunLock&) = delete;

 private:
  int descriptor_ = -1;
};

}  // namespace qkv::train
