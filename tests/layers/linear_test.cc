#include "layers/linear.h"

#include <gtest/gtest.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <numeric>
#include <string>
#include <thread>

#include "layers/noise.h"
#include "qkv/error.h"
#include "runtime/cpu.h"
#include "runtime/half.h"
#include "runtime/threads.h"
#include "support/guard.h"
#include "support/tolerance.h"

namespace qkv {
namespace {

using test::Edge;
using test::GuardedBuffer;
using test::Noise;
using Backend = std::unique_ptr<const LinearBackend> (*)(const LinearParameters&);

// oneDNN keeps to the instruction set of its first use, which comes before another one is forced.
template <class Body>
void OnEachInstructionSet(const Body& body) {
  OneDnnRuns();
  const Isa chosen = ChosenIsa();
  for (const Isa isa : SupportedIsas()) {
    SCOPED_TRACE(NameOf(isa));
    ForceIsa(isa);
    body(isa);
  }
  ForceIsa(chosen);
}

// A single matrix.
struct Matrix {
  const float* weight;
  const float* bias;
  int64_t inputs, outputs;
  DType dtype = DType::kF32;
};

std::unique_ptr<const LinearBackend> Make(Backend make, const Matrix& m) {
  const LinearPart part{m.weight, m.bias, m.outputs};
  return make({m.inputs, std::span(&part, 1), m.dtype});
}

struct Value {
  double value, tolerance;
};

// Output n for the row x.
Value Expected(const Matrix& p, const float* x, int64_t n) {
  double sum = p.bias == nullptr ? 0 : p.bias[n], magnitudes = std::fabs(sum);
  for (int64_t k = 0; k < p.inputs; ++k) {
    const double product = static_cast<double>(x[k]) * p.weight[n * p.inputs + k];
    sum += product;
    magnitudes += std::fabs(product);
  }
  return {sum, test::DotBound(p.inputs, magnitudes)};
}

struct Case {
  int64_t rows, inputs, outputs;
};

// Operands end at an unreadable page: generated code is held to their bounds too.
void Check(Backend make, const Case& c, Edge edge) {
  SCOPED_TRACE(testing::Message() << c.rows << " x " << c.inputs << " -> " << c.outputs);
  const GuardedBuffer<float> weight(Noise(1, c.outputs * c.inputs), edge), bias(Noise(2, c.outputs), edge);
  const GuardedBuffer<float> x(Noise(3, c.rows * c.inputs), edge);
  const std::vector<float> residual = Noise(4, c.rows * c.outputs);
  for (const float* b : {bias.data(), static_cast<const float*>(nullptr)}) {
    const Matrix p{weight.data(), b, c.inputs, c.outputs};
    const auto backend = Make(make, p);
    GuardedBuffer<float> y(std::span<const float>(Noise(5, c.rows * c.outputs)), edge), added(residual, edge);
    backend->Run(x.data(), c.rows, y.data(), Into::kOverwrite);
    backend->Run(x.data(), c.rows, added.data(), Into::kAdd);
    for (int64_t i = 0; i < y.size(); ++i) {
      const auto [value, tolerance] = Expected(p, x.data() + i / c.outputs * c.inputs, i % c.outputs);
      ASSERT_NEAR(y[i], value, tolerance) << "element " << i;
      const double sum = value + residual[static_cast<size_t>(i)];
      ASSERT_NEAR(added[i], sum, tolerance + test::Epsilon(DType::kF32) / 2 * std::fabs(sum)) << "element " << i;
    }
  }
}

std::vector<Case> Cases() {
  std::vector<Case> cases;
  for (int64_t rows : {1, 2, 6, 7, 13, 33, 64, 65, 97, 130}) cases.push_back({rows, 48, 80});
  for (int64_t outputs : {1, 15, 16, 17, 63, 64, 65, 200}) cases.push_back({5, 31, outputs});
  for (int64_t inputs : {1, 2, 255, 256, 257, 1999}) cases.push_back({9, inputs, 20});
  cases.push_back({12, 64, 96});
  return cases;
}

TEST(OneDnn, MultipliesAsTheFormulaSays) {
#if defined(QKV_TEST_WITH_ONEDNN)
  ASSERT_TRUE(OneDnnRuns());
  for (const Case& c : Cases()) {
    Check(MakeOneDnnBackend, c, Edge::kEnd);
    Check(MakeOneDnnBackend, c, Edge::kBegin);
  }
#else
  EXPECT_FALSE(OneDnnRuns());
#endif
}

// It is several times as fast as the tiles there, which widen to float32.
TEST(OneDnn, MultipliesBFloat16WhereThereAreInstructionsForIt) {
  OnEachInstructionSet([](Isa isa) {
    const bool has_instructions = isa == Isa::kAvx512Bf16 || isa == Isa::kAmx;
    EXPECT_EQ(OneDnnRunsBFloat16(), has_instructions && OneDnnRuns());
  });
}

TEST(Tiles, MultiplyAsTheFormulaSaysOnEveryInstructionSet) {
  OnEachInstructionSet([](Isa) {
    for (const Case& c : Cases()) {
      Check(MakeTileBackend, c, Edge::kEnd);
      Check(MakeTileBackend, c, Edge::kBegin);
    }
  });
}

std::vector<BFloat16> Rounded(const std::vector<float>& values) {
  std::vector<BFloat16> rounded(values.size());
  std::transform(values.begin(), values.end(), rounded.begin(), ToBFloat16);
  return rounded;
}

std::vector<float> Widened(const std::vector<BFloat16>& values) {
  std::vector<float> wide(values.size());
  std::transform(values.begin(), values.end(), wide.begin(), [](BFloat16 value) { return ToFloat(value); });
  return wide;
}

// Every pair of types of x and y. x holds bfloat16 values in either type, so it does not matter who rounds it.
void CheckBFloat16(Backend make, const Case& c, const float* bias) {
  SCOPED_TRACE(testing::Message() << c.rows << " x " << c.inputs << " -> " << c.outputs);
  const std::vector<float> weight = Noise(1, c.outputs * c.inputs);
  const std::vector<BFloat16> x16 = Rounded(Noise(3, c.rows * c.inputs));
  const std::vector<BFloat16> residual = Rounded(Noise(4, c.rows * c.outputs));
  const std::vector<float> x = Widened(x16), rounded_weight = Widened(Rounded(weight));
  const auto backend = Make(make, {weight.data(), bias, c.inputs, c.outputs, DType::kBF16});
  const Matrix rounded{rounded_weight.data(), bias, c.inputs, c.outputs};
  std::vector<Value> values(residual.size());
  for (size_t i = 0; i < values.size(); ++i) {
    const auto at = static_cast<int64_t>(i);
    values[i] = Expected(rounded, x.data() + at / c.outputs * c.inputs, at % c.outputs);
  }
  const auto check = [&](const std::vector<float>& y, Into into, double epsilon) {
    for (size_t i = 0; i < y.size(); ++i) {
      const double expected = values[i].value + (into == Into::kAdd ? ToFloat(residual[i]) : 0.0f);
      const double rounding = (epsilon + test::Epsilon(DType::kF32)) * std::fabs(expected);
      ASSERT_NEAR(y[i], expected, values[i].tolerance + rounding) << "element " << i;
    }
  };
  for (const ConstRows& from : {ConstRows(x.data()), ConstRows(x16.data())}) {
    for (Into into : {Into::kOverwrite, Into::kAdd}) {
      std::vector<float> y = Widened(residual);
      std::vector<BFloat16> y16 = residual;
      backend->Run(from, c.rows, y.data(), into);
      backend->Run(from, c.rows, y16.data(), into);
      check(y, into, 0);
      check(Widened(y16), into, test::Epsilon(DType::kBF16) / 2);
    }
  }
}

void CheckBFloat16(Backend make, const Case& c) { CheckBFloat16(make, c, Noise(2, c.outputs).data()); }

// With few rows on the project's own tiles, with the instructions of either set.
TEST(OneDnn, MultipliesInBFloat16WhereTheMachineCan) {
  if (!OneDnnRunsBFloat16()) GTEST_SKIP() << "no instructions for bfloat16 here";
  OnEachInstructionSet([](Isa) {
    if (!OneDnnRunsBFloat16()) return;
    for (const Case& c : Cases()) CheckBFloat16(MakeOneDnnBackend, c);
  });
}

// A weight of 4 MiB, of which up to 96 rows are few.
TEST(OneDnn, GivesFewRowsOfBFloat16TheSameBitsForAnyThreadsAndRows) {
  if (!OneDnnRunsBFloat16()) GTEST_SKIP() << "no instructions for bfloat16 here";
  constexpr int64_t kInputs = 1030, kOutputs = 2100, kRows = 96;
  const int before = Threads();
  const std::vector<float> weight = Noise(1, kInputs * kOutputs), bias = Noise(2, kOutputs);
  const std::vector<float> x = Widened(Rounded(Noise(3, kRows * kInputs)));
  const auto backend = Make(MakeOneDnnBackend, {weight.data(), bias.data(), kInputs, kOutputs, DType::kBF16});
  std::vector<float> all(kRows * kOutputs);
  backend->Run(x.data(), kRows, all.data(), Into::kOverwrite);
  const std::vector<float> rounded = Widened(Rounded(weight));
  const Matrix p{rounded.data(), bias.data(), kInputs, kOutputs};
  for (int64_t i = 0; i < kRows * kOutputs; i += 97) {
    const auto [value, tolerance] = Expected(p, x.data() + i / kOutputs * kInputs, i % kOutputs);
    ASSERT_NEAR(all[static_cast<size_t>(i)], value, tolerance) << "element " << i;
  }
  for (int threads : {1, 2, 3, 8}) {
    SetThreads(threads);
    for (int64_t rows : {1, 16, 50, 96}) {
      std::vector<float> y(static_cast<size_t>(rows * kOutputs));
      backend->Run(x.data(), rows, y.data(), Into::kOverwrite);
      EXPECT_TRUE(std::equal(y.begin(), y.end(), all.begin())) << rows << " rows, " << threads << " threads";
    }
  }
  SetThreads(before);
}

// Around the numbers of rows from which a multiply is our tiles', oneDNN's at once or in parts, or two of them.
constexpr auto kTurns = std::to_array<int64_t>(
    {63, 64, 65, 95, 96, 97, 127, 128, 129, 191, 192, 193, 383, 384, 385, 575, 576, 577, 700});

TEST(OneDnn, MultipliesManyRowsInBFloat16InPartsAndAtOnce) {
  if (!OneDnnRunsBFloat16()) GTEST_SKIP() << "no instructions for bfloat16 here";
  const int before = Threads();
  for (int threads : {2, 5}) {
    SetThreads(threads);
    for (int64_t rows : kTurns) {
      CheckBFloat16(MakeOneDnnBackend, {rows, 70, 130});
      CheckBFloat16(MakeOneDnnBackend, {rows, 64, 64}, /*bias=*/nullptr);
    }
  }
  SetThreads(before);
}

// Nor do a row's bits depend on the rows beside it. With more inputs oneDNN may add several sums.
TEST(OneDnn, GivesManyRowsOfBFloat16OnTilesTheSameBitsForAnyThreadsAndRows) {
  if (!OneDnnRunsBFloat16() || ChosenIsa() != Isa::kAmx) GTEST_SKIP() << "no tiles here";
  constexpr int64_t kInputs = 1000, kOutputs = 200, kRows = 1100;
  const int before = Threads();
  const std::vector<float> weight = Noise(1, kInputs * kOutputs), bias = Noise(2, kOutputs);
  const std::vector<BFloat16> x = Rounded(Noise(3, kRows * kInputs));
  const std::vector<float> residual = Noise(4, kRows * kOutputs);
  const auto backend = Make(MakeOneDnnBackend, {weight.data(), bias.data(), kInputs, kOutputs, DType::kBF16});
  const auto run = [&](int64_t rows) {
    std::vector<float> y(residual.begin(), residual.begin() + rows * kOutputs);
    backend->Run(x.data(), rows, y.data(), Into::kAdd);
    return y;
  };
  SetThreads(1);
  const std::vector<float> all = run(kRows);
  for (int threads : {1, 2, 3, 5}) {
    SetThreads(threads);
    for (int64_t rows : kTurns) {
      const std::vector<float> y = run(rows);
      EXPECT_TRUE(std::equal(y.begin(), y.end(), all.begin())) << rows << " rows, " << threads << " threads";
    }
    EXPECT_EQ(run(kRows), all) << threads << " threads";
  }
  SetThreads(before);
}

TEST(Tiles, KeepBFloat16AndMultiplyFloat32OnEveryInstructionSet) {
  OnEachInstructionSet([](Isa) {
    for (const Case& c : Cases()) CheckBFloat16(MakeTileBackend, c);
  });
}

TEST(Linear, RunsInBFloat16Everywhere) {
  constexpr int64_t kInputs = 70, kOutputs = 50, kRows = 9;
  const std::vector<float> weight = Noise(1, kInputs * kOutputs), x = Widened(Rounded(Noise(2, kRows * kInputs)));
  OnEachInstructionSet([&](Isa) {
    const Linear linear(kInputs, LinearPart{weight.data(), nullptr, kOutputs}, Activation::kNone, DType::kBF16);
    EXPECT_EQ(linear.dtype(), DType::kBF16);
    std::vector<float> y(kRows * kOutputs);
    linear.Forward(x.data(), kRows, y.data());
    const std::vector<float> rounded = Widened(Rounded(weight));
    const Matrix p{rounded.data(), nullptr, kInputs, kOutputs};
    for (int64_t i = 0; i < kRows * kOutputs; ++i) {
      const auto [value, tolerance] = Expected(p, x.data() + i / kOutputs * kInputs, i % kOutputs);
      ASSERT_NEAR(y[static_cast<size_t>(i)], value, tolerance) << "element " << i;
    }
  });
}

// Three parts packed without a copy of them all: multiples of a layout's block, and not.
void CheckParts(Backend make, DType dtype, const std::vector<int64_t>& outputs) {
  constexpr int64_t kInputs = 40, kRows = 20;
  const int64_t total = std::accumulate(outputs.begin(), outputs.end(), int64_t{0});
  const std::vector<float> weight = Noise(1, total * kInputs), bias = Noise(2, total), x = Noise(3, kRows * kInputs);
  std::vector<LinearPart> parts;
  int64_t first = 0;
  for (int64_t count : outputs) {
    parts.push_back({weight.data() + first * kInputs, first == 0 ? nullptr : bias.data() + first, count});
    first += count;
  }
  std::vector<float> whole_bias = bias;
  std::fill_n(whole_bias.begin(), outputs.front(), 0.0f);
  std::vector<float> y(static_cast<size_t>(kRows * total)), expected(y.size());
  make({kInputs, parts, dtype})->Run(x.data(), kRows, y.data(), Into::kOverwrite);
  Make(make, {weight.data(), whole_bias.data(), kInputs, total, dtype})
      ->Run(x.data(), kRows, expected.data(), Into::kOverwrite);
  EXPECT_EQ(y, expected);
}

TEST(Backends, PackPartsWhereTheyBelong) {
  for (const std::vector<int64_t>& outputs : {std::vector<int64_t>{64, 128, 64}, {7, 100, 33}, {64, 64, 10}}) {
    CheckParts(MakeTileBackend, DType::kF32, outputs);
    CheckParts(MakeTileBackend, DType::kBF16, outputs);
    if (OneDnnRuns()) CheckParts(MakeOneDnnBackend, DType::kF32, outputs);
    if (OneDnnRunsBFloat16()) CheckParts(MakeOneDnnBackend, DType::kBF16, outputs);
  }
}

TEST(Linear, PartsLieSideBySide) {
  constexpr int64_t kInputs = 20, kRows = 3;
  const std::vector<float> first = Noise(1, 7 * kInputs), second = Noise(2, 5 * kInputs), bias = Noise(3, 5);
  const std::vector<float> x = Noise(4, kRows * kInputs);
  const std::array parts{LinearPart{first.data(), nullptr, 7}, LinearPart{second.data(), bias.data(), 5}};
  const Linear both(kInputs, parts), a(kInputs, parts[0]), b(kInputs, parts[1]);
  ASSERT_EQ(both.outputs(), 12);
  std::vector<float> y(kRows * 12), y_a(kRows * 7), y_b(kRows * 5);
  both.Forward(x.data(), kRows, y.data());
  a.Forward(x.data(), kRows, y_a.data());
  b.Forward(x.data(), kRows, y_b.data());
  for (size_t r = 0; r < kRows; ++r) {
    for (size_t n = 0; n < 7; ++n) EXPECT_NEAR(y[r * 12 + n], y_a[r * 7 + n], test::kLayerOutput);
    for (size_t n = 0; n < 5; ++n) EXPECT_NEAR(y[r * 12 + 7 + n], y_b[r * 5 + n], test::kLayerOutput);
  }
}

// More rows than are activated at a time, in both types.
TEST(Linear, ActivatesWhatItMultiplied) {
  constexpr int64_t kInputs = 12, kOutputs = 40, kRows = 1100;
  const std::vector<float> weight = Noise(1, kInputs * kOutputs), bias = Noise(2, kOutputs);
  const std::vector<float> x = Noise(3, kRows * kInputs);
  const LinearPart part{weight.data(), bias.data(), kOutputs};
  for (DType dtype : {DType::kF32, DType::kBF16}) {
    const Linear plain(kInputs, part, Activation::kNone, dtype), activated(kInputs, part, Activation::kGeluErf, dtype);
    std::vector<float> expected(kRows * kOutputs), y(kRows * kOutputs);
    plain.Forward(x.data(), kRows, expected.data());
    Activate(Activation::kGeluErf, expected.data(), kRows * kOutputs);
    activated.Forward(x.data(), kRows, y.data());
    for (size_t i = 0; i < y.size(); ++i) ASSERT_NEAR(y[i], expected[i], test::kLayerOutput) << NameOf(dtype);
    EXPECT_THROW(activated.Forward(x.data(), kRows, y.data(), Into::kAdd), Error);
  }
}

TEST(Linear, NoRowsWriteNothing) {
  const std::vector<float> weight = Noise(1, 16);
  std::vector<float> x;
  Linear(4, LinearPart{weight.data(), nullptr, 4}).Forward(ConstRows(x.data()), 0, Rows(x.data()));
}

// With up to 40 and, in parts, up to 400 rows.
void ServeManyThreadsAtOnce(DType dtype, int64_t step) {
  constexpr int64_t kInputs = 64, kOutputs = 96;
  const std::vector<float> weight = Noise(1, kInputs * kOutputs), x = Noise(2, 40 * step * kInputs);
  const Linear linear(kInputs, LinearPart{weight.data(), nullptr, kOutputs}, Activation::kGeluErf, dtype);
  std::vector<std::vector<float>> expected;
  for (int64_t rows = step; rows <= 40 * step; rows += step) {
    linear.Forward(x.data(), rows, expected.emplace_back(static_cast<size_t>(rows * kOutputs)).data());
  }
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int64_t i = 0; i < 80; ++i) {
        const int64_t n = (i * 7 + t * 11) % 40;
        std::vector<float> y(static_cast<size_t>((n + 1) * step * kOutputs));
        linear.Forward(x.data(), (n + 1) * step, y.data());
        wrong += y != expected[static_cast<size_t>(n)];
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0) << NameOf(dtype);
}

TEST(Linear, ServesManyThreadsAtOnce) {
  ServeManyThreadsAtOnce(DType::kF32, 1);
  ServeManyThreadsAtOnce(DType::kBF16, 10);
}

// Scratch memory and the division of the work follow the number of threads at each call.
TEST(Linear, FollowsTheNumberOfThreads) {
  constexpr int64_t kInputs = 300, kOutputs = 130, kRows = 100;
  const int before = Threads();
  const std::vector<float> weight = Noise(1, kInputs * kOutputs), x = Noise(2, kRows * kInputs);
  SetThreads(1);
  const Linear linear(kInputs, LinearPart{weight.data(), nullptr, kOutputs});
  std::vector<float> one(kRows * kOutputs), y(kRows * kOutputs);
  linear.Forward(x.data(), kRows, one.data());
  for (int threads : {4, 2, 3}) {
    SetThreads(threads);
    linear.Forward(x.data(), kRows, y.data());
    for (size_t i = 0; i < y.size(); ++i) ASSERT_NEAR(y[i], one[i], test::kLayerOutput);
  }
  SetThreads(before);
}

// From here on this process can neither map executable memory nor make memory executable, as under systemd's
// MemoryDenyWriteExecute or SELinux's execmem.
void RefuseExecutableMemory() {
  sock_filter rules[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_mmap, 1, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_mprotect, 0, 3),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, args[2])),
      BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, PROT_EXEC, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog program{static_cast<unsigned short>(std::size(rules)), rules};
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
      prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) {
    std::fprintf(stderr, "seccomp refused\n");
    std::_Exit(2);
  }
}

// Runs in a process of its own: 0 when the results are right and oneDNN was found unable.
[[noreturn]] void MultiplyWithoutExecutableMemory() {
  RefuseExecutableMemory();
  void* page = mmap(nullptr, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (page != MAP_FAILED) std::_Exit(3);
  constexpr int64_t kInputs = 100, kOutputs = 70, kRows = 30;
  const std::vector<float> weight = Noise(1, kInputs * kOutputs), bias = Noise(2, kOutputs);
  const std::vector<float> x = Noise(3, kRows * kInputs);
  const Linear linear(kInputs, LinearPart{weight.data(), bias.data(), kOutputs});
  std::vector<float> y(kRows * kOutputs);
  linear.Forward(x.data(), kRows, y.data());
  const Matrix p{weight.data(), bias.data(), kInputs, kOutputs};
  for (int64_t i = 0; i < kRows * kOutputs; ++i) {
    const auto [value, tolerance] = Expected(p, x.data() + i / kOutputs * kInputs, i % kOutputs);
    if (!(std::fabs(y[static_cast<size_t>(i)] - value) < tolerance)) std::_Exit(4);
  }
  std::_Exit(OneDnnRuns() ? 5 : 0);
}

TEST(LinearDeathTest, IsRightWhereExecutableMemoryIsRefused) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");  // a fresh process, in which oneDNN has generated nothing yet
  EXPECT_EXIT(MultiplyWithoutExecutableMemory(), testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace qkv
