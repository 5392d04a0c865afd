#include "formats/tensor_files.h"

#include <algorithm>
#include <set>
#include <system_error>
#include <utility>

#include "qkv/error.h"
#include "runtime/json.h"
#include "runtime/mapped_file.h"
#include "runtime/printable.h"

namespace qkv {
namespace {

constexpr const char* kSingleFile = "model.safetensors";
constexpr const char* kIndexFile = "model.safetensors.index.json";
constexpr const char* kPickleFile = "pytorch_model.bin";

[[noreturn]] void Fail(const std::filesystem::path& where, std::string reason, std::string expected = {},
                       std::string got = {}) {
  throw Error(ErrorCode::kFile, std::move(reason), where.string(), std::move(expected), std::move(got));
}

bool Exists(const std::filesystem::path& path) {
  std::error_code ignored;
  return std::filesystem::exists(path, ignored);
}

// A shard lies beside its index: a name that could lead elsewhere is refused.
void CheckShardName(const std::string& shard, const std::string& index) {
  const bool plain = !shard.empty() && shard != "." && shard.find("..") == std::string::npos &&
                     shard.find_first_of(std::string_view("/\\\0", 3)) == std::string::npos;
  if (!plain) Fail(index, "bad shard name", "a plain file name", "'" + Printable(shard) + "'");
}

}  // namespace

std::map<std::string, std::string> ParseShardIndex(std::string_view text, const std::string& where) {
  const nlohmann::json index = ParseJson(text, where);
  if (!index.is_object()) Fail(where, "no weight_map", "a JSON object", QuoteJson(index));
  const auto map = index.find("weight_map");
  if (map == index.end() || !map->is_object())
    Fail(where, "no weight_map", "an object of tensor and file names");
  std::map<std::string, std::string> shards;
  for (const auto& [name, shard] : map->items()) {
    if (!shard.is_string()) Fail(where, "tensor " + Printable(name) + " has no shard", "a file name");
    CheckShardName(shard.get_ref<const std::string&>(), where);
    shards.emplace(name, shard.get_ref<const std::string&>());
  }
  return shards;
}

TensorFiles::TensorFiles(const std::filesystem::path& path) : path_(path) {
  std::error_code ignored;
  if (!std::filesystem::is_directory(path, ignored)) {
    AddFile(path);
  } else if (Exists(path / kSingleFile)) {
    AddFile(path / kSingleFile);
  } else if (Exists(path / kIndexFile)) {
    OpenShards(path / kIndexFile);
  } else {
    Fail(path, "no parameters here", std::string(kSingleFile) + " or " + kIndexFile,
         Exists(path / kPickleFile) ? std::string(kPickleFile) + ", a pickle, which is not read" : "neither");
  }
}

void TensorFiles::OpenShards(const std::filesystem::path& index) {
  const MappedFile file(index);
  const std::string_view text = file.text();
  const std::map<std::string, std::string> map = ParseShardIndex(text, index.string());
  std::set<std::string> shards;
  for (const auto& [name, shard] : map) shards.insert(shard);
  for (const std::string& shard : shards) {
    const std::filesystem::path path = index.parent_path() / shard;
    if (!Exists(path)) Fail(index, "a shard is missing", Printable(shard));
    AddFile(path);
  }
  for (const auto& [name, shard] : map) {
    const auto place = by_name_.find(name);
    if (place == by_name_.end() || files_[place->second.file].path().filename() != shard) {
      Fail(index, "tensor " + Printable(name) + " missing", "it in " + Printable(shard));
    }
  }
}

void TensorFiles::AddFile(const std::filesystem::path& path) {
  const size_t number = files_.size();
  const Safetensors& file = files_.emplace_back(path);
  for (const TensorEntry& entry : file.entries()) {
    const auto [place, added] = by_name_.try_emplace(entry.name, Place{number, &entry});
    if (!added) {
      Fail(path, "tensor " + Printable(entry.name) + " is in two files",
           "it only in " + files_[place->second.file].path().string());
    }
  }
}

const TensorEntry* TensorFiles::Find(std::string_view name) const {
  const auto place = by_name_.find(name);
  return place == by_name_.end() ? nullptr : place->second.entry;
}

Floats TensorFiles::RequireFloats(std::string_view name, const std::vector<int64_t>& shape) const {
  const auto place = by_name_.find(name);
  if (place == by_name_.end()) Fail(path_, "tensor " + Printable(name) + " missing");
  return FloatsOf(*place->second.entry, shape, files_[place->second.file].path().string());
}

}  // namespace qkv
