// Any bytes as a .safetensors file: refused with an Error, or sound.
#include <algorithm>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "formats/safetensors.h"
#include "fuzz.h"
#include "qkv/error.h"
#include "runtime/printable.h"

namespace qkv::test {
namespace {

void CheckEntry(const TensorEntry& entry, std::span<const std::byte> file) {
  Check(
      entry.bytes.data() >= file.data() && entry.bytes.data() + entry.bytes.size() <= file.data() + file.size(),
      "a tensor lies within the file");
  Check(entry.bytes.size() == StoredBytes(entry.type, entry.elements),
        "a tensor has as many bytes as elements");
  Check(Printable(entry.name).find_first_of(std::string_view("\0\n\r\x1b", 4)) == std::string::npos,
        "a printable name has no control characters");
  if (const auto view = DirectView(entry)) {
    Check(view->shape.elements() == entry.elements, "a view has the entry's elements");
  }
  std::vector<float> floats(static_cast<size_t>(entry.elements));
  try {
    CopyFloats(entry, floats, "fuzz");
  } catch (const Error& error) {
    Check(error.code() == ErrorCode::kFile, "a type that is not float is the file's fault");
  }
}

void Try(std::span<const std::byte> file) {
  try {
    const SafetensorsContent content = ParseSafetensors(file, "fuzz");
    size_t bytes = 0;
    for (const TensorEntry& entry : content.entries) {
      CheckEntry(entry, file);
      bytes += entry.bytes.size();
    }
    uint64_t header = 0;
    std::memcpy(&header, file.data(), sizeof header);
    Check(bytes + sizeof header + header == file.size(), "the tensors and the header fill the file");
  } catch (const Error& error) {
    Check(error.code() == ErrorCode::kFile, "a bad file is a file error");
    Check(std::string_view(error.what()).find('\n') == std::string_view::npos, "an error is one line");
  }
}

// The same bytes with a length that fits a header ending at the last brace: else most changes of the header end
// at a wrong length.
std::vector<std::byte> WithTrueLength(std::span<const std::byte> file) {
  std::vector<std::byte> fixed(file.begin(), file.end());
  const auto brace = std::find(fixed.rbegin(), fixed.rend(), std::byte{'}'});
  const uint64_t length = static_cast<uint64_t>(std::max<std::ptrdiff_t>(0, fixed.rend() - brace - 8));
  std::memcpy(fixed.data(), &length, sizeof length);
  return fixed;
}

}  // namespace
}  // namespace qkv::test

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  const std::span<const std::byte> file = std::as_bytes(std::span(bytes, size));
  qkv::test::Try(file);
  if (size >= 8) qkv::test::Try(qkv::test::WithTrueLength(file));
  return 0;
}
