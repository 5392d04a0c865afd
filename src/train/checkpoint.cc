#include "train/checkpoint.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <string>
#include <system_error>

#include "formats/safetensors.h"
#include "formats/safetensors_writer.h"
#include "qkv/error.h"
#include "train/checksum.h"
#include "train/run_json.h"

namespace qkv::train {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "step-", kSuffix = ".safetensors";
constexpr std::array kArrays = {"parameters", "first_moment", "second_moment"};

std::array<std::span<const float>, 3> ArraysOf(const TrainState& state) {
  const auto view = [](const AlignedBuffer<float>& array) {
    return std::span<const float>(array.data(), static_cast<size_t>(array.size()));
  };
  return {view(state.parameters), view(state.first_moment), view(state.second_moment)};
}

// Over the metadata as well: a flipped digit of a step is damage, too.
std::string ChecksumText(const std::map<std::string, std::string>& metadata,
                         const std::array<std::span<const std::byte>, 3>& arrays) {
  Checksum checksum;
  for (const auto& [key, value] : metadata) {
    if (key != "checksum") checksum.Add(std::as_bytes(std::span(key))).Add(std::as_bytes(std::span(value)));
  }
  for (const auto& array : arrays) checksum.Add(array);
  return fmt::format("{:08x}", checksum.value());
}

[[noreturn]] void FailDamaged(const fs::path& file, const std::string& what) {
  throw Error(ErrorCode::kFile, "damaged checkpoint: " + what, file.string());
}

int64_t WholeNumber(const fs::path& file, const std::map<std::string, std::string>& metadata, const char* key) {
  const auto found = metadata.find(key);
  int64_t value = -1;
  if (found != metadata.end()) {
    std::from_chars(found->second.data(), found->second.data() + found->second.size(), value);
  }
  if (value < 0) FailDamaged(file, fmt::format("it does not say {}", key));
  return value;
}

LoadedCheckpoint Read(const fs::path& path) {
  const Safetensors file(path);
  const auto& metadata = file.metadata();
  std::array<std::span<const std::byte>, 3> arrays;
  for (size_t i = 0; i < arrays.size(); ++i) {
    const TensorEntry* entry = file.Find(kArrays[i]);
    if (entry == nullptr || entry->type != StoredType::kF32) FailDamaged(path, fmt::format("no {}", kArrays[i]));
    arrays[i] = entry->bytes;
  }
  const auto checksum = metadata.find("checksum"), run = metadata.find("run");
  if (checksum == metadata.end() || run == metadata.end() || checksum->second != ChecksumText(metadata, arrays)) {
    FailDamaged(path, "its checksum is wrong");
  }
  LoadedCheckpoint loaded;
  RunSettings settings;  // a checkpoint has none
  ReadRunJson(run->second, path.string(), loaded.info.config, loaded.info.options, settings);
  loaded.info.log_bytes = WholeNumber(path, metadata, "log_bytes");
  const int64_t total = ParameterTable(loaded.info.config).total();
  if (arrays[0].size() != static_cast<size_t>(total) * sizeof(float)) FailDamaged(path, "its arrays have another size");
  loaded.state.step = WholeNumber(path, metadata, "step");
  AlignedBuffer<float>* const targets[] = {&loaded.state.parameters, &loaded.state.first_moment,
                                           &loaded.state.second_moment};
  for (size_t i = 0; i < arrays.size(); ++i) {
    if (arrays[i].size() != arrays[0].size()) FailDamaged(path, "its arrays have another size");
    *targets[i] = AlignedBuffer<float>(total);
    std::memcpy(targets[i]->data(), arrays[i].data(), arrays[i].size());
  }
  return loaded;
}

}  // namespace

fs::path Checkpoints::PathOf(int64_t step) const { return folder_ / fmt::format("{}{:08}{}", kPrefix, step, kSuffix); }

std::vector<int64_t> Checkpoints::Steps() const {
  std::vector<int64_t> steps;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder_, ignored)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with(kPrefix) || !name.ends_with(kSuffix)) continue;
    const std::string_view digits =
        std::string_view(name).substr(kPrefix.size(), name.size() - kPrefix.size() - kSuffix.size());
    int64_t step = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), step);
    if (error == std::errc() && end == digits.data() + digits.size() && step >= 0) steps.push_back(step);
  }
  std::sort(steps.begin(), steps.end());
  return steps;
}

void Checkpoints::Write(const TrainState& state, const CheckpointInfo& info) const {
  std::error_code error;
  fs::create_directories(folder_, error);
  if (error) throw Error(ErrorCode::kIo, "cannot write: " + error.message(), folder_.string());
  std::vector<TensorToWrite> tensors;
  std::array<std::span<const std::byte>, 3> bytes;
  const auto arrays = ArraysOf(state);
  for (size_t i = 0; i < arrays.size(); ++i) {
    bytes[i] = std::as_bytes(arrays[i]);
    tensors.push_back({kArrays[i], DType::kF32, {static_cast<int64_t>(arrays[i].size())}, bytes[i]});
  }
  std::map<std::string, std::string> metadata = {{"step", std::to_string(state.step)},
                                                 {"log_bytes", std::to_string(info.log_bytes)},
                                                 {"run", RunJson(info.config, info.options)}};
  metadata["checksum"] = ChecksumText(metadata, bytes);
  WriteSafetensors(PathOf(state.step), tensors, metadata);
}

LoadedCheckpoint Checkpoints::ReadLast() const {
  const std::vector<int64_t> steps = Steps();
  if (steps.empty()) throw Error(ErrorCode::kFile, "no checkpoint", folder_.string());
  try {
    return Read(PathOf(steps.back()));
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kFile || steps.size() < 2) throw;
    throw Error(ErrorCode::kFile, error.reason(), error.where(),
                fmt::format("a whole one; move it away to go on from {}",
                            PathOf(steps[steps.size() - 2]).filename().string()));
  }
}

void Checkpoints::RemoveAllButLast(int64_t keep) const {
  std::error_code ignored;
  const std::vector<int64_t> steps = Steps();
  for (size_t i = 0; i + static_cast<size_t>(keep) < steps.size(); ++i) fs::remove(PathOf(steps[i]), ignored);
}

void Checkpoints::RemoveUnfinished() const {
  std::error_code ignored;
  std::vector<fs::path> unfinished;
  for (const auto& entry : fs::directory_iterator(folder_, ignored)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with(kPrefix) && name.find(std::string(kSuffix) + ".") != std::string::npos) {
      unfinished.push_back(entry.path());
    }
  }
  for (const fs::path& path : unfinished) fs::remove(path, ignored);
}

}  // namespace qkv::train
