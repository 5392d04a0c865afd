#include "cli/terminal.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <string_view>
#include <utility>

#include "cli/interrupt.h"

namespace qkv::cli {
namespace {

constexpr int kDefaultColumns = 80, kFewestColumns = 20, kMostColumns = 1000;
constexpr std::chrono::milliseconds kQuiet{500};

std::string_view Environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string_view() : value;
}

bool Demands(const char* name) { return !Environment(name).empty() && Environment(name) != "0"; }

void WriteToError(std::string_view text) {
  // Progress that cannot be shown is no failure.
  if (write(STDERR_FILENO, text.data(), text.size()) < 0) return;
}

}  // namespace

bool UseColor() {
  if (!Environment("NO_COLOR").empty()) return false;
  if (Demands("CLICOLOR_FORCE") || Demands("FORCE_COLOR")) return true;
  return isatty(STDOUT_FILENO) == 1 && Environment("TERM") != "dumb";
}

int TerminalWidth() {
  int columns = 0;
  struct winsize size {};
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0) columns = size.ws_col;
  if (columns <= 0) {
    const std::string_view text = Environment("COLUMNS");
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), columns);
    if (error != std::errc() || end != text.data() + text.size()) columns = 0;
  }
  return columns <= 0 ? kDefaultColumns : std::clamp(columns, kFewestColumns, kMostColumns);
}

ProgressLine::ProgressLine(std::string what)
    : what_(std::move(what)), start_(std::chrono::steady_clock::now()) {}

ProgressLine::~ProgressLine() {
  if (shown_.empty()) return;
  unfinished_line = false;
  WriteToError("\r\x1b[K");
}

Progress ProgressLine::Callback() {
  return [this, visible = isatty(STDERR_FILENO) == 1](int64_t done, int64_t total) {
    if (visible && std::chrono::steady_clock::now() - start_ > kQuiet) Show(done, total);
    return true;  // Ctrl-C ends the whole process
  };
}

void ProgressLine::Show(int64_t done, int64_t total) {
  const double share = static_cast<double>(done) / static_cast<double>(std::max<int64_t>(total, 1));
  std::string line = fmt::format("\r{} {:3.0f} %", what_, 100 * share);
  if (line == shown_) return;
  unfinished_line = true;
  WriteToError(line);
  shown_ = std::move(line);
}

}  // namespace qkv::cli
