// The metadata of a GGUF file: what kind of model it holds, its settings, its tokenizer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "formats/config.h"

namespace qkv {

// As the format numbers them.
enum class GgufKind : uint32_t {
  kU8 = 0,
  kI8 = 1,
  kU16 = 2,
  kI16 = 3,
  kU32 = 4,
  kI32 = 5,
  kF32 = 6,
  kBool = 7,
  kString = 8,
  kArray = 9,
  kU64 = 10,
  kI64 = 11,
  kF64 = 12
};
inline constexpr uint32_t kGgufKinds = 13;

const char* NameOf(GgufKind kind);  // "uint8", "string", ...
size_t FixedBytes(GgufKind kind);   // of one value; 0 for a string or an array, which say their own

// A value where it lies in the file.
struct GgufValue {
  GgufKind kind = GgufKind::kU8;
  GgufKind element_kind = GgufKind::kU8;  // of an array
  uint64_t count = 1;                     // elements of an array
  std::span<const std::byte> bytes;       // a number, the characters of a string, or all elements of an array
};

std::optional<int64_t> AsInt(const GgufValue& value);  // an integer of any kind below 2^63
std::optional<double> AsReal(const GgufValue& value);  // a float32, a float64
std::optional<bool> AsBool(const GgufValue& value);
std::optional<std::string_view> AsString(const GgufValue& value);  // bytes: nobody checked that they are UTF-8

// The elements of an array in order, until `take` returns false. The value comes from a parsed file.
void ForEachElement(const GgufValue& array, const std::function<bool(const GgufValue&)>& take);

class GgufMetadata {
 public:
  struct Pair {
    std::string_view key;
    GgufValue value;
  };

  GgufMetadata() = default;
  explicit GgufMetadata(std::string where) : where_(std::move(where)) {}

  bool Add(std::string_view key, const GgufValue& value);  // false where the key is there already

  std::span<const Pair> pairs() const { return pairs_; }  // as they lie in the file
  const GgufValue* Find(std::string_view key) const;      // nullptr where there is none

  // Arrays that must be there. Error{kFile} naming file and key: missing, or of another kind.
  std::vector<std::string_view> Strings(std::string_view key) const;
  std::vector<int64_t> Ints(std::string_view key) const;  // elements of any integer kind
  std::vector<float> Floats(std::string_view key) const;  // elements float32 or float64

  // Numbers, booleans, strings and short arrays of numbers, to be read by type like a config.json. Long arrays
  // and arrays of strings are not in it.
  JsonObject Settings() const;

 private:
  const GgufValue& RequireArray(std::string_view key) const;
  [[noreturn]] void RefuseElement(std::string_view key, const char* expected, const GgufValue& array) const;

  std::string where_;
  std::vector<Pair> pairs_;
  std::unordered_map<std::string_view, size_t> by_key_;
};

}  // namespace qkv
