// .safetensors files: named tensors behind a JSON header (https://github.com/huggingface/safetensors#format).
// Nobody vouches for these files: everything is checked before it is used, the data is mapped and never copied,
// and what a file claims never decides how much memory is taken.
#pragma once

#include <cstddef>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "formats/tensor_entry.h"
#include "runtime/mapped_file.h"

namespace qkv {

struct SafetensorsContent {
  std::vector<TensorEntry> entries;  // as they lie in the file
  std::map<std::string, std::string> metadata;
};

// `where` names the file in errors. Error{kFile} for anything that the format does not allow; a file of another
// kind is refused by name. The entries point into `file`.
SafetensorsContent ParseSafetensors(std::span<const std::byte> file, const std::string& where);

// One mapped file. Views and entries live as long as it does, and survive moving it.
class Safetensors {
 public:
  explicit Safetensors(const std::filesystem::path& path);

  const std::filesystem::path& path() const { return path_; }
  std::span<const TensorEntry> entries() const { return content_.entries; }
  const std::map<std::string, std::string>& metadata() const { return content_.metadata; }
  const TensorEntry* Find(std::string_view name) const;  // nullptr where there is none

 private:
  std::filesystem::path path_;
  MappedFile file_;
  SafetensorsContent content_;
  std::unordered_map<std::string_view, const TensorEntry*> by_name_;
};

}  // namespace qkv
