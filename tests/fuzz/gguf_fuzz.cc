// Any bytes as a .gguf file: refused with an Error, or sound.
#include <algorithm>
#include <string_view>
#include <unordered_set>

#include "formats/gguf.h"
#include "formats/gguf_text.h"
#include "fuzz.h"
#include "qkv/error.h"

namespace qkv::test {
namespace {

bool Within(std::span<const std::byte> part, std::span<const std::byte> whole) {
  return part.empty() ||
         (part.data() >= whole.data() && part.data() + part.size() <= whole.data() + whole.size());
}

void CheckError(const Error& error) {
  Check(error.code() == ErrorCode::kFile, "a bad file is a file error");
  const std::string_view text = error.what();
  Check(text.find('\n') == std::string_view::npos && text.size() < 2000, "an error is one line");
}

// What reads a key as this kind of array must give its elements or refuse it.
template <class Read>
void TryArray(const GgufValue& value, Read read) {
  try {
    Check(read().size() == value.count, "an array gives all its elements");
  } catch (const Error& error) {
    CheckError(error);
  }
}

void CheckValue(const GgufValue& value, std::span<const std::byte> file) {
  Check(Within(value.bytes, file), "a value lies within the file");
  const int readings = int{AsInt(value).has_value()} + AsReal(value).has_value() + AsBool(value).has_value() +
                       AsString(value).has_value();
  Check(readings <= 1, "a value is of one kind");
  if (value.kind != GgufKind::kArray) return;
  uint64_t count = 0;
  ForEachElement(value, [&](const GgufValue& element) {
    ++count;
    CheckValue(element, file);
    return true;
  });
  Check(count == value.count, "an array has as many elements as it says");
}

void CheckMetadata(const GgufMetadata& metadata, std::span<const std::byte> file) {
  for (const GgufMetadata::Pair& pair : metadata.pairs()) {
    const std::string_view key = pair.key;
    const GgufValue& value = pair.value;
    CheckValue(value, file);
    Check(ValueText(value).find('\n') == std::string::npos, "a value's text is one line");
    Check(metadata.Find(key) != nullptr, "every key is found");
    TryArray(value, [&] { return metadata.Strings(key); });
    TryArray(value, [&] { return metadata.Ints(key); });
    TryArray(value, [&] { return metadata.Floats(key); });
  }
  const JsonObject settings = metadata.Settings();
  for (const auto& [key, value] : metadata.pairs()) {
    if (AsBool(value))
      Check(settings.BoolOr(std::string(key).c_str(), !*AsBool(value)) == *AsBool(value), "settings");
  }
}

void CheckEntries(const GgufContent& content, std::span<const std::byte> file) {
  const std::byte* end = file.data();
  std::unordered_set<std::string_view> names;
  for (const TensorEntry& entry : content.entries) {
    Check(Within(entry.bytes, file), "a tensor lies within the file");
    Check(entry.bytes.data() >= end, "tensors do not overlap");
    end = entry.bytes.data() + entry.bytes.size();
    Check(entry.bytes.size() == StoredBytes(entry.type, entry.elements),
          "a tensor has the bytes of its elements");
    Check(ElementsOf(entry.shape) == entry.elements && entry.elements > 0,
          "a tensor has the elements of its shape");
    Check(!entry.name.empty() && names.insert(entry.name).second, "names are not empty and differ");
    if (const auto view = DirectView(entry)) {
      Check(view->shape.elements() == entry.elements, "a view has the entry's elements");
    }
  }
}

}  // namespace
}  // namespace qkv::test

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  using namespace qkv;
  const std::span<const std::byte> file = std::as_bytes(std::span(bytes, size));
  try {
    const GgufContent content = ParseGguf(file, "fuzz");
    test::CheckMetadata(content.metadata, file);
    test::CheckEntries(content, file);
  } catch (const Error& error) {
    test::CheckError(error);
  }
  return 0;
}
