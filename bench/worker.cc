// Our side of the cases of bench/compare that the Python package does not have: layers and models. bench/compare
// starts it and writes requests to its standard input; each is answered by one line.
//   prepare CASE    makes a case of `qkv bench --list` ready and runs it: prints its operations
//   time CALLS      one call to warm up, then CALLS timed ones: prints their milliseconds
//   result FILE     writes the last result to FILE as raw float32: prints "done"
#include <cstdio>
#include <fstream>
#include <iostream>
#include <memory>
#include <sstream>
#include <string>

#include "bench/measure.h"
#include "qkv/error.h"

namespace {

using qkv::bench::Case;
using qkv::bench::Workload;

std::unique_ptr<Workload> Prepare(const std::string& name) {
  for (const Case& one : qkv::bench::NamedCases()) {
    if (one.name != name) continue;
    auto workload = MakeWorkload(one, qkv::bench::DescribeMachine());
    workload->Run();
    std::printf("%.0f\n", workload->operations());
    return workload;
  }
  throw qkv::Error(qkv::ErrorCode::kInvalidArgument, "no such case", name);
}

void Time(Workload& workload, int64_t calls) {
  workload.Run();
  for (const double ms : TimeCalls(workload, calls)) std::printf("%.6f ", ms);
  std::puts("");
}

void WriteResult(const Workload& workload, const std::string& path) {
  const std::vector<float> result = workload.Result();
  std::ofstream file(path, std::ios::binary);
  file.write(reinterpret_cast<const char*>(result.data()), static_cast<std::streamsize>(result.size() * sizeof(float)));
  if (!file.flush()) throw qkv::Error(qkv::ErrorCode::kIo, "cannot be written", path);
  std::puts("done");
}

void Serve() {
  std::unique_ptr<Workload> workload;
  for (std::string line; std::getline(std::cin, line);) {
    std::istringstream words(line);
    std::string request, argument;
    words >> request >> argument;
    if (request == "prepare") {
      workload.reset();  // its memory first
      workload = Prepare(argument);
    } else if (workload != nullptr && request == "time") {
      Time(*workload, std::stoll(argument));
    } else if (workload != nullptr && request == "result") {
      WriteResult(*workload, argument);
    } else {
      throw qkv::Error(qkv::ErrorCode::kInvalidArgument, "bad request", line);
    }
    std::fflush(stdout);
  }
}

}  // namespace

int main() try {
  Serve();
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "bench_worker: %s\n", error.what());
  return 1;
}
