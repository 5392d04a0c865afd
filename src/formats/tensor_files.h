// The tensors of a model, found by name in one .safetensors file or over all its shards.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "formats/safetensors.h"

namespace qkv {

// The weight_map of a model.safetensors.index.json: each tensor's name, and the file beside the index that
// holds it. Error{kFile} naming `where` for anything else, and for names of files that could lead elsewhere.
std::map<std::string, std::string> ParseShardIndex(std::string_view text, const std::string& where);

class TensorFiles {
 public:
  // A .safetensors file, or a model directory with model.safetensors, or model.safetensors.index.json and its
  // shards. Error{kFile} naming what is missing, damaged or of another kind.
  explicit TensorFiles(const std::filesystem::path& path);

  const std::filesystem::path& path() const { return path_; }
  std::span<const Safetensors> files() const { return files_; }
  const TensorEntry* Find(std::string_view name) const;  // nullptr where there is none

  // A tensor that must be there with this shape, of type F64, F32, F16 or BF16.
  // Error{kFile} naming file and tensor: missing, another shape, another type.
  Floats RequireFloats(std::string_view name, const std::vector<int64_t>& shape) const;

 private:
  struct Place {
    size_t file;
    const TensorEntry* entry;
  };

  void OpenShards(const std::filesystem::path& index);
  void AddFile(const std::filesystem::path& path);

  std::filesystem::path path_;
  std::vector<Safetensors> files_;
  std::unordered_map<std::string_view, Place> by_name_;
};

}  // namespace qkv
