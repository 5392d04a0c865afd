#include "formats/gguf_metadata.h"

#include <array>
#include <cstring>
#include <utility>

#include "qkv/error.h"
#include "runtime/printable.h"

namespace qkv {
namespace {

using nlohmann::json;

constexpr uint64_t kMaxSettingsArray = 4096;  // per-layer settings; vocabularies are longer
constexpr uint64_t kLengthBytes = 8;          // of a string's length, of an array's count
constexpr uint64_t kKindBytes = 4;

struct KindInfo {
  const char* name;
  size_t bytes;
};
constexpr std::array<KindInfo, kGgufKinds> kKinds{{{"uint8", 1},
                                                   {"int8", 1},
                                                   {"uint16", 2},
                                                   {"int16", 2},
                                                   {"uint32", 4},
                                                   {"int32", 4},
                                                   {"float32", 4},
                                                   {"bool", 1},
                                                   {"string", 0},
                                                   {"array", 0},
                                                   {"uint64", 8},
                                                   {"int64", 8},
                                                   {"float64", 8}}};

template <class T>
T Load(std::span<const std::byte> bytes) {
  T value;
  std::memcpy(&value, bytes.data(), sizeof value);
  return value;
}

// One element of `kind` at the beginning of `bytes`, and how many bytes it takes.
std::pair<GgufValue, uint64_t> ElementAt(std::span<const std::byte> bytes, GgufKind kind) {
  GgufValue element{kind, kind, 1, {}};
  if (kind == GgufKind::kString) {
    element.bytes = bytes.subspan(kLengthBytes, Load<uint64_t>(bytes));
    return {element, kLengthBytes + element.bytes.size()};
  }
  if (kind != GgufKind::kArray) {
    element.bytes = bytes.first(FixedBytes(kind));
    return {element, element.bytes.size()};
  }
  element.element_kind = Load<GgufKind>(bytes);
  element.count = Load<uint64_t>(bytes.subspan(kKindBytes));
  const auto elements = bytes.subspan(kKindBytes + kLengthBytes);
  uint64_t size = element.count * FixedBytes(element.element_kind);
  if (FixedBytes(element.element_kind) == 0) {
    for (uint64_t i = 0; i < element.count; ++i)
      size += ElementAt(elements.subspan(size), element.element_kind).second;
  }
  element.bytes = elements.first(size);
  return {element, kKindBytes + kLengthBytes + size};
}

// Null for what does not belong into settings.
json SettingOf(const GgufValue& value) {
  if (value.kind == GgufKind::kU64) return Load<uint64_t>(value.bytes);  // may be past 2^63
  if (const auto number = AsInt(value)) return *number;
  if (const auto number = AsReal(value)) return *number;
  if (const auto flag = AsBool(value)) return *flag;
  if (const auto text = AsString(value)) return std::string(*text);
  if (value.count > kMaxSettingsArray || FixedBytes(value.element_kind) == 0) return nullptr;
  json array = json::array();
  ForEachElement(value, [&](const GgufValue& element) {
    array.push_back(SettingOf(element));
    return true;
  });
  return array;
}

}  // namespace

const char* NameOf(GgufKind kind) { return kKinds[static_cast<size_t>(kind)].name; }
size_t FixedBytes(GgufKind kind) { return kKinds[static_cast<size_t>(kind)].bytes; }

std::optional<int64_t> AsInt(const GgufValue& value) {
  switch (value.kind) {
    case GgufKind::kU8: return Load<uint8_t>(value.bytes);
    case GgufKind::kI8: return Load<int8_t>(value.bytes);
    case GgufKind::kU16: return Load<uint16_t>(value.bytes);
    case GgufKind::kI16: return Load<int16_t>(value.bytes);
    case GgufKind::kU32: return Load<uint32_t>(value.bytes);
    case GgufKind::kI32: return Load<int32_t>(value.bytes);
    case GgufKind::kI64: return Load<int64_t>(value.bytes);
    case GgufKind::kU64: break;
    default: return std::nullopt;
  }
  const auto number = Load<uint64_t>(value.bytes);
  return number > INT64_MAX ? std::nullopt : std::optional<int64_t>(static_cast<int64_t>(number));
}

std::optional<double> AsReal(const GgufValue& value) {
  if (value.kind == GgufKind::kF32) return Load<float>(value.bytes);
  if (value.kind == GgufKind::kF64) return Load<double>(value.bytes);
  return std::nullopt;
}

std::optional<bool> AsBool(const GgufValue& value) {
  if (value.kind != GgufKind::kBool) return std::nullopt;
  return value.bytes[0] != std::byte{0};
}

std::optional<std::string_view> AsString(const GgufValue& value) {
  if (value.kind != GgufKind::kString) return std::nullopt;
  return std::string_view(reinterpret_cast<const char*>(value.bytes.data()), value.bytes.size());
}

void ForEachElement(const GgufValue& array, const std::function<bool(const GgufValue&)>& take) {
  std::span<const std::byte> rest = array.bytes;
  for (uint64_t i = 0; i < array.count; ++i) {
    const auto [element, size] = ElementAt(rest, array.element_kind);
    if (!take(element)) return;
    rest = rest.subspan(size);
  }
}

bool GgufMetadata::Add(std::string_view key, const GgufValue& value) {
  if (!by_key_.emplace(key, pairs_.size()).second) return false;
  pairs_.push_back({key, value});
  return true;
}

const GgufValue* GgufMetadata::Find(std::string_view key) const {
  const auto place = by_key_.find(key);
  return place == by_key_.end() ? nullptr : &pairs_[place->second].value;
}

const GgufValue& GgufMetadata::RequireArray(std::string_view key) const {
  const GgufValue* value = Find(key);
  if (value == nullptr) throw Error(ErrorCode::kFile, "no " + Printable(key), where_);
  if (value->kind != GgufKind::kArray) {
    throw Error(ErrorCode::kFile, "unsupported " + Printable(key), where_, "an array", NameOf(value->kind));
  }
  return *value;
}

void GgufMetadata::RefuseElement(std::string_view key, const char* expected, const GgufValue& array) const {
  throw Error(ErrorCode::kFile, "unsupported " + Printable(key), where_, std::string("an array of ") + expected,
              std::string("an array of ") + NameOf(array.element_kind));
}

std::vector<std::string_view> GgufMetadata::Strings(std::string_view key) const {
  const GgufValue& array = RequireArray(key);
  if (array.element_kind != GgufKind::kString) RefuseElement(key, "strings", array);
  std::vector<std::string_view> strings;
  strings.reserve(array.count);
  ForEachElement(array, [&](const GgufValue& element) {
    strings.push_back(*AsString(element));
    return true;
  });
  return strings;
}

std::vector<int64_t> GgufMetadata::Ints(std::string_view key) const {
  const GgufValue& array = RequireArray(key);
  std::vector<int64_t> numbers;
  ForEachElement(array, [&](const GgufValue& element) {
    const std::optional<int64_t> number = AsInt(element);
    if (!number) RefuseElement(key, "integers below 2^63", array);
    numbers.push_back(*number);
    return true;
  });
  return numbers;
}

std::vector<float> GgufMetadata::Floats(std::string_view key) const {
  const GgufValue& array = RequireArray(key);
  std::vector<float> numbers;
  ForEachElement(array, [&](const GgufValue& element) {
    const std::optional<double> number = AsReal(element);
    if (!number) RefuseElement(key, "float32 or float64", array);
    numbers.push_back(static_cast<float>(*number));
    return true;
  });
  return numbers;
}

JsonObject GgufMetadata::Settings() const {
  json settings = json::object();
  for (const Pair& pair : pairs_) {
    json value = SettingOf(pair.value);
    if (!value.is_null()) settings[std::string(pair.key)] = std::move(value);
  }
  return JsonObject(std::move(settings), where_);
}

}  // namespace qkv
