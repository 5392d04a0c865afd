// What the terminal at the other end can show, and the progress of long work on it.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "qkv/progress.h"

namespace qkv::cli {

// NO_COLOR forbids, CLICOLOR_FORCE and FORCE_COLOR demand; otherwise a terminal that is not "dumb" has colour.
bool UseColor();

// Columns of the terminal, else COLUMNS, else 80.
int TerminalWidth();

// A line on standard error while work lasts longer than half a second, where that is a terminal. It is wiped at
// the end.
class ProgressLine {
 public:
  explicit ProgressLine(std::string what);
  ~ProgressLine();
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  Progress Callback();

 private:
  void Show(int64_t done, int64_t total);

  std::string what_;
  std::chrono::steady_clock::time_point start_;
  std::string shown_;
};

}  // namespace qkv::cli
