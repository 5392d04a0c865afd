#include "runtime/threads.h"

#include <omp.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <ctime>
#include <exception>
#include <fstream>
#include <string>

#include "qkv/error.h"

namespace qkv {
namespace {

std::atomic<int> g_threads{0};  // 0: not chosen yet

// A positive whole number in an environment variable, or 0.
int CountFromEnvironment(const char* name) {
  const char* text = std::getenv(name);
  if (text == nullptr) return 0;
  char* end = nullptr;
  errno = 0;
  const long value = std::strtol(text, &end, 10);
  return errno == 0 && end != text && value >= 1 && value <= 4096 ? static_cast<int>(value) : 0;
}

// Processors that the control group's quota (version 2) allows, rounded up; 0 where there is no quota.
int ContainerLimit() {
  std::ifstream file("/sys/fs/cgroup/cpu.max");
  double quota = 0, period = 0;
  if (!(file >> quota >> period) || quota <= 0 || period <= 0) return 0;
  return std::max(1, static_cast<int>((quota + period - 1) / period));
}

int DefaultThreads() {
  if (const int count = CountFromEnvironment("QKV_NUM_THREADS")) return count;
  if (const int count = CountFromEnvironment("OMP_NUM_THREADS")) return count;
  const int processors = std::max(1, omp_get_num_procs());
  const int limit = ContainerLimit();
  return limit > 0 ? std::min(limit, processors) : processors;
}

// Read at each task: a precise clock would take longer than the smallest of them.
int64_t CoarseMilliseconds() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
  return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

}  // namespace

int Threads() {
  int count = g_threads.load(std::memory_order_relaxed);
  if (count == 0) {
    const int chosen = DefaultThreads();
    if (g_threads.compare_exchange_strong(count, chosen)) count = chosen;  // else SetThreads came first
  }
  // OpenMP keeps its count for each thread that calls it.
  thread_local int told = 0;
  if (told != count) omp_set_num_threads(told = count);
  return count;
}

void SetThreads(int count) {
  if (count < 1) {
    throw Error(ErrorCode::kInvalidArgument, "bad thread count", "threads", "at least 1", std::to_string(count));
  }
  g_threads.store(count, std::memory_order_relaxed);
}

OneThread::OneThread() {
  Threads();  // else the next call might undo it
  omp_set_num_threads(1);
}

OneThread::~OneThread() { omp_set_num_threads(Threads()); }

void ParallelFor(int64_t tasks, const std::function<void(int64_t, int)>& body, const Progress& progress,
                 int threads) {
  const int team = static_cast<int>(std::min<int64_t>(std::min(threads, Threads()), tasks));
  std::atomic<int64_t> next{0}, done{0};
  std::atomic<bool> cancelled{false}, failed{false};
  std::exception_ptr failure;  // the first one's; read after the threads have joined
  int64_t last_report = CoarseMilliseconds();

  const auto run = [&](int64_t task, int thread) {
    try {
      body(task, thread);
    } catch (...) {
      if (!failed.exchange(true)) failure = std::current_exception();
    }
  };
  const auto work = [&](int thread) {
    for (int64_t task = next++; task < tasks && !cancelled && !failed; task = next++) {
      run(task, thread);
      const int64_t finished = ++done;
      // Thread 0 of an OpenMP region is the calling thread.
      if (progress && thread == 0 && CoarseMilliseconds() - last_report > 50) {
        last_report = CoarseMilliseconds();
        if (!progress(finished, tasks)) cancelled = true;
      }
    }
  };
  if (team <= 1) {
    work(0);
  } else {
#pragma omp parallel num_threads(team)
    work(omp_get_thread_num());
  }
  if (failure) std::rethrow_exception(failure);
  if (cancelled) throw Error(ErrorCode::kCancelled, "cancelled");
}

}  // namespace qkv
