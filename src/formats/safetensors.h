// .safetensors files: named tensors behind a JSON header (https://github.com/huggingface/safetensors#format).
// Nobody vouches for these files: everything is checked before it is used, the data is mapped and never copied,
// and what a file claims never decides how much memory is taken.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "qkv/tensor.h"
#include "runtime/mapped_file.h"

namespace qkv {

// Element types as the format names them; more than there are qkv::DTypes.
enum class StoredType {
  kF64,
  kF32,
  kF16,
  kBF16,
  kF8E4M3,
  kF8E5M2,
  kI64,
  kI32,
  kI16,
  kI8,
  kU64,
  kU32,
  kU16,
  kU8,
  kBool
};

const char* NameOf(StoredType type);  // "F32", "F8_E4M3", ...
size_t SizeOf(StoredType type);       // bytes of one element

struct TensorEntry {
  std::string name;
  StoredType type = StoredType::kF32;
  std::vector<int64_t> shape;        // empty for a scalar
  int64_t elements = 0;              // the product of the shape
  std::span<const std::byte> bytes;  // in the file: contiguous, little-endian, aligned to nothing
};

struct SafetensorsContent {
  std::vector<TensorEntry> entries;  // as they lie in the file
  std::map<std::string, std::string> metadata;
};

// `where` names the file in errors. Error{kFile} for anything that the format does not allow; a file of another
// kind is refused by name. The entries point into `file`.
SafetensorsContent ParseSafetensors(std::span<const std::byte> file, const std::string& where);

std::string ShapeText(std::span<const int64_t> shape);  // "(30522, 384)", "()"

// The tensor where it lies: nothing when it is misaligned for its type, has more than kMaxRank axes or a type
// that is no DType. BOOL comes as uint8, since a file may hold bytes other than 0 and 1.
std::optional<ConstTensor> DirectView(const TensorEntry& entry);

// Copies F64, F32, F16 or BF16 elements, aligned or not, to as many floats (entry.elements).
// Error{kFile} naming `where` for another type, kInvalidArgument for another number of floats.
void CopyFloats(const TensorEntry& entry, std::span<float> to, const std::string& where);

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
