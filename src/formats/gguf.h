// .gguf files, versions 2 and 3: metadata by key and named tensors, quantised ones among them
// (https://github.com/ggml-org/ggml/blob/master/docs/gguf.md). As with safetensors, nobody vouches for these
// files: everything is checked before it is used, tensors and metadata stay where they lie in the mapped file,
// and what a file claims never decides how much memory is taken.
//
//   "GGUF" | version u32 | tensors u64 | keys u64
//   keys x  { key | kind u32 | value }                   a string: length u64, bytes; an array: kind u32, count
//   u64,
//                                                        elements
//   tensors x { name | axes u32 | axes x size u64, innermost first | type u32 | offset u64 }
//   padding to the alignment (general.alignment, else 32), from where the offsets count; the tensors
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "formats/gguf_metadata.h"
#include "formats/tensor_entry.h"
#include "runtime/mapped_file.h"

namespace qkv {

struct GgufContent {
  uint32_t version = 3;
  int64_t alignment = 32;
  GgufMetadata metadata;
  std::vector<TensorEntry> entries;  // as they lie in the file
};

// `where` names the file in errors. Error{kFile} naming key or tensor for anything that the format does not
// allow, and for versions and types that are not supported. Entries and metadata point into `file`.
GgufContent ParseGguf(std::span<const std::byte> file, const std::string& where);

// One mapped file. Views, entries and metadata live as long as it does, and survive moving it.
class Gguf {
 public:
  explicit Gguf(const std::filesystem::path& path);

  const std::filesystem::path& path() const { return path_; }
  uint32_t version() const { return content_.version; }
  const GgufMetadata& metadata() const { return content_.metadata; }
  std::span<const TensorEntry> entries() const { return content_.entries; }
  const TensorEntry* Find(std::string_view name) const;  // nullptr where there is none

  // A tensor that must be there with this shape. Error{kFile} naming file and tensor otherwise.
  const TensorEntry& Require(std::string_view name, std::span<const int64_t> shape) const;
  // Its elements, not quantised: F64, F32, F16 or BF16.
  Floats RequireFloats(std::string_view name, std::span<const int64_t> shape) const;

 private:
  std::filesystem::path path_;
  MappedFile file_;
  GgufContent content_;
  std::unordered_map<std::string_view, const TensorEntry*> by_name_;
};

}  // namespace qkv
