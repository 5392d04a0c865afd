// Memory: how much a call takes, what happens when there is none, and tensors of more than 2^32 elements.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include "attention_call.h"
#include "qkv/error.h"
#include "support/guard.h"
#include "support/sanitized.h"

namespace qkv::test {
namespace {

int64_t PeakBytes() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.rfind("VmHWM:", 0) == 0) return std::strtoll(line.c_str() + 6, nullptr, 10) * 1024;
  }
  return 0;
}

// Sets the peak to what is resident now, so that only what follows counts.
void ResetPeak() { std::ofstream("/proc/self/clear_refs") << "5"; }

constexpr int64_t kLong = 131072, kMebi = 1 << 20;

struct LongCall {
  Array<float> k = Array<float>::Random({1, 1, kLong, 64}, 1), v = Array<float>::Random({1, 1, kLong, 64}, 2);
  Array<float> out{{1, 1, kLong, 64}};
  AttentionOptions options;

  // A causal window keeps the work small, not the memory: all keys are packed, all rows are run.
  LongCall() {
    options.causal = Causal::kBottomRight;
    options.window.left = 255;
  }
};

TEST(Memory, ForwardOf131072TokensAddsAtMost90Megabytes) {
  if (kSanitized) GTEST_SKIP() << "sanitizers take memory of their own";
  LongCall call;
  ResetPeak();
  const int64_t before = PeakBytes();
  Attention(call.k.in(), call.k.in(), call.v.in(), call.options, call.out.out());
  const int64_t added = PeakBytes() - before;
  EXPECT_LE(added, 90'000'000);
  EXPECT_GT(added, 30'000'000) << "nothing was measured";
}

TEST(Memory, CaptureOfTheTop16AddsItsOwnSize) {
  if (kSanitized) GTEST_SKIP() << "sanitizers take memory of their own";
  LongCall call;
  CaptureRequest request;
  request.top_k = 16;
  ResetPeak();
  const int64_t before = PeakBytes();
  const Capture capture =
      AttentionWithCapture(call.k.in(), call.k.in(), call.v.in(), call.options, request, call.out.out());
  EXPECT_LE(PeakBytes() - before, 90'000'000 + kLong * 16 * 8);
  EXPECT_EQ(capture.top_keys.size(), static_cast<size_t>(kLong * 16));
}

// In a process of its own, whose address space is nearly used up.
[[noreturn]] void RunWithLittleMemory(int64_t spare) {
  SetThreads(1);
  const LongCall call;
  Array<float> out({1, 1, kLong, 64}, 7);
  std::ifstream statm("/proc/self/statm");
  int64_t pages = 0;
  statm >> pages;
  const rlim_t limit = static_cast<rlim_t>(pages * 4096 + spare);
  const rlimit bounds{limit, limit};
  if (setrlimit(RLIMIT_AS, &bounds) != 0) std::_Exit(2);
  try {
    Attention(call.k.in(), call.k.in(), call.v.in(), call.options, out.out());
    std::_Exit(3);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kOutOfMemory) std::_Exit(4);
    for (float value : out.values) {
      if (value != 7) std::_Exit(5);
    }
    std::_Exit(0);
  } catch (...) {
    std::_Exit(6);
  }
}

TEST(MemoryDeathTest, RunningOutGivesTheTypedErrorAndWritesNothing) {
  if (kSanitized) GTEST_SKIP() << "sanitizers need the address space";
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  for (int64_t spare : {int64_t{0}, 20 * kMebi, 50 * kMebi}) {
    EXPECT_EXIT(RunWithLittleMemory(spare), testing::ExitedWithCode(0), "") << spare;
  }
}

TEST(Memory, AnAbsurdCaptureGivesTheTypedError) {
  if (kSanitized) GTEST_SKIP() << "sanitizers refuse such sizes themselves";
  const Array<float> one({1, 1, 1, 1}, 1);
  const int64_t rows = int64_t{1} << 40;
  const ConstTensor q(one.values.data(), DType::kF32, {1, 1, rows, 1}, {0, 0, 0, 0});
  // Nothing is written to it: the capture's memory comes first.
  const Tensor out(reinterpret_cast<void*>(int64_t{1} << 43), DType::kF32, {1, 1, rows, 1});
  CaptureRequest request;
  request.top_k = 16;
  try {
    AttentionWithCapture(q, one.in(), one.in(), {}, request, out);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kOutOfMemory);
  }
}

// A key tensor of 2^33 elements, mapped but hardly used: sequence 1's keys lie past the 2^32nd element.
TEST(Memory, TensorsOfMoreThanFourGibiElementsAreIndexedRight) {
  if (kSanitized) GTEST_SKIP() << "too large for shadow memory";
  const int64_t far = int64_t{1} << 32, bytes = (2 * far) * 4;
  void* memory = mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) GTEST_SKIP() << "no address space";
  float* keys = static_cast<float*>(memory);
  const auto small_k = Array<float>::Random({2, 2, 300, 8}, 1);
  // (B, H, T, D) with T's stride 2^23 + 8 and B's 2^32: every axis but the last reaches far.
  const std::array<int64_t, 4> stride{far, 8, (far / 300) & ~int64_t{15}, 1};
  for (int64_t at = 0; at < 2 * 2 * 300 * 8; ++at) {
    const int64_t b = at / 4800, h = at / 2400 % 2, j = at / 8 % 300, c = at % 8;
    keys[b * stride[0] + h * stride[1] + j * stride[2] + c] = small_k[at];
  }
  const ConstTensor large(keys, DType::kF32, {2, 2, 300, 8}, stride);
  const auto q = Array<float>::Random({2, 2, 5, 8}, 2);
  Array<float> out({2, 2, 5, 8});
  Attention(q.in(), large, large, {}, out.out());
  EXPECT_EQ(out.values, Attend(q, small_k, small_k).out.values);
  munmap(memory, static_cast<size_t>(bytes));
}

// 2^33 keys of one element each through strides of 0, of which a window shows a few.
TEST(Memory, PositionsGoPast32Bits) {
  const Array<float> q({1, 1, 1, 4}, 1), k({1, 1, 3, 4}, 1);
  AttentionOptions options;
  options.causal = Causal::kBottomRight;
  const Array<float> slope({1}, 0.5f);
  options.alibi_slopes = slope.in();
  options.offset = std::vector<int64_t>{(int64_t{1} << 40) + 2};
  const Answer<float> far = Attend(q, k, k, options);
  EXPECT_FLOAT_EQ(far.lse[0], -0.5f * 0x1p40f);
  options.alibi_slopes.reset();
  options.window.left = (int64_t{1} << 40) + 1;
  const Answer<float> window = Attend(q, k, k, options);  // keys 1 and 2
  EXPECT_NEAR(window.lse[0], 2 + std::log(2.0), 1e-6);
}

// Every input ends, or begins, at an unreadable page.
TEST(Memory, InputsAreNotReadPast) {
  OnEveryIsa([&](Isa) {
    for (Edge edge : {Edge::kEnd, Edge::kBegin}) {
      for (int64_t d : {1, 7, 16, 33, 64, 65}) {
        for (int64_t tk : {1, 5, 16, 63, 256, 257, 300}) {
          GuardedBuffer<float> q(3 * d, edge), k(tk * d, edge), v(tk * d, edge), bias(3 * tk, edge),
              out(3 * d, edge);
          GuardedBuffer<uint8_t> mask(3 * tk, edge);
          std::fill(mask.begin(), mask.end(), uint8_t{1});
          AttentionOptions options;
          options.bias = ConstTensor(bias.data(), DType::kF32, {3, tk});
          options.mask = ConstTensor(mask.data(), DType::kBool, {3, tk});
          const Shape keys{1, 1, tk, d}, rows{1, 1, 3, d};
          Attention({q.data(), DType::kF32, rows}, {k.data(), DType::kF32, keys}, {v.data(), DType::kF32, keys},
                    options, Tensor(out.data(), DType::kF32, rows));
          EXPECT_EQ(out[0], 0);
        }
      }
    }
  });
}

}  // namespace
}  // namespace qkv::test
