#include "cli/train_progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>

#include "cli/interrupt.h"
#include "cli/output.h"
#include "cli/terminal.h"
#include "runtime/printable.h"

namespace qkv::cli {
namespace {

constexpr std::chrono::milliseconds kRenewal{200};
constexpr double kSmoothing = 0.05;  // weight of the newest step's loss in the one that is shown
constexpr int kBarWidth = 24;
constexpr size_t kMostSampleBytes = 1000;

std::string Bar(double share) {
  const int full = static_cast<int>(share * kBarWidth);
  std::string bar;
  for (int i = 0; i < kBarWidth; ++i) bar += i < full ? "━" : "─";
  return bar;
}

// Lines of the text set one behind the other, and nothing that a terminal would take for a command.
std::string OneLine(std::string_view text) {
  std::string line;
  for (const char c : text) line += c == '\n' ? " / " : std::string(1, c);
  return Printable(line, kMostSampleBytes);
}

void WriteToError(const std::string& text) {
  // Progress that cannot be shown is no failure.
  if (write(STDERR_FILENO, text.data(), text.size()) < 0) return;
}

// A reader who leaves (qkv train ... | head -1) does not end the training: what is printed is in the run's log as well.
void Print(const std::string& text) {
  try {
    PrintText(text);
  } catch (const ReaderGone&) {
  }
}

}  // namespace

std::string Duration(double seconds) {
  const int64_t whole = static_cast<int64_t>(std::llround(seconds));
  if (whole >= 3600) return fmt::format("{} h {:02} min", whole / 3600, whole / 60 % 60);
  if (whole >= 60) return fmt::format("{} min {:02} s", whole / 60, whole % 60);
  return fmt::format("{} s", whole);
}

TrainProgress::TrainProgress(int64_t steps)
    : steps_(steps), start_(Clock::now()), shown_(start_), visible_(isatty(STDERR_FILENO) == 1) {}

TrainProgress::~TrainProgress() { WipeLine(); }

void TrainProgress::Started(int64_t step) {
  first_step_ = step_ = step;
  start_ = Clock::now();
  if (step == 0) return;
  Print(step < steps_ ? fmt::format("going on after step {} of {}\n", step, steps_)
                          : fmt::format("the run is finished: all its {} steps are done; more --steps go on\n", step));
}

void TrainProgress::Stepped(const train::StepReport& report) {
  loss_ = tokens_ == 0 ? report.loss : loss_ + kSmoothing * (report.loss - loss_);
  step_ = report.step + 1;
  tokens_ += report.tokens;
  if (visible_ && Clock::now() - shown_ > kRenewal) ShowLine();
}

void TrainProgress::Validated(int64_t step, double loss) {
  WipeLine();
  if (tokens_ == 0) {  // no step was made, so there is no loss and no speed
    Print(fmt::format("step {:>6} of {}   validation {:.4f}\n", step, steps_, loss));
    return;
  }
  Print(fmt::format("step {:>6} of {}   loss {:.4f}   validation {:.4f}   {:.0f} tokens/s   {} left\n",
                        step, steps_, loss_, loss, TokensPerSecond(), TimeLeft()));
}

void TrainProgress::Sampled(int64_t step, const train::Sample& sample) {
  WipeLine();
  Print(
      fmt::format("step {:>6} of {}   {} » {}\n", step, steps_, OneLine(sample.prompt), OneLine(sample.text)));
}

double TrainProgress::TokensPerSecond() const {
  const double seconds = std::chrono::duration<double>(Clock::now() - start_).count();
  return static_cast<double>(tokens_) / std::max(seconds, 1e-9);
}

std::string TrainProgress::TimeLeft() const {
  const double seconds = std::chrono::duration<double>(Clock::now() - start_).count();
  const int64_t done = std::max<int64_t>(step_ - first_step_, 1);
  return Duration(seconds / static_cast<double>(done) * static_cast<double>(steps_ - step_));
}

void TrainProgress::ShowLine() {
  shown_ = Clock::now();
  const double share = static_cast<double>(step_) / static_cast<double>(std::max<int64_t>(steps_, 1));
  unfinished_line = has_line_ = true;
  WriteToError(fmt::format("\r\x1b[K{} {:3.0f} %  step {}/{}  loss {:.4f}  {:.0f} tokens/s  {} left",
                           Bar(share), 100 * share, step_, steps_, loss_, TokensPerSecond(), TimeLeft()));
}

void TrainProgress::WipeLine() {
  if (!has_line_) return;
  unfinished_line = has_line_ = false;
  WriteToError("\r\x1b[K");
}

}  // namespace qkv::cli
