// qkv bench: how fast this machine could be, and how fast qkv is on it.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bench/measure.h"
#include "cli/arguments.h"
#include "cli/bench_report.h"
#include "cli/command.h"
#include "cli/exit_status.h"
#include "cli/output.h"
#include "cli/terminal.h"
#include "qkv/error.h"
#include "qkv/model.h"
#include "runtime/threads.h"

namespace qkv::cli {
namespace {

using bench::Case;

struct BenchOptions {
  std::vector<std::string> cases;
  std::optional<std::string> shape, queries, dtype, threads, rounds;
  bool causal = false, phases = false, peaks = false, list = false, json = false;
};

std::vector<int64_t> ParseSizes(const std::string& text) {
  constexpr int64_t kLargest = 1 << 24;  // of one size; memory is what limits them together
  std::vector<int64_t> sizes;
  for (const std::string& item : CLI::detail::split(text, ',')) {
    const std::optional<int64_t> size = ParseWhole(item);
    sizes.push_back(size && *size >= 1 && *size <= kLargest ? *size : 0);
  }
  if (sizes.size() != 5 || std::count(sizes.begin(), sizes.end(), 0) > 0 || sizes[1] % sizes[2] != 0) {
    throw Error(ErrorCode::kInvalidArgument, "bad shape", "--shape",
                "B,Hq,Hkv,T,D such as 1,32,8,2048,128, Hq a multiple of Hkv", Quote(text));
  }
  return sizes;
}

Case OwnCase(const BenchOptions& options) {
  const std::vector<int64_t> sizes = ParseSizes(*options.shape);
  Case one;
  one.batch = sizes[0], one.q_heads = sizes[1], one.kv_heads = sizes[2], one.keys = sizes[3], one.d = sizes[4];
  one.queries = options.queries ? ParseCount("--queries", *options.queries, 1, one.keys) : one.keys;
  one.dtype = ParseDType("--dtype", options.dtype.value_or("f32"), {DType::kF32, DType::kBF16, DType::kF16});
  one.causal = options.causal ? Causal::kBottomRight : Causal::kNone;
  one.name = fmt::format("{}{}", options.dtype.value_or("f32"), options.causal ? "-causal" : "");
  return one;
}

void RefuseWithoutShape(const BenchOptions& options) {
  const char* option = options.queries  ? "--queries"
                       : options.dtype  ? "--dtype"
                       : options.causal ? "--causal"
                                        : nullptr;
  if (option != nullptr)
    throw Error(ErrorCode::kInvalidArgument, "describes a case of your own: give its --shape", option);
}

bool IsInstalled(const std::string& model) {
  const std::vector<KnownModel> known = KnownModels();
  return std::any_of(known.begin(), known.end(),
                     [&](const KnownModel& m) { return m.name == model && m.installed; });
}

std::vector<Case> CasesNamedLike(const std::string& part) {
  std::vector<Case> found;
  for (const Case& one : bench::NamedCases()) {
    if (one.name.find(part) != std::string::npos) found.push_back(one);
  }
  if (found.empty()) {
    throw Error(ErrorCode::kInvalidArgument, "no such case", "--case", "a part of a name in qkv bench --list",
                Quote(part));
  }
  return found;
}

// Without names all of those that run by themselves; a model that is not installed only where it is named.
std::vector<Case> ChooseCases(const BenchOptions& options) {
  std::vector<Case> chosen;
  for (const std::string& part : options.cases) {
    for (const Case& one : CasesNamedLike(part)) {
      const auto same = [&](const Case& other) { return other.name == one.name; };
      if (std::none_of(chosen.begin(), chosen.end(), same)) chosen.push_back(one);
    }
  }
  if (options.shape)
    chosen.push_back(OwnCase(options));
  else
    RefuseWithoutShape(options);
  if (!chosen.empty() || options.peaks) return chosen;
  for (const Case& one : bench::NamedCases()) {
    if (one.when == bench::When::kAlways && (one.model.empty() || IsInstalled(one.model)))
      chosen.push_back(one);
  }
  return chosen;
}

CaseReport Measure(const Case& one, const bench::Machine& machine, int rounds, const BenchOptions& options) {
  ProgressLine line("measuring " + one.name);
  const auto workload = bench::MakeWorkload(one, machine);
  CaseReport report{one,
                    bench::TimeRounds(*workload, rounds, line.Callback()),
                    workload->operations(),
                    workload->copies(),
                    {}};
  if (LimitOf(one) == bench::Limit::kMemory) report.work = BytesRead(one);
  if (options.phases) report.phases = bench::TimePhases(*workload, machine.threads);
  return report;
}

void RunBench(const BenchOptions& options) {
  constexpr int64_t kMostRounds = 10'000, kDefaultRounds = 9;
  if (options.threads) UseThreads(*options.threads);
  const int rounds = static_cast<int>(options.rounds ? ParseCount("--rounds", *options.rounds, 1, kMostRounds)
                                                     : kDefaultRounds);
  if (options.list) {
    return PrintText(options.json ? CaseListJson(bench::NamedCases()) : CaseListText(bench::NamedCases()));
  }
  const std::vector<Case> cases = ChooseCases(options);
  MachineReport machine{bench::DescribeMachine(), bench::MeasurePeaks(1), {}};
  machine.all_threads = Threads() > 1 ? bench::MeasurePeaks(Threads()) : machine.one_thread;
  if (!options.json) PrintText(MachineText(machine) + (cases.empty() ? "" : CaseHeading()));
  std::vector<CaseReport> reports;
  for (const Case& one : cases) {
    reports.push_back(Measure(one, machine.machine, rounds, options));
    if (!options.json) PrintText(CaseText(reports.back(), machine));
  }
  if (options.json) PrintText(BenchJson(machine, reports));
}

Action Declare(CLI::App& parser) {
  const auto options = std::make_shared<BenchOptions>();
  const auto add = [&](const char* name, auto& value, const char* type, const char* help) {
    return parser.add_option(name, value, help)->type_name(type);
  };
  const auto flag = [&](const char* name, bool& value, const char* help) {
    parser.add_flag(name, value, help)->disable_flag_override();
  };
  add("--case", options->cases, "CASE", "Cases whose names contain this; may repeat [all but the longest]")
      ->allow_extra_args(false);
  flag("--list", options->list, "List the named cases");
  flag("--peaks", options->peaks, "Measure the machine alone, and cases only where some are named");
  add("--shape", options->shape, "B,Hq,Hkv,T,D", "A case of your own: attention of this shape");
  add("--queries", options->queries, "N", "Its queries; 1 is decoding [T]");
  add("--dtype", options->dtype, "f32|bf16|f16", "Its type [f32]");
  flag("--causal", options->causal, "Its mask: the last query sees all keys");
  flag("--phases", options->phases, "Show where the time goes, by phase of the kernels");
  add("--rounds", options->rounds, "N", "Samples of each case; their median counts [9]");
  add("--threads", options->threads, "N", "Threads to use [QKV_NUM_THREADS, else all processors]");
  flag("--json", options->json, "Print everything as JSON");
  return [options] { RunBench(*options); };
}

}  // namespace

const Command kBench{
    "bench", "Measure the machine's peaks, and how near attention comes to them",
    "A share is of the peak measured in the same run: float32 or bfloat16 arithmetic, or reading\n"
    "memory where each key is read for few rows (decoding). Run it on an idle machine.\n"
    "Examples:\n"
    "  qkv bench --case f32-causal --phases\n"
    "  qkv bench --shape 1,32,8,4096,128 --queries 1 --dtype bf16\n"
    "  qkv bench --json",
    Declare};

}  // namespace qkv::cli
