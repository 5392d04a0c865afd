// log.jsonl: what a run did, a JSON object a line.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "train/sample.h"
#include "train/trainer.h"

namespace qkv::train {

class RunLog {
 public:
  // Cuts the file to its first `bytes` bytes and appends from there. Error{kIo} naming the file; kFile where it
  // is shorter.
  RunLog(const std::filesystem::path& file, int64_t bytes);
  ~RunLog();
  RunLog(const RunLog&) = delete;
  RunLog& operator=(const RunLog&) = delete;

  void Add(const StepReport& report);
  void AddValidation(int64_t step, double loss);
  void AddSample(int64_t step, const Sample& sample);
  int64_t Sync();  // to the disk; returns its bytes

 private:
  void Append(const std::string& line);

  std::filesystem::path file_;
  int descriptor_ = -1;
  int64_t bytes_ = 0;
};

// The losses of a log, for pictures. A last line that was cut off by a kill is left out.
struct LossCurves {
  std::vector<double> train_steps, train_losses, validation_steps, validation_losses;
};
LossCurves ReadLossCurves(const std::filesystem::path& log);

}  // namespace qkv::train
