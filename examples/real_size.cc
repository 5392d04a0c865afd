// The third lesson's numbers (docs/tutorial/3-real-size.md): from a text to one attention layer of the size of
// GPT-3's (Brown et al. 2020, table 2.1), with random parameters. --plan prints what can be said without
// running it.
#include <qkv/error.h>
#include <qkv/explain.h>
#include <qkv/layers.h>
#include <qkv/model.h>
#include <sys/resource.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <string>
#include <vector>

#include "bench/machine.h"
#include "runtime/memory.h"
#include "runtime/threads.h"

namespace {

constexpr const char* kText =
    "The chicken didn’t cross the road because it was too tired. The keys to the cabinet are on the table. "
    "I walked along the pond, and noticed one of the trees along the bank. "
    "The bank lent me money for a small boat.";
constexpr int64_t kVocabulary = 50257;  // GPT-3's tokens
constexpr double kGiga = 1e9;

struct Size {
  int64_t width = 12288, heads = 96, tokens = 50;
  qkv::DType dtype = qkv::DType::kF32;

  double Parameters() const { return 4.0 * static_cast<double>(width) * static_cast<double>(width); }
  // A multiply-add is 2: every token meets every parameter once, and of the pairs of tokens the mask leaves
  // half.
  double Operations() const {
    const auto t = static_cast<double>(tokens);
    return 2 * t * Parameters() + 2 * t * (t + 1) * static_cast<double>(width);
  }
};

void Check(const Size& size) {
  if (size.width % size.heads == 0) return;
  throw qkv::Error(qkv::ErrorCode::kInvalidArgument, "the width cannot be divided among the heads", "--width",
                   "a multiple of " + std::to_string(size.heads) + " heads", std::to_string(size.width));
}

// The float32 parameters and the copy that the layer packs of them, of the type that it multiplies in.
void RequireRoom(const Size& size) {
  const auto packed = static_cast<double>(qkv::SizeOf(size.dtype));
  qkv::RequireMemory(
      size.Parameters() * (sizeof(float) + packed) + 64.0 * static_cast<double>(size.width * size.tokens),
      "the layer");
}

// The first tokens of the text, with ids counted anew from 0, so that a table of their vectors has no empty
// rows.
qkv::Encoding Tokens(int64_t count) {
  const auto model = qkv::LoadModel("smollm2");
  qkv::Encoding text = model->tokenizer().Encode(kText);
  const auto all = static_cast<int64_t>(text.ids.size());
  if (count > all) {
    throw qkv::Error(qkv::ErrorCode::kInvalidArgument, "the text is too short", "--tokens",
                     "at most " + std::to_string(all), std::to_string(count));
  }
  text.ids.resize(static_cast<size_t>(count));
  text.labels.resize(static_cast<size_t>(count));
  std::vector<int64_t> distinct;
  for (int64_t& id : text.ids) {
    const auto found = std::find(distinct.begin(), distinct.end(), id);
    if (found == distinct.end()) distinct.push_back(id);
    id = std::find(distinct.begin(), distinct.end(), id) - distinct.begin();
  }
  return text;
}

void PrintTokens(const qkv::Encoding& text) {
  std::printf("%d tokens\n", static_cast<int>(text.labels.size()));
  std::string line;
  for (const std::string& label : text.labels) {
    if (line.size() + label.size() > 90) std::printf("%s\n", line.c_str()), line.clear();
    line += (line.empty() ? "" : " | ") + label;
  }
  std::printf("%s\n", line.c_str());
}

std::string Grouped(double number) {
  std::string digits = std::to_string(static_cast<int64_t>(number));
  for (auto i = static_cast<int64_t>(digits.size()) - 3; i > 0; i -= 3)
    digits.insert(static_cast<size_t>(i), ",");
  return digits;
}

void PrintShape(const char* what, std::initializer_list<int64_t> sizes) {
  std::string text;
  for (const int64_t size : sizes) text += (text.empty() ? "" : " x ") + Grouped(static_cast<double>(size));
  std::printf("%-32s%s\n", what, text.c_str());
}

void PrintEmbedding(const Size& size) {
  PrintShape("table of token embeddings", {kVocabulary, size.width});
  PrintShape("the rows of the text's tokens", {size.tokens, size.width});
  PrintShape("and of their positions", {size.tokens, size.width});
  PrintShape("their sum X, the layer's input", {size.tokens, size.width});
}

void PrintLayer(const Size& size, int64_t heads) {
  const int64_t d = size.width / heads;
  std::printf("%s\n", heads == 1 ? "one head" : (std::to_string(heads) + " heads").c_str());
  PrintShape("  W_Q, W_K, W_V of a head, each", {size.width, d});
  PrintShape("  W_O", {heads * d, size.width});
  PrintShape("  q, k, v of a head, each", {size.tokens, d});
  PrintShape("  weights of a head", {size.tokens, size.tokens});
  PrintShape("  heads side by side", {size.tokens, heads * d});
  PrintShape("  Y", {size.tokens, size.width});
  const double head = 3.0 * static_cast<double>(size.width) * static_cast<double>(d);
  const double output = static_cast<double>(heads * d) * static_cast<double>(size.width);
  std::printf("  parameters  %s x %s + %s = %s\n", Grouped(static_cast<double>(heads)).c_str(),
              Grouped(head).c_str(), Grouped(output).c_str(),
              Grouped(static_cast<double>(heads) * head + output).c_str());
}

void PrintCost(const Size& size) {
  std::printf("memory of the parameters   float32 %.2f GB, bfloat16 %.2f GB\n", 4 * size.Parameters() / kGiga,
              2 * size.Parameters() / kGiga);
  std::printf("operations for %d tokens   %.2f billion\n", static_cast<int>(size.tokens),
              size.Operations() / kGiga);
}

void PrintPlan(const Size& size) {
  PrintTokens(Tokens(size.tokens));
  std::printf("\n");
  PrintEmbedding(size);
  std::printf("\n");
  PrintLayer(size, 1);
  std::printf("\n");
  PrintLayer(size, size.heads);
  std::printf("\n");
  PrintCost(size);
}

class Watch {
 public:
  double Seconds() const { return std::chrono::duration<double>(Clock::now() - begin_).count(); }

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point begin_ = Clock::now();
};

double ResidentNow() {
  int64_t all = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> all >> resident;
  return static_cast<double>(resident * sysconf(_SC_PAGESIZE));
}

double ResidentAtMost() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) * 1024;
}

struct Run {
  double fill = 0, pack = 0, seconds = 0;  // seconds: of one pass
  double resident = 0;                     // bytes while it runs
  float last = 0;                          // token's first number of Y
};

// Makes the parameters, packs them, forgets them, and times the layer on the text: the fastest of some passes.
Run RunLayer(const Size& size, int64_t heads, const qkv::Encoding& text) {
  constexpr int kPasses = 5;
  Run run;
  const Watch fill;
  qkv::OpenLayer open = qkv::RandomLayer(text, {size.width, size.width, heads}, 3);
  run.fill = fill.Seconds();
  std::vector<float> x = open.input;
  const std::vector<float> positions = qkv::SinusoidalPositions(size.tokens, size.width);
  std::transform(x.begin(), x.end(), positions.begin(), x.begin(), std::plus<>());
  open.config.dtype = size.dtype;
  const Watch pack;
  const qkv::MultiHeadAttention layer(open.config, open.parameters);
  run.pack = pack.Seconds();
  open.parameters = {};
  std::vector<float> y(x.size());
  for (int pass = 0; pass < kPasses; ++pass) {
    const Watch watch;
    layer.Forward(x.data(), 1, size.tokens, y.data());
    run.seconds = pass == 0 ? watch.Seconds() : std::min(run.seconds, watch.Seconds());
  }
  run.resident = ResidentNow();
  run.last = y[static_cast<size_t>((size.tokens - 1) * size.width)];
  return run;
}

void PrintRun(const Size& size) {
  const bool wide = size.dtype == qkv::DType::kF32;
  const qkv::Encoding text = Tokens(size.tokens);
  const Run one = RunLayer(size, 1, text), many = RunLayer(size, size.heads, text);
  const double at_most = ResidentAtMost();
  const qkv::bench::Machine machine = qkv::bench::DescribeMachine();
  const qkv::bench::Peaks peaks = qkv::bench::MeasurePeaks(machine.threads);
  const double peak = wide ? peaks.f32 : peaks.bf16();
  const double bytes = size.Parameters() * static_cast<double>(qkv::SizeOf(size.dtype));
  const auto line = [&](const char* what, double a, double b, const char* unit) {
    std::printf("%-32s%8.3f%12.3f%s\n", what, a, b, unit);
  };
  std::printf("%s, %d threads, %s\n", wide ? "float32" : "bfloat16", machine.threads,
              machine.processor.c_str());
  std::printf("peaks: %.0f billion operations a second, %.1f GB read a second\n\n", peak / kGiga,
              peaks.read / kGiga);
  std::printf("%32s%8s%12s\n", "", "one head", (std::to_string(size.heads) + " heads").c_str());
  line("making random parameters", one.fill, many.fill, " s");
  line("packing them", one.pack, many.pack, " s");
  line("the layer", one.seconds, many.seconds, " s");
  line("share of the peak of operations", size.Operations() / one.seconds / peak,
       size.Operations() / many.seconds / peak, "");
  line("share of the peak of reading", bytes / one.seconds / peaks.read, bytes / many.seconds / peaks.read, "");
  line("the last token's first number", one.last, many.last, "");
  line("memory while it runs", one.resident / kGiga, many.resident / kGiga, " GB");
  std::printf("%-44s%8.3f GB\n", "memory at most, while packing", at_most / kGiga);
}

int StatusOf(qkv::ErrorCode code) {
  switch (code) {
    case qkv::ErrorCode::kOutOfMemory: return 4;
    case qkv::ErrorCode::kFile: return 3;
    case qkv::ErrorCode::kInvalidArgument: return 2;
    default: return 1;
  }
}

}  // namespace

int main(int argc, char** argv) {
  Size size;
  std::string dtype = "f32";
  bool plan = false;
  CLI::App parser("One attention layer of the size of GPT-3's, on random parameters");
  parser.add_option("--width", size.width, "Of the layer [12288]")->check(CLI::Range(1, 1 << 24));
  parser.add_option("--heads", size.heads, "Of the layer [96]")->check(CLI::Range(1, 1 << 24));
  parser.add_option("--tokens", size.tokens, "Of the text [50]")->check(CLI::Range(1, 1 << 24));
  parser.add_option("--dtype", dtype, "What the parameters are multiplied in [f32]")
      ->check(CLI::IsMember({"f32", "bf16"}));
  parser.add_flag("--plan", plan, "Print shapes and counts, and run nothing");
  try {
    parser.parse(argc, argv);
    size.dtype = dtype == "bf16" ? qkv::DType::kBF16 : qkv::DType::kF32;
    Check(size);
    if (plan) {
      PrintPlan(size);
    } else {
      RequireRoom(size);
      PrintRun(size);
    }
  } catch (const CLI::ParseError& error) {
    return parser.exit(error) == 0 ? 0 : 2;
  } catch (const qkv::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return StatusOf(error.code());
  }
}
