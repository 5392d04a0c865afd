// The only user of OpenMP: one pool, shared with oneDNN.
#pragma once

#include <cstdint>
#include <functional>

#include "qkv/progress.h"

namespace qkv {

// Threads that parallel work uses: SetThreads' value, else QKV_NUM_THREADS, else OMP_NUM_THREADS, else the
// processors this process may use, cut to the container's CPU quota. At least 1. OpenMP code of others that the
// calling thread runs next (oneDNN's) uses as many.
int Threads();
void SetThreads(int count);  // Error{kInvalidArgument} when count < 1

// While it lives, OpenMP code of others that the calling thread runs uses one thread.
class OneThread {
 public:
  OneThread();
  ~OneThread();
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;
};

// Runs body(task, thread) for each task in [0, tasks), each once, in any order; thread is in [0, Threads()).
// Tasks are handed out one by one, lowest first, so put the long ones first. If body throws, no more tasks are handed
// out and the first exception is thrown here.
// progress, where given, is called from the calling thread; returning false stops handing out tasks and
// throws Error{kCancelled} after the running ones end.
// threads: at most that many, where the work is too small for all of them.
void ParallelFor(int64_t tasks, const std::function<void(int64_t task, int thread)>& body,
                 const Progress& progress = {}, int threads = Threads());

}  // namespace qkv
