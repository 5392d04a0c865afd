#include "formats/file_kind.h"

#include <algorithm>
#include <string_view>
#include <system_error>

namespace qkv {

FileKind DetectKind(std::span<const std::byte> file) {
  const std::string_view bytes(reinterpret_cast<const char*>(file.data()), file.size());
  // As the length of a header it would be over the limit of 100 MB; and the ninth byte counts tensors.
  if (bytes.starts_with("GGUF")) return FileKind::kGguf;
  // Before the others, since a header's length may happen to spell their magic.
  if (bytes.size() > 8 && bytes[8] == '{') return FileKind::kSafetensors;
  if (bytes.starts_with("PK\x03\x04")) return FileKind::kZip;
  // Pickle: its first opcode sets the protocol, 2 to 5.
  if (bytes.size() >= 2 && bytes[0] == '\x80' && bytes[1] >= 2 && bytes[1] <= 5) return FileKind::kPickle;
  return FileKind::kUnknown;
}

const char* Describe(FileKind kind) {
  switch (kind) {
    case FileKind::kSafetensors: return "a safetensors file";
    case FileKind::kGguf: return "a GGUF file";
    case FileKind::kZip: return "a zip archive (a PyTorch pickle such as pytorch_model.bin, or npz)";
    case FileKind::kPickle: return "a Python pickle (an old PyTorch file)";
    case FileKind::kUnknown: break;
  }
  return "a file of unknown kind";
}

std::vector<std::filesystem::path> GgufFilesIn(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> paths;
  std::error_code ignored;
  for (const auto& file : std::filesystem::directory_iterator(folder, ignored)) {
    if (file.path().extension() == ".safetensors") return {};
    if (file.path().extension() == ".gguf") paths.push_back(file.path());
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

}  // namespace qkv
