#include "formats/gguf.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <limits>
#include <optional>
#include <tuple>
#include <unordered_set>
#include <utility>

#include "formats/file_kind.h"
#include "qkv/error.h"
#include "runtime/printable.h"

namespace qkv {
namespace {

constexpr uint32_t kMaxAxes = 4;           // the format's own limit
constexpr uint64_t kMaxNameBytes = 65535;  // of keys, the format's own limit, and of tensors
constexpr int kMaxArrayDepth = 8;          // arrays within arrays; files in use have none
constexpr int64_t kMaxAlignment = 1 << 20;
constexpr uint64_t kLeastKeyBytes = 8 + 1 + 4 + 1;         // length, a character, kind, value
constexpr uint64_t kLeastTensorBytes = 8 + 1 + 4 + 4 + 8;  // length, a character, axes, type, offset

// By the format's number of the type; nothing: known by name only, or withdrawn where the name is empty.
struct GgufType {
  const char* name;
  std::optional<StoredType> stored;
};
const std::array<GgufType, 40> kTypes{{{"F32", StoredType::kF32},
                                       {"F16", StoredType::kF16},
                                       {"Q4_0", StoredType::kQ4_0},
                                       {"Q4_1", StoredType::kQ4_1},
                                       {"Q4_2", {}},
                                       {"Q4_3", {}},
                                       {"Q5_0", StoredType::kQ5_0},
                                       {"Q5_1", StoredType::kQ5_1},
                                       {"Q8_0", StoredType::kQ8_0},
                                       {"Q8_1", {}},
                                       {"Q2_K", {}},
                                       {"Q3_K", {}},
                                       {"Q4_K", StoredType::kQ4_K},
                                       {"Q5_K", StoredType::kQ5_K},
                                       {"Q6_K", StoredType::kQ6_K},
                                       {"Q8_K", {}},
                                       {"IQ2_XXS", {}},
                                       {"IQ2_XS", {}},
                                       {"IQ3_XXS", {}},
                                       {"IQ1_S", {}},
                                       {"IQ4_NL", {}},
                                       {"IQ3_S", {}},
                                       {"IQ2_S", {}},
                                       {"IQ4_XS", {}},
                                       {"I8", StoredType::kI8},
                                       {"I16", StoredType::kI16},
                                       {"I32", StoredType::kI32},
                                       {"I64", StoredType::kI64},
                                       {"F64", StoredType::kF64},
                                       {"IQ1_M", {}},
                                       {"BF16", StoredType::kBF16},
                                       {"Q4_0_4_4", {}},
                                       {"Q4_0_4_8", {}},
                                       {"Q4_0_8_8", {}},
                                       {"TQ1_0", {}},
                                       {"TQ2_0", {}},
                                       {"IQ4_NL_4_4", {}},
                                       {"IQ4_NL_4_8", {}},
                                       {"IQ4_NL_8_8", {}},
                                       {"MXFP4", {}}}};

std::string SupportedTypes() {
  std::string names;
  for (const GgufType& type : kTypes) {
    if (type.stored) names += (names.empty() ? "" : ", ") + std::string(type.name);
  }
  return names;
}

// Reads on from the file's beginning. Errors name the file and what is being read: "key general.name".
class Cursor {
 public:
  Cursor(std::span<const std::byte> file, const std::string& where) : file_(file), where_(where) {}

  void Naming(std::string what) { what_ = std::move(what); }
  size_t at() const { return at_; }
  uint64_t remaining() const { return file_.size() - at_; }

  [[noreturn]] void Fail(const std::string& reason, std::string expected = {}, std::string got = {}) const {
    throw Error(ErrorCode::kFile, what_.empty() ? reason : what_ + " " + reason, where_, std::move(expected),
                std::move(got));
  }

  std::span<const std::byte> Take(uint64_t bytes) {
    if (bytes > remaining()) {
      Fail("does not fit in the file", std::to_string(bytes) + " bytes more", std::to_string(remaining()));
    }
    const auto taken = file_.subspan(at_, bytes);
    at_ += bytes;
    return taken;
  }

  template <class T>
  T Number() {
    T number;
    std::memcpy(&number, Take(sizeof number).data(), sizeof number);
    return number;
  }

  std::span<const std::byte> StringBytes() { return Take(Number<uint64_t>()); }

  // Of a key or a tensor.
  std::string_view Name() {
    const auto bytes = StringBytes();
    const std::string_view name(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    if (name.empty()) Fail("has an empty name");
    if (name.size() > kMaxNameBytes) {
      Fail("has too long a name", "at most " + std::to_string(kMaxNameBytes) + " bytes",
           std::to_string(name.size()));
    }
    if (name.find('\0') != std::string_view::npos) Fail("has a NUL in its name", {}, Printable(name));
    return name;
  }

 private:
  std::span<const std::byte> file_;
  const std::string& where_;
  std::string what_;
  size_t at_ = 0;
};

// ---- Metadata

GgufKind ReadKind(Cursor& cursor) {
  const auto kind = cursor.Number<uint32_t>();
  if (kind >= kGgufKinds) {
    cursor.Fail("has an unknown kind of value", "0 to " + std::to_string(kGgufKinds - 1), std::to_string(kind));
  }
  return static_cast<GgufKind>(kind);
}

void CheckBools(const Cursor& cursor, std::span<const std::byte> bytes) {
  for (const std::byte byte : bytes) {
    if (byte > std::byte{1})
      cursor.Fail("has a bad bool", "0 or 1", std::to_string(std::to_integer<int>(byte)));
  }
}

GgufValue ReadArray(Cursor& cursor, int depth);

GgufValue ReadValue(Cursor& cursor, GgufKind kind, int depth) {
  if (kind == GgufKind::kArray) return ReadArray(cursor, depth + 1);
  const auto bytes = kind == GgufKind::kString ? cursor.StringBytes() : cursor.Take(FixedBytes(kind));
  if (kind == GgufKind::kBool) CheckBools(cursor, bytes);
  return {kind, kind, 1, bytes};
}

GgufValue ReadArray(Cursor& cursor, int depth) {
  if (depth > kMaxArrayDepth) {
    cursor.Fail("has arrays nested too deep", "at most " + std::to_string(kMaxArrayDepth) + " levels");
  }
  GgufValue array{GgufKind::kArray, ReadKind(cursor), cursor.Number<uint64_t>(), {}};
  const size_t fixed = FixedBytes(array.element_kind);
  const uint64_t least = fixed > 0 ? fixed : array.element_kind == GgufKind::kString ? 8 : 12;
  const uint64_t most = cursor.remaining() / least;
  if (array.count > most) {
    cursor.Fail("has an array longer than the file", "at most " + std::to_string(most) + " elements",
                std::to_string(array.count));
  }
  if (fixed > 0) {
    array.bytes = cursor.Take(array.count * fixed);
    if (array.element_kind == GgufKind::kBool) CheckBools(cursor, array.bytes);
    return array;
  }
  Cursor start = cursor;
  for (uint64_t i = 0; i < array.count; ++i) ReadValue(cursor, array.element_kind, depth);
  array.bytes = start.Take(cursor.at() - start.at());
  return array;
}

GgufMetadata ReadMetadata(Cursor& cursor, uint64_t keys, const std::string& where) {
  GgufMetadata metadata(where);
  for (uint64_t i = 0; i < keys; ++i) {
    cursor.Naming("key number " + std::to_string(i));
    const std::string_view key = cursor.Name();
    cursor.Naming("key " + Printable(key));
    const GgufKind kind = ReadKind(cursor);
    if (!metadata.Add(key, ReadValue(cursor, kind, 0))) cursor.Fail("is there twice");
  }
  return metadata;
}

int64_t AlignmentOf(const GgufMetadata& metadata, Cursor& cursor) {
  const GgufValue* value = metadata.Find("general.alignment");
  if (value == nullptr) return 32;
  const int64_t alignment = AsInt(*value).value_or(0);
  if (alignment < 8 || alignment > kMaxAlignment || !std::has_single_bit(static_cast<uint64_t>(alignment))) {
    cursor.Naming("general.alignment");
    cursor.Fail("is unsupported", "a power of two from 8 to " + std::to_string(kMaxAlignment),
                AsInt(*value) ? std::to_string(alignment) : NameOf(value->kind));
  }
  return alignment;
}

// ---- Tensors

struct Placed {
  TensorEntry entry;  // its bytes are not known yet
  uint64_t offset = 0, bytes = 0;
};

std::vector<int64_t> ReadShape(Cursor& cursor) {
  const auto axes = cursor.Number<uint32_t>();
  if (axes > kMaxAxes) cursor.Fail("has too many axes", "at most 4", std::to_string(axes));
  std::vector<int64_t> shape(axes);
  for (int64_t& size : shape) {
    const auto stated = cursor.Number<uint64_t>();
    if (stated == 0 || stated > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
      cursor.Fail("has a bad size in its shape", "1 to 2^63 - 1", std::to_string(stated));
    }
    size = static_cast<int64_t>(stated);
  }
  std::reverse(shape.begin(), shape.end());
  return shape;
}

StoredType ReadType(Cursor& cursor) {
  const auto number = cursor.Number<uint32_t>();
  if (number >= kTypes.size()) {
    cursor.Fail("has an unknown type", "one of " + SupportedTypes(), "type " + std::to_string(number));
  }
  if (!kTypes[number].stored) {
    cursor.Fail("has an unsupported type", "one of " + SupportedTypes(), kTypes[number].name);
  }
  return *kTypes[number].stored;
}

Placed ReadTensor(Cursor& cursor) {
  Placed tensor;
  tensor.entry.name = cursor.Name();
  cursor.Naming("tensor " + Printable(tensor.entry.name));
  tensor.entry.shape = ReadShape(cursor);
  tensor.entry.type = ReadType(cursor);
  tensor.offset = cursor.Number<uint64_t>();
  const std::string shape = ShapeText(tensor.entry.shape);
  const std::optional<int64_t> elements = ElementsOf(tensor.entry.shape);
  if (!elements) cursor.Fail("has too many elements", "fewer than 2^63", shape);
  tensor.entry.elements = *elements;
  const StoredBlock block = BlockOf(tensor.entry.type);
  const int64_t row = tensor.entry.shape.empty() ? 1 : tensor.entry.shape.back();
  if (row % block.elements != 0) {
    cursor.Fail("has rows that are no whole number of blocks",
                "a multiple of " + std::to_string(block.elements), shape + " " + NameOf(tensor.entry.type));
  }
  const std::optional<uint64_t> bytes = StoredBytes(tensor.entry.type, *elements);
  if (!bytes) cursor.Fail("has too many bytes", "fewer than 2^64", shape + " " + NameOf(tensor.entry.type));
  tensor.bytes = *bytes;
  return tensor;
}

std::vector<Placed> ReadTensors(Cursor& cursor, uint64_t count) {
  std::vector<Placed> tensors;
  for (uint64_t i = 0; i < count; ++i) {
    cursor.Naming("tensor number " + std::to_string(i));
    tensors.push_back(ReadTensor(cursor));
  }
  std::unordered_set<std::string_view> names;
  for (const Placed& tensor : tensors) {
    cursor.Naming("tensor " + Printable(tensor.entry.name));
    if (!names.insert(tensor.entry.name).second) cursor.Fail("is there twice");
  }
  return tensors;
}

// Every tensor lies within the data, aligned, and shares no byte with another.
std::vector<TensorEntry> Place(std::vector<Placed> tensors, std::span<const std::byte> data, int64_t alignment,
                               Cursor& cursor) {
  std::sort(tensors.begin(), tensors.end(), [](const Placed& a, const Placed& b) {
    return std::tie(a.offset, a.entry.name) < std::tie(b.offset, b.entry.name);
  });
  std::vector<TensorEntry> entries;
  uint64_t end = 0;
  for (Placed& tensor : tensors) {
    cursor.Naming("tensor " + Printable(tensor.entry.name));
    if (tensor.offset % static_cast<uint64_t>(alignment) != 0) {
      cursor.Fail("is misaligned", "an offset that is a multiple of " + std::to_string(alignment),
                  std::to_string(tensor.offset));
    }
    if (tensor.offset > data.size() || tensor.bytes > data.size() - tensor.offset) {
      cursor.Fail("lies outside the file's data",
                  std::to_string(tensor.bytes) + " bytes at offset " + std::to_string(tensor.offset),
                  std::to_string(data.size()) + " bytes of data");
    }
    if (tensor.offset < end) {
      cursor.Fail("overlaps tensor " + Printable(entries.back().name),
                  "an offset of at least " + std::to_string(end), std::to_string(tensor.offset));
    }
    end = tensor.offset + tensor.bytes;
    tensor.entry.bytes = data.subspan(tensor.offset, tensor.bytes);
    entries.push_back(std::move(tensor.entry));
  }
  return entries;
}

// ---- The whole

uint32_t ReadVersion(Cursor& cursor) {
  const auto version = cursor.Number<uint32_t>();
  if (version == 2 || version == 3) return version;
  const uint32_t swapped = __builtin_bswap32(version);
  const bool big_endian = swapped >= 1 && swapped <= 16;
  cursor.Naming("GGUF version");
  cursor.Fail("is unsupported", "2 or 3, little-endian",
              big_endian ? std::to_string(swapped) + ", big-endian" : std::to_string(version));
}

uint64_t ReadCount(Cursor& cursor, const char* of, uint64_t least_bytes) {
  const auto count = cursor.Number<uint64_t>();
  const uint64_t most = cursor.remaining() / least_bytes;
  if (count > most) {
    cursor.Naming(std::string("the number of ") + of);
    cursor.Fail("is too large for the file", "at most " + std::to_string(most), std::to_string(count));
  }
  return count;
}

}  // namespace

GgufContent ParseGguf(std::span<const std::byte> file, const std::string& where) {
  Cursor cursor(file, where);
  if (const FileKind kind = DetectKind(file); kind != FileKind::kGguf) {
    cursor.Fail("wrong kind of file", Describe(FileKind::kGguf), Describe(kind));
  }
  cursor.Naming("the header");
  cursor.Take(4);
  GgufContent content;
  content.version = ReadVersion(cursor);
  const uint64_t tensors = ReadCount(cursor, "tensors", kLeastTensorBytes);
  const uint64_t keys = ReadCount(cursor, "keys", kLeastKeyBytes);
  content.metadata = ReadMetadata(cursor, keys, where);
  std::vector<Placed> placed = ReadTensors(cursor, tensors);
  content.alignment = AlignmentOf(content.metadata, cursor);
  const auto alignment = static_cast<uint64_t>(content.alignment);
  const uint64_t begin = (cursor.at() + alignment - 1) / alignment * alignment;
  const auto data = begin < file.size() ? file.subspan(begin) : std::span<const std::byte>();
  content.entries = Place(std::move(placed), data, content.alignment, cursor);
  return content;
}

Gguf::Gguf(const std::filesystem::path& path)
    : path_(path), file_(path), content_(ParseGguf(file_.bytes(), path.string())) {
  by_name_.reserve(content_.entries.size());
  for (const TensorEntry& entry : content_.entries) by_name_.emplace(entry.name, &entry);
}

const TensorEntry* Gguf::Find(std::string_view name) const {
  const auto place = by_name_.find(name);
  return place == by_name_.end() ? nullptr : place->second;
}

const TensorEntry& Gguf::Require(std::string_view name, std::span<const int64_t> shape) const {
  const TensorEntry* entry = Find(name);
  if (entry == nullptr) throw Error(ErrorCode::kFile, "tensor " + Printable(name) + " missing", path_.string());
  RequireShape(*entry, shape, path_.string());
  return *entry;
}

Floats Gguf::RequireFloats(std::string_view name, std::span<const int64_t> shape) const {
  return FloatsOf(Require(name, shape), shape, path_.string());
}

}  // namespace qkv
