#include "train/run_log.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <string_view>
#include <system_error>

#include <nlohmann/json.hpp>

#include "qkv/error.h"
#include "runtime/mapped_file.h"

namespace qkv::train {
namespace {

[[noreturn]] void Fail(const std::filesystem::path& file, int error) {
  throw Error(ErrorCode::kIo, "cannot write: " + std::generic_category().message(error), file.string());
}

// Adds a line's number of `key` at its step, where it has one.
void AddPoint(const nlohmann::json& line, const char* key, std::vector<double>& steps,
              std::vector<double>& values) {
  const auto step = line.find("step"), value = line.find(key);
  if (step == line.end() || value == line.end() || !step->is_number() || !value->is_number()) return;
  steps.push_back(step->get<double>());
  values.push_back(value->get<double>());
}

}  // namespace

RunLog::RunLog(const std::filesystem::path& file, int64_t bytes) : file_(file), bytes_(bytes) {
  descriptor_ = open(file.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (descriptor_ < 0) Fail(file, errno);
  struct stat status {};
  if (fstat(descriptor_, &status) != 0 || ftruncate(descriptor_, bytes) != 0) {
    const int error = errno;
    close(descriptor_);
    Fail(file, error);
  }
  if (status.st_size >= bytes) return;
  close(descriptor_);
  throw Error(ErrorCode::kFile, "the log is shorter than its checkpoint says", file.string(),
              std::to_string(bytes) + " bytes", std::to_string(status.st_size));
}

RunLog::~RunLog() { close(descriptor_); }

void RunLog::Append(const std::string& line) {
  std::string_view rest = line;
  while (!rest.empty()) {
    const ssize_t written = write(descriptor_, rest.data(), rest.size());
    if (written >= 0)
      rest.remove_prefix(static_cast<size_t>(written));
    else if (errno != EINTR)
      Fail(file_, errno);
  }
  bytes_ += static_cast<int64_t>(line.size());
}

void RunLog::Add(const StepReport& report) {
  Append(fmt::format("{{\"step\": {}, \"loss\": {}, \"gradient_norm\": {}, \"lr\": {}, \"tokens\": {}}}\n",
                     report.step + 1, report.loss, report.gradient_norm, report.learning_rate, report.tokens));
}

void RunLog::AddValidation(int64_t step, double loss) {
  Append(fmt::format("{{\"step\": {}, \"validation_loss\": {}}}\n", step, loss));
}

void RunLog::AddSample(int64_t step, const Sample& sample) {
  const nlohmann::ordered_json line = {{"step", step}, {"prompt", sample.prompt}, {"sample", sample.text}};
  Append(line.dump() + "\n");
}

int64_t RunLog::Sync() {
  if (fsync(descriptor_) != 0) Fail(file_, errno);
  return bytes_;
}

LossCurves ReadLossCurves(const std::filesystem::path& log) {
  const MappedFile file(log);
  std::string_view text = file.text();
  LossCurves curves;
  for (size_t end = text.find('\n'); end != std::string_view::npos; end = text.find('\n')) {
    const auto line = nlohmann::json::parse(text.substr(0, end), nullptr, /*allow_exceptions=*/false);
    text.remove_prefix(end + 1);
    if (!line.is_object()) continue;
    AddPoint(line, "loss", curves.train_steps, curves.train_losses);
    AddPoint(line, "validation_loss", curves.validation_steps, curves.validation_losses);
  }
  return curves;
}

}  // namespace qkv::train
