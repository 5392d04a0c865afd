#include "formats/gguf_text.h"

#include <fmt/format.h>

#include <cstring>

#include "runtime/printable.h"

namespace qkv {
namespace {

constexpr size_t kMaxText = 100;     // bytes of a string
constexpr size_t kMaxElement = 24;   // of one in an array
constexpr size_t kMaxElements = 64;  // bytes after which an array is cut

std::string Text(const GgufValue& value, size_t most);

std::string ArrayText(const GgufValue& array) {
  std::string text = "[";
  uint64_t shown = 0;
  ForEachElement(array, [&](const GgufValue& element) {
    if (text.size() > kMaxElements) return false;
    text += (shown++ == 0 ? "" : ", ") + Text(element, kMaxElement);
    return true;
  });
  if (shown < array.count) text += ", … " + Grouped(array.count) + " in all";
  return text + "]";
}

std::string Text(const GgufValue& value, size_t most) {
  if (value.kind == GgufKind::kArray) return ArrayText(value);
  if (const auto text = AsString(value)) return Printable(*text, most);
  if (const auto flag = AsBool(value)) return *flag ? "true" : "false";
  if (const auto number = AsInt(value)) return std::to_string(*number);
  if (const auto real = AsReal(value)) {
    // As few digits as tell a float32 from its neighbours: 1e-05, not 9.999999747378752e-06.
    return value.kind == GgufKind::kF32 ? fmt::format("{}", static_cast<float>(*real))
                                        : fmt::format("{}", *real);
  }
  uint64_t number = 0;  // past 2^63
  std::memcpy(&number, value.bytes.data(), sizeof number);
  return std::to_string(number);
}

}  // namespace

std::string ValueText(const GgufValue& value) { return Text(value, kMaxText); }

std::string Grouped(uint64_t number) {
  std::string text = std::to_string(number);
  for (size_t end = text.size(); end > 3; end -= 3) text.insert(end - 3, ",");
  return text;
}

}  // namespace qkv
