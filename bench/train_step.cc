// Times training steps on demand: bench/train starts it and writes requests to its standard input.
//   step CALLS   CALLS steps: prints their milliseconds and, after a bar, their losses, on one line
//   memory       prints how many MiB this process grew at its peak, from before the model was made
// Before that it writes the initial parameters as a GPT-2 checkpoint into FOLDER.
// Token t of sequence b of batch i is a hash of all three, modulo the vocabulary.
#include <chrono>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <sstream>
#include <string>
#include <vector>

#include "qkv/error.h"
#include "train/export.h"
#include "train/trainer.h"

namespace {

using Clock = std::chrono::steady_clock;
using qkv::train::Batch;

uint32_t Hash(uint32_t x) {
  for (const uint32_t factor : {0x85EBCA6Bu, 0xC2B2AE35u}) x = (x ^ (x >> 16)) * factor;
  return x ^ (x >> 16);
}

class HashedTokens : public qkv::train::BatchSource {
 public:
  explicit HashedTokens(int64_t vocab) : vocab_(static_cast<uint32_t>(vocab)) {}

  void Fill(int64_t index, const Batch& batch) const override {
    const int64_t row = batch.length + 1;
    for (int64_t i = 0; i < batch.sequences * row; ++i) {
      const uint32_t token = Hash(static_cast<uint32_t>(index * batch.sequences * row + i)) % vocab_;
      const int64_t b = i / row, t = i % row;
      if (t < batch.length)
        batch.inputs[static_cast<size_t>(b * batch.length + t)] = static_cast<int32_t>(token);
      if (t > 0) batch.targets[static_cast<size_t>(b * batch.length + t - 1)] = static_cast<int32_t>(token);
    }
  }

 private:
  uint32_t vocab_;
};

// The process's memory in MiB: "VmRSS" now, "VmHWM" at its peak.
double Memory(const std::string& which) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with(which)) return std::stod(line.substr(which.size() + 1)) / 1024;
  }
  return 0;
}

void Steps(qkv::train::Trainer& trainer, const HashedTokens& tokens, int64_t calls) {
  std::ostringstream times, losses;
  for (int64_t i = 0; i < calls; ++i) {
    const auto start = Clock::now();
    const double loss = trainer.Step(tokens).loss;
    times << std::chrono::duration<double, std::milli>(Clock::now() - start).count() << ' ';
    losses << ' ' << loss;
  }
  std::printf("%s|%s\n", times.str().c_str(), losses.str().c_str());
}

struct Sizes {
  qkv::train::DecoderConfig config;
  qkv::train::TrainOptions options;
};

Sizes SizesFrom(char** argv) {
  Sizes sizes;
  sizes.config.layers = std::stoll(argv[2]);
  sizes.config.heads = std::stoll(argv[3]);
  sizes.config.width = std::stoll(argv[4]);
  sizes.config.context = sizes.options.length = std::stoll(argv[5]);
  sizes.config.vocab = std::stoll(argv[6]);
  sizes.options.batch = std::stoll(argv[7]);
  sizes.options.warmup_steps = 10;
  if (std::string(argv[1]) == "bf16") sizes.options.precision = qkv::train::Precision::kBFloat16;
  return sizes;
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc != 9) {
    std::fputs("usage: train_step f32|bf16 LAYERS HEADS WIDTH CONTEXT VOCAB BATCH FOLDER\n", stderr);
    return 2;
  }
  const Sizes sizes = SizesFrom(argv);
  const double before = Memory("VmRSS:");
  qkv::train::Trainer trainer(sizes.config, sizes.options, qkv::train::InitialState(sizes.config, 1));
  const auto& parameters = trainer.state().parameters;
  qkv::train::WriteDecoder(argv[8], sizes.config, {parameters.data(), static_cast<size_t>(parameters.size())},
                           qkv::train::Precision::kFloat32);
  const HashedTokens tokens(sizes.config.vocab);
  std::puts("ready");
  std::fflush(stdout);
  for (std::string line; std::getline(std::cin, line);) {
    std::istringstream words(line);
    std::string request;
    int64_t calls = 0;
    words >> request >> calls;
    if (request == "step") Steps(trainer, tokens, calls);
    if (request == "memory") std::printf("%.1f\n", Memory("VmHWM:") - before);
    std::fflush(stdout);
  }
  return 0;
} catch (const qkv::Error& error) {
  std::fprintf(stderr, "train_step: %s\n", error.what());
  return 1;
}
