// Ctrl-C. It ends the process at once with status 130, except while there is something to clean up.
#pragma once

#include <atomic>

namespace qkv::cli {

void InstallInterruptHandler();  // leaves SIGINT alone where the parent process ignores it

// While one lives, the first Ctrl-C only raises a flag, and a second one kills.
class InterruptGuard {
 public:
  InterruptGuard();
  ~InterruptGuard();
  InterruptGuard(const InterruptGuard&) = delete;
  InterruptGuard& operator=(const InterruptGuard&) = delete;
};

bool Interrupted();         // whether a guard kept a Ctrl-C
void ThrowIfInterrupted();  // Error{kCancelled}

// True while an unfinished line stands on the terminal, which Ctrl-C must wipe.
extern std::atomic<bool> unfinished_line;

}  // namespace qkv::cli
