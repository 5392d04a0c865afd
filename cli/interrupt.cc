#include "cli/interrupt.h"

#include <unistd.h>

#include <csignal>
#include <string_view>

#include "cli/exit_status.h"
#include "qkv/error.h"

namespace qkv::cli {

std::atomic<bool> unfinished_line{false};

namespace {

// Lock-free atomics are what a signal handler may touch, and it may run on any thread.
std::atomic<int> g_guards{0};
std::atomic<bool> g_interrupted{false};
static_assert(std::atomic<int>::is_always_lock_free && std::atomic<bool>::is_always_lock_free);

void WriteToError(std::string_view text) {
  if (write(STDERR_FILENO, text.data(), text.size()) < 0) return;  // nobody reads it: all the same
}

extern "C" void OnInterrupt(int) {
  if (g_guards.load() == 0) {
    if (unfinished_line.load()) WriteToError("\r\x1b[K");
    WriteToError("qkv: interrupted\n");
    _exit(kInterrupted);
  }
  g_interrupted.store(true);
  std::signal(SIGINT, SIG_DFL);
}

}  // namespace

void InstallInterruptHandler() {
  struct sigaction action {};
  if (sigaction(SIGINT, nullptr, &action) != 0 || action.sa_handler == SIG_IGN) return;
  action = {};
  action.sa_handler = OnInterrupt;
  action.sa_flags = SA_RESTART;
  sigaction(SIGINT, &action, nullptr);
}

InterruptGuard::InterruptGuard() { ++g_guards; }
InterruptGuard::~InterruptGuard() { --g_guards; }

bool Interrupted() { return g_interrupted.load(); }

void ThrowIfInterrupted() {
  if (Interrupted()) throw Error(ErrorCode::kCancelled, "interrupted");
}

}  // namespace qkv::cli
