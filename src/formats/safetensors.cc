#include "formats/safetensors.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <optional>
#include <tuple>
#include <utility>

#include "formats/file_kind.h"
#include "qkv/error.h"
#include "runtime/json.h"
#include "runtime/printable.h"

namespace qkv {
namespace {

using nlohmann::json;

constexpr uint64_t kLengthBytes = 8;
constexpr uint64_t kMaxHeaderBytes = 100'000'000;  // the format's own limit
constexpr size_t kMaxStoredRank = 64;              // as NumPy and PyTorch
// A tensor takes about ten values, so this is room for 400,000 tensors.
constexpr JsonLimits kHeaderLimits{.max_bytes = kMaxHeaderBytes, .max_depth = 16, .max_values = 4'000'000};

// The format's own types: the quantised ones are another format's.
constexpr std::array kSafetensorsTypes{
    StoredType::kF64,    StoredType::kF32, StoredType::kF16, StoredType::kBF16, StoredType::kF8E4M3,
    StoredType::kF8E5M2, StoredType::kI64, StoredType::kI32, StoredType::kI16,  StoredType::kI8,
    StoredType::kU64,    StoredType::kU32, StoredType::kU16, StoredType::kU8,   StoredType::kBool};

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
    std::string names;
    for (const StoredType known : kSafetensorsTypes) {
      if (text == NameOf(known)) return known;
      names += (names.empty() ? "" : ", ") + std::string(NameOf(known));
    }
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
    const std::optional<int64_t> elements = ElementsOf(shape);
    if (!elements) Bad("has too many elements", "fewer than 2^63", ShapeText(shape));
    return *elements;
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
    if (StoredBytes(entry.type, entry.elements) != end - begin) {
      Bad("has the wrong number of bytes for its shape",
          std::to_string(entry.elements) + " x " + std::to_string(BlockOf(entry.type).bytes) + " bytes for " +
              ShapeText(entry.shape) + " " + NameOf(entry.type),
          std::to_string(end - begin));
    }
    return data.subspan(begin, end - begin);
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

}  // namespace

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
