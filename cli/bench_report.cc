#include "cli/bench_report.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

namespace qkv::cli {
namespace {

using bench::Case;
using bench::Limit;
using nlohmann::ordered_json;

double Speed(const CaseReport& one) { return one.work / (bench::Median(one.ms) / 1e3); }

double Share(const CaseReport& one, const MachineReport& machine) {
  const double peak = PeakOf(LimitOf(one.measured), machine.all_threads);
  return peak > 0 ? Speed(one) / peak : 0;
}

const char* UnitOf(Limit limit) { return limit == Limit::kMemory ? "GB/s" : "GF/s"; }

// Three digits that matter, whatever the size.
std::string ThreeDigits(double value) {
  return fmt::format("{:.{}f}", value, value < 9.995 ? 2 : value < 99.95 ? 1 : 0);
}

std::string TimeText(double ms) {
  return ms < 1     ? ThreeDigits(ms * 1e3) + " us"
         : ms < 1e3 ? ThreeDigits(ms) + " ms"
                    : ThreeDigits(ms / 1e3) + " s";
}

std::string PeakText(double peak, const char* unit) {
  return peak > 0 ? fmt::format("{} {}", ThreeDigits(peak / 1e9), unit) : "-";
}

// Products of the size of S = Q K^T within a phase.
double ProductsOf(Phase phase, bench::Kind kind) {
  if (phase == Phase::kGradients) return 3;
  if (phase != Phase::kScores) return 1;
  if (kind == bench::Kind::kBackward) return 3;  // S twice, and dP
  return kind == bench::Kind::kCapture ? 2 : 1;  // a capture computes its scores twice
}

// The tile multiplies' speed within their phase, held against the threads' peak; of the softmax, the time a
// score.
std::string PhaseNote(Phase phase, double ms, const CaseReport& one, const MachineReport& machine) {
  const double half = AttentionOperations(one.measured) / 2;
  if (ms <= 0 || half <= 0 || one.measured.kind == bench::Kind::kModel) return "";
  if (phase == Phase::kScores || phase == Phase::kValues || phase == Phase::kGradients) {
    const double speed = half * ProductsOf(phase, one.measured.kind) / (ms / 1e3) * machine.machine.threads;
    const Limit limit = one.measured.dtype == DType::kBF16 ? Limit::kBF16 : Limit::kF32;
    return fmt::format("  {:.0f} % of {}", 100 * speed / PeakOf(limit, machine.all_threads), NameOf(limit));
  }
  if (phase == Phase::kSoftmax || phase == Phase::kLook) {
    const double scores = half / (2.0 * static_cast<double>(one.measured.d));
    return fmt::format("  {:.2f} ns a score", ms * 1e6 / scores);
  }
  return "";
}

std::string PhasesText(const CaseReport& one, const MachineReport& machine) {
  const bench::PhaseTimes& phases = *one.phases;
  const double all = phases.wall_ms * machine.machine.threads;
  std::string text;
  const auto row = [&](const char* name, double ms, const std::string& note) {
    text += fmt::format("  {:<8} {:>10} {:>5.1f} %{}\n", name, TimeText(ms), 100 * ms / all, note);
  };
  for (int i = 0; i < kPhases; ++i) {
    const Phase phase = static_cast<Phase>(i);
    const double ms = phases.ms[static_cast<size_t>(i)];
    if (ms > 0) row(NameOf(phase), ms, PhaseNote(phase, ms, one, machine));
  }
  row("other", phases.other_ms, "");
  return text;
}

ordered_json AsJson(const bench::Peaks& peaks, int threads) {
  return {{"threads", threads},
          {"float32", peaks.f32},
          {"bfloat16_dot", peaks.bf16_dot},
          {"bfloat16_tiles", peaks.bf16_tiles},
          {"memory", peaks.read},
          {"memory_bytes", peaks.read_bytes}};
}

ordered_json AsJson(const Case& one) {
  ordered_json object{{"name", one.name},   {"kind", NameOf(one.kind)}, {"dtype", NameOf(one.dtype)},
                      {"batch", one.batch}, {"queries", one.queries},   {"keys", one.keys}};
  if (one.kind == bench::Kind::kModel) {
    object["model"] = one.model;
  } else {
    object.update({{"q_heads", one.q_heads}, {"kv_heads", one.kv_heads}, {"d", one.d}});
    object["causal"] = one.causal != Causal::kNone;
  }
  const Limit limit = LimitOf(one);
  object["limit"] = NameOf(limit);
  if (one.kind != bench::Kind::kModel) {
    object["operations"] = one.kind == bench::Kind::kLayer      ? LayerOperations(one)
                           : one.kind == bench::Kind::kBackward ? BackwardOperations(one)
                                                                : AttentionOperations(one);
    object["bytes"] = BytesRead(one);
  }
  object["only_when_named"] = one.when == bench::When::kNamed;
  return object;
}

ordered_json AsJson(const CaseReport& one, const MachineReport& machine) {
  ordered_json object = AsJson(one.measured);
  object.erase("only_when_named");
  object.update({{"ms", bench::Median(one.ms)},
                 {"all_ms", one.ms},
                 {"work", one.work},
                 {"speed", Speed(one)},
                 {"share", Share(one, machine)},
                 {"copies", one.copies}});
  if (one.phases) {
    ordered_json& phases = object["phases_ms"];
    for (int i = 0; i < kPhases; ++i) {
      phases[NameOf(static_cast<Phase>(i))] = one.phases->ms[static_cast<size_t>(i)];
    }
    phases["other"] = one.phases->other_ms;
    object["phases_wall_ms"] = one.phases->wall_ms;
  }
  return object;
}

std::string Print(const ordered_json& object) {
  return object.dump(2, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace

std::string MachineText(const MachineReport& report) {
  const bench::Machine& machine = report.machine;
  std::string text =
      fmt::format("{}: {}, {} thread{}, last-level cache {} MiB\n\n", machine.processor, machine.isa,
                  machine.threads, machine.threads == 1 ? "" : "s", machine.last_level_cache >> 20);
  text += fmt::format("{:<22}{:>12}", "Peak", "1 thread");
  if (machine.threads > 1) text += fmt::format("{:>12}", fmt::format("{} threads", machine.threads));
  const auto row = [&](const char* name, double bench::Peaks::*peak, const char* unit) {
    text += fmt::format("\n{:<22}{:>12}", name, PeakText(report.one_thread.*peak, unit));
    if (machine.threads > 1) text += fmt::format("{:>12}", PeakText(report.all_threads.*peak, unit));
  };
  row("float32", &bench::Peaks::f32, "GF/s");
  row("bfloat16 dot product", &bench::Peaks::bf16_dot, "GF/s");
  row("bfloat16 tiles", &bench::Peaks::bf16_tiles, "GF/s");
  row("memory, read", &bench::Peaks::read, "GB/s");
  return text + "\n";
}

std::string CaseHeading() {
  return fmt::format("\n{:<20} {:<24} {:>9} {:>11}  {}\n", "Case", "(B, Hq, Hkv, T, D)", "Time", "Speed",
                     "Share");
}

std::string CaseText(const CaseReport& one, const MachineReport& machine) {
  const Limit limit = LimitOf(one.measured);
  std::string text =
      fmt::format("{:<20} {:<24} {:>9} {:>6} {}  {:.0f} % of {}\n", one.measured.name, ShapeText(one.measured),
                  TimeText(bench::Median(one.ms)), ThreeDigits(Speed(one) / 1e9), UnitOf(limit),
                  100 * Share(one, machine), NameOf(limit));
  if (one.phases) text += PhasesText(one, machine);
  return text;
}

std::string CaseListText(const std::vector<Case>& cases) {
  std::string text;
  for (const Case& one : cases) {
    text += fmt::format("{:<20} {:<24} {} {}{}\n", one.name, ShapeText(one), NameOf(one.dtype),
                        NameOf(one.kind), one.when == bench::When::kNamed ? ", only when named" : "");
  }
  return text;
}

std::string BenchJson(const MachineReport& report, const std::vector<CaseReport>& cases) {
  const bench::Machine& machine = report.machine;
  ordered_json list = ordered_json::array();
  for (const CaseReport& one : cases) list.push_back(AsJson(one, report));
  return Print({{"machine",
                 {{"processor", machine.processor},
                  {"isa", machine.isa},
                  {"threads", machine.threads},
                  {"last_level_cache", machine.last_level_cache},
                  {"beyond_caches", machine.beyond_caches},
                  {"free_memory", machine.memory}}},
                {"peaks", {AsJson(report.one_thread, 1), AsJson(report.all_threads, machine.threads)}},
                {"cases", list}});
}

std::string CaseListJson(const std::vector<Case>& cases) {
  ordered_json list = ordered_json::array();
  for (const Case& one : cases) list.push_back(AsJson(one));
  return Print(list);
}

}  // namespace qkv::cli
