// Times a model's forward on demand: bench/minilm starts it and writes requests to its standard input.
//   time BATCH LENGTH CALLS    one call to warm up, then CALLS timed ones: prints their milliseconds on one
//   line hidden BATCH LENGTH FILE   writes the last hidden states to FILE as raw float32 and prints "done"
// Token i of a batch is 1000 + 7919 i mod 20000.
#include <chrono>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <sstream>
#include <string>

#include "qkv/error.h"
#include "qkv/model.h"

namespace {

using Clock = std::chrono::steady_clock;

double MillisecondsSince(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

std::vector<int64_t> Ids(int64_t count) {
  std::vector<int64_t> ids(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) ids[static_cast<size_t>(i)] = 1000 + i * 7919 % 20000;
  return ids;
}

void Time(const qkv::Model& model, int64_t batch, int64_t length, int64_t calls) {
  const std::vector<int64_t> ids = Ids(batch * length);
  model.Forward(ids, batch);
  for (int64_t i = 0; i < calls; ++i) {
    const auto start = Clock::now();
    const std::vector<float> hidden = model.Forward(ids, batch);
    std::printf("%.6f%c", MillisecondsSince(start), i + 1 < calls ? ' ' : '\n');
  }
}

void WriteHidden(const qkv::Model& model, int64_t batch, int64_t length, const std::string& path) {
  const std::vector<float> hidden = model.Forward(Ids(batch * length), batch);
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(hidden.data()),
             static_cast<std::streamsize>(hidden.size() * sizeof(float)));
  std::puts("done");
}

void Serve(const qkv::Model& model) {
  for (std::string line; std::getline(std::cin, line);) {
    std::istringstream words(line);
    std::string request, last;
    int64_t batch = 0, length = 0;
    words >> request >> batch >> length >> last;
    if (request == "time") Time(model, batch, length, std::stoll(last));
    if (request == "hidden") WriteHidden(model, batch, length, last);
    std::fflush(stdout);
  }
}

}  // namespace

int main(int argc, char** argv) try {
  const std::string dtype = argc == 3 ? argv[2] : "f32";
  if (argc < 2 || argc > 3 || (dtype != "f32" && dtype != "bf16")) {
    std::fputs("usage: minilm_forward MODEL [f32|bf16]\n", stderr);
    return 2;
  }
  const auto start = Clock::now();
  const auto model = qkv::LoadModel(argv[1], {dtype == "bf16" ? qkv::DType::kBF16 : qkv::DType::kF32});
  std::printf("loaded %.3f\n", MillisecondsSince(start));
  std::fflush(stdout);
  Serve(*model);
  return 0;
} catch (const qkv::Error& error) {
  std::fprintf(stderr, "minilm_forward: %s\n", error.what());
  return 1;
}
