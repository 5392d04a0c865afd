// Puts GGUF files together, wrong ones too.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

#include "formats/gguf_metadata.h"

namespace qkv::test {

template <class T>
std::string Raw(T value) {
  std::string bytes(sizeof value, '\0');
  std::memcpy(bytes.data(), &value, sizeof value);
  return bytes;
}

inline std::string Counted(std::string_view text) { return Raw<uint64_t>(text.size()).append(text); }

inline std::string Key(std::string_view key, GgufKind kind, std::string_view value) {
  return (Counted(key) + Raw(kind)).append(value);
}

inline std::string Array(GgufKind element_kind, uint64_t count, std::string_view elements) {
  return (Raw(element_kind) + Raw(count)).append(elements);
}

// The format's numbers of some types.
inline constexpr uint32_t kF32Number = 0, kQ4_0Number = 2, kQ4_KNumber = 12;

// Sizes are innermost first, as in the file.
inline std::string TensorInfo(std::string_view name, const std::vector<uint64_t>& sizes, uint32_t type,
                              uint64_t offset) {
  std::string bytes = Counted(name) + Raw(static_cast<uint32_t>(sizes.size()));
  for (const uint64_t size : sizes) bytes += Raw(size);
  return bytes + Raw(type) + Raw(offset);
}

struct GgufParts {
  uint32_t version = 3;
  uint64_t tensors = 0, keys = 0;  // as stated
  std::string infos = {};          // keys, then tensors
  std::string data = {};
  size_t alignment = 32;
};

inline std::string GgufBytes(const GgufParts& parts) {
  std::string bytes = "GGUF" + Raw(parts.version) + Raw(parts.tensors) + Raw(parts.keys) + parts.infos;
  if (parts.data.empty()) return bytes;
  bytes.resize((bytes.size() + parts.alignment - 1) / parts.alignment * parts.alignment);
  return bytes + parts.data;
}

}  // namespace qkv::test
