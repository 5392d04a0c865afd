// What `qkv bench` found out, for people and for programs.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "bench/case.h"
#include "bench/machine.h"
#include "bench/measure.h"

namespace qkv::cli {

struct MachineReport {
  bench::Machine machine;
  bench::Peaks one_thread, all_threads;
};

struct CaseReport {
  bench::Case measured;
  std::vector<double> ms;  // of each round, a call
  double work = 0;         // of a call: operations, or bytes where memory is the limit
  int64_t copies = 1;      // of k and v that took turns
  std::optional<bench::PhaseTimes> phases;
};

std::string MachineText(const MachineReport& report);
std::string CaseHeading();
std::string CaseText(const CaseReport& one, const MachineReport& machine);
std::string CaseListText(const std::vector<bench::Case>& cases);

std::string BenchJson(const MachineReport& machine, const std::vector<CaseReport>& cases);
std::string CaseListJson(const std::vector<bench::Case>& cases);

}  // namespace qkv::cli
