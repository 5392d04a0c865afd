// What a file is, by its first bytes: so that a file of another kind is refused by name.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <vector>

namespace qkv {

enum class FileKind { kSafetensors, kGguf, kZip, kPickle, kUnknown };

FileKind DetectKind(std::span<const std::byte> file);
const char* Describe(FileKind kind);  // "a GGUF file", ...

// A folder's GGUF files, where it is one of those rather than of safetensors; sorted.
std::vector<std::filesystem::path> GgufFilesIn(const std::filesystem::path& folder);

}  // namespace qkv
