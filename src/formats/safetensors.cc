#include "formats/safetensors.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <limits>
#include <tuple>
#include <utility>

#include "formats/file_kind.h"
#include "qkv/error.h"
#include "runtime/half.h"
#include "runtime/json.h"
#include "runtime/printable.h"

namespace qkv {
namespace {

using nlohmann::json;

static_assert(std::endian::native == std::endian::little, "files are read as they lie in memory");

constexpr uint64_t kLengthBytes = 8;
constexpr uint64_t kMaxHeaderBytes = 100'000'000;  // the format's own limit
constexpr size_t kMaxStoredRank = 64;              // as NumPy and PyTorch
// A tensor takes about ten values, so this is room for 400,000 tensors.
constexpr JsonLimits kHeaderLimits{.max_bytes = kMaxHeaderBytes, .max_depth = 16, .max_values = 4'000'000};

struct StoredTypeInfo {
  StoredType type;
  const char* name;
  size_t size;
};
constexpr std::array<StoredTypeInfo, 15> kStoredTypes{{{StoredType::kF64, "F64", 8},
                                                       {StoredType::kF32, "F32", 4},
                                                       {StoredType::kF16, "F16", 2},
                                                       {StoredType::kBF16, "BF16", 2},
                                                       {StoredType::kF8E4M3, "F8_E4M3", 1},
                                                       {StoredType::kF8E5M2, "F8_E5M2", 1},
                                                       {StoredType::kI64, "I64", 8},
                                                       {StoredType::kI32, "I32", 4},
                                                       {StoredType::kI16, "I16", 2},
                                                       {StoredType::kI8, "I8", 1},
                                                       {StoredType::kU64, "U64", 8},
                                                       {StoredType::kU32, "U32", 4},
                                                       {StoredType::kU16, "U16", 2},
                                                       {StoredType::kU8, "U8", 1},
                                                       {StoredType::kBool, "BOOL", 1}}};

const StoredTypeInfo& InfoOf(StoredType type) { return kStoredTypes[static_cast<size_t>(type)]; }

[[noreturn]] void Fail(const std::string& where, std::string reason, std::string expected = {},
                       std::string got = {}) {
  throw Error(ErrorCode::kFile, std::move(reason), where, std::move(expected), std::move(got));
}

std::string Named(const std::string& name) { return "tensor " + Printable(name); }

// The header's text, once its length is known to be sane.
std::string_view HeaderText(std::span<const std::byte> file, const std::string& where) {
  const FileKind kind = DetectKind(file);
  if (kind != FileKind::kSafetensors && kind != FileKind::kUnknown) {
    Fail(where, "wrong kind of file", "a safetensors file", Describe(kind));
  }
  if (file.size() < kLengthBytes) {
    Fail(where, "too short for a safetensors file", "at least 8 bytes", std::to_string(file.size()));
  }
  uint64_t length = 0;
  std::memcpy(&length, file.data(), kLengthBytes);
  if (length > kMaxHeaderBytes) {
    Fail(where, "header too long", "at most " + std::to_string(kMaxHeaderBytes) + " bytes",
         std::to_string(length));
  }
  const uint64_t present = file.size() - kLengthBytes;
  if (length > present) {
    Fail(where, "header longer than the file", "at most " + std::to_string(present) + " bytes",
         std::to_string(length));
  }
  const std::string_view text(reinterpret_cast<const char*>(file.data()) + kLengthBytes, length);
  if (!text.starts_with('{')) Fail(where, "header does not begin with '{'");
  return text;
}

// Reads one tensor's part of the header. All errors name the file and the tensor.
class EntryReader {
 public:
  EntryReader(const std::string& where, const std::string& name, const json& fields)
      : where_(where), name_(name), fields_(fields) {}

  TensorEntry Read(std::span<const std::byte> data) const {
    TensorEntry entry;
    entry.name = name_;
    if (name_.find('\0') != std::string::npos) Bad("has a NUL in its name");
    if (!fields_.is_object()) Bad("has no fields", "an object", QuoteJson(fields_));
    entry.type = Type();
    entry.shape = ShapeOf();
    entry.elements = Elements(entry.shape);
    entry.bytes = Bytes(entry, data);
    return entry;
  }

 private:
  [[noreturn]] void Bad(const std::string& reason, std::string expected = {}, std::string got = {}) const {
    Fail(where_, Named(name_) + " " + reason, std::move(expected), std::move(got));
  }

  const json& Field(const char* key) const {
    const auto place = fields_.find(key);
    if (place == fields_.end()) Bad(std::string("has no ") + key);
    return *place;
  }

  StoredType Type() const {
    const json& type = Field("dtype");
    const std::string_view text = type.is_string() ? type.get_ref<const std::string&>() : std::string_view();
    for (const StoredTypeInfo& known : kStoredTypes) {
      if (text == known.name) return known.type;
    }
    std::string names;
    for (const StoredTypeInfo& known : kStoredTypes)
      names += (names.empty() ? "" : ", ") + std::string(known.name);
    Bad("has an unknown type", "one of " + names, QuoteJson(type));
  }

  std::vector<int64_t> ShapeOf() const {
    const json& sizes = Field("shape");
    if (!sizes.is_array()) Bad("has a bad shape", "an array of sizes", QuoteJson(sizes));
    if (sizes.size() > kMaxStoredRank) {
      Bad("has too many axes", "at most " + std::to_string(kMaxStoredRank), std::to_string(sizes.size()));
    }
    std::vector<int64_t> shape;
    for (const json& size : sizes) {
      const bool fits =
          size.is_number_unsigned() && size.get<uint64_t>() <= std::numeric_limits<int64_t>::max();
      if (!fits) Bad("has a bad size in its shape", "a whole number from 0 to 2^63 - 1", QuoteJson(size));
      shape.push_back(size.get<int64_t>());
    }
    return shape;
  }

  int64_t Elements(const std::vector<int64_t>& shape) const {
    if (std::find(shape.begin(), shape.end(), 0) != shape.end()) return 0;
    int64_t product = 1;
    for (int64_t size : shape) {
      if (__builtin_mul_overflow(product, size, &product)) {
        Bad("has too many elements", "fewer than 2^63", ShapeText(shape));
      }
    }
    return product;
  }

  std::span<const std::byte> Bytes(const TensorEntry& entry, std::span<const std::byte> data) const {
    const json& offsets = Field("data_offsets");
    const bool two_offsets = offsets.is_array() && offsets.size() == 2 && offsets[0].is_number_unsigned() &&
                             offsets[1].is_number_unsigned();
    if (!two_offsets) {
      // At most a few numbers are worth quoting.
      const bool quotable = offsets.is_array() && offsets.size() <= 4 &&
                            std::all_of(offsets.begin(), offsets.end(), [](auto& o) { return o.is_number(); });
      Bad("has bad data_offsets", "two whole numbers, begin and end",
          quotable ? offsets.dump() : QuoteJson(offsets));
    }
    const auto begin = offsets[0].get<uint64_t>(), end = offsets[1].get<uint64_t>();
    if (begin > end) Bad("has data_offsets that end before they begin", "begin <= end", offsets.dump());
    if (end > data.size()) {
      Bad("lies outside the file's data", "an end of at most " + std::to_string(data.size()),
          std::to_string(end));
    }
    uint64_t bytes = 0;
    if (__builtin_mul_overflow(static_cast<uint64_t>(entry.elements), SizeOf(entry.type), &bytes) ||
        bytes != end - begin) {
      Bad("has the wrong number of bytes for its shape",
          std::to_string(entry.elements) + " x " + std::to_string(SizeOf(entry.type)) + " bytes for " +
              ShapeText(entry.shape) + " " + NameOf(entry.type),
          std::to_string(end - begin));
    }
    return data.subspan(begin, bytes);
  }

  const std::string& where_;
  const std::string& name_;
  const json& fields_;
};

std::map<std::string, std::string> ReadMetadata(const json& pairs, const std::string& where) {
  if (!pairs.is_object()) Fail(where, "bad __metadata__", "an object of strings", QuoteJson(pairs));
  std::map<std::string, std::string> metadata;
  for (const auto& [key, value] : pairs.items()) {
    if (!value.is_string())
      Fail(where, "bad __metadata__ '" + Printable(key) + "'", "a string", QuoteJson(value));
    metadata.emplace(key, value.get_ref<const std::string&>());
  }
  return metadata;
}

// Sorted entries must follow each other and fill the data, so that none shares a byte and none is hidden.
void CheckCoverage(const std::vector<TensorEntry>& entries, std::span<const std::byte> data,
                   const std::string& where) {
  const auto at = [&](const std::byte* p) { return std::to_string(p - data.data()); };
  const std::byte* next = data.data();
  const TensorEntry* before = nullptr;
  for (const TensorEntry& entry : entries) {
    const std::byte* begin = entry.bytes.data();
    if (begin < next) Fail(where, Named(entry.name) + " overlaps " + Named(before->name), at(next), at(begin));
    if (begin > next)
      Fail(where, "unused bytes before " + Named(entry.name), "its data at " + at(next), at(begin));
    next = begin + entry.bytes.size();
    before = &entry;
  }
  if (next != data.data() + data.size()) {
    Fail(where, "bytes after the last tensor", at(next) + " bytes of data", std::to_string(data.size()));
  }
}

float ToFloat(float value) { return value; }
float ToFloat(double value) { return static_cast<float>(value); }

template <class T>
void Convert(std::span<const std::byte> from, std::span<float> to) {
  for (size_t i = 0; i < to.size(); ++i) {
    T value;
    std::memcpy(&value, from.data() + i * sizeof(T), sizeof(T));
    to[i] = ToFloat(value);
  }
}

std::optional<DType> DTypeFor(StoredType type) {
  switch (type) {
    case StoredType::kF64: return DType::kF64;
    case StoredType::kF32: return DType::kF32;
    case StoredType::kF16: return DType::kF16;
    case StoredType::kBF16: return DType::kBF16;
    case StoredType::kI64: return DType::kI64;
    case StoredType::kI32: return DType::kI32;
    case StoredType::kI8: return DType::kI8;
    case StoredType::kU8:
    case StoredType::kBool: return DType::kU8;
    default: return std::nullopt;
  }
}

}  // namespace

const char* NameOf(StoredType type) { return InfoOf(type).name; }
size_t SizeOf(StoredType type) { return InfoOf(type).size; }

std::string ShapeText(std::span<const int64_t> shape) {
  std::string text = "(";
  for (int64_t size : shape) text += (text.size() > 1 ? ", " : "") + std::to_string(size);
  return text + ")";
}

SafetensorsContent ParseSafetensors(std::span<const std::byte> file, const std::string& where) {
  const std::string_view text = HeaderText(file, where);
  const json header = ParseJson(text, where + ": header", kHeaderLimits);
  const std::span<const std::byte> data = file.subspan(kLengthBytes + text.size());
  SafetensorsContent content;
  for (const auto& [name, fields] : header.items()) {
    if (name == "__metadata__") {
      content.metadata = ReadMetadata(fields, where);
    } else {
      content.entries.push_back(EntryReader(where, name, fields).Read(data));
    }
  }
  const auto place = [](const TensorEntry& entry) {
    return std::make_tuple(entry.bytes.data(), entry.bytes.size(), std::string_view(entry.name));
  };
  std::sort(content.entries.begin(), content.entries.end(),
            [&](const TensorEntry& a, const TensorEntry& b) { return place(a) < place(b); });
  CheckCoverage(content.entries, data, where);
  return content;
}

std::optional<ConstTensor> DirectView(const TensorEntry& entry) {
  const std::optional<DType> dtype = DTypeFor(entry.type);
  if (!dtype || entry.shape.size() > static_cast<size_t>(kMaxRank)) return std::nullopt;
  if (std::bit_cast<uintptr_t>(entry.bytes.data()) % SizeOf(*dtype) != 0) return std::nullopt;
  Shape shape;
  for (int64_t size : entry.shape) shape.size[static_cast<size_t>(shape.rank++)] = size;
  return ConstTensor(entry.bytes.data(), *dtype, shape);
}

void CopyFloats(const TensorEntry& entry, std::span<float> to, const std::string& where) {
  if (to.size() != static_cast<size_t>(entry.elements)) {
    throw Error(ErrorCode::kInvalidArgument, "wrong room for " + Named(entry.name), where,
                std::to_string(entry.elements) + " floats", std::to_string(to.size()));
  }
  switch (entry.type) {
    case StoredType::kF64: return Convert<double>(entry.bytes, to);
    case StoredType::kF32: return Convert<float>(entry.bytes, to);
    case StoredType::kF16: return Convert<Float16>(entry.bytes, to);
    case StoredType::kBF16: return Convert<BFloat16>(entry.bytes, to);
    default:
      Fail(where, Named(entry.name) + " has the wrong type", "F64, F32, F16 or BF16", NameOf(entry.type));
  }
}

Safetensors::Safetensors(const std::filesystem::path& path)
    : path_(path), file_(path), content_(ParseSafetensors(file_.bytes(), path.string())) {
  by_name_.reserve(content_.entries.size());
  for (const TensorEntry& entry : content_.entries) by_name_.emplace(entry.name, &entry);
}

const TensorEntry* Safetensors::Find(std::string_view name) const {
  const auto place = by_name_.find(name);
  return place == by_name_.end() ? nullptr : place->second;
}

}  // namespace qkv
