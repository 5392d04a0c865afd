// What a file is, by its first bytes: so that a file of another kind is refused by name.
#pragma once

#include <cstddef>
#include <span>

namespace qkv {

enum class FileKind { kSafetensors, kGguf, kZip, kPickle, kUnknown };

FileKind DetectKind(std::span<const std::byte> file);
const char* Describe(FileKind kind);  // "a GGUF file", ...

}  // namespace qkv
