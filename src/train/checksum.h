// CRC-32 of data in pieces (zlib's).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace qkv::train {

class Checksum {
 public:
  Checksum& Add(std::span<const std::byte> bytes);
  uint32_t value() const { return value_; }

 private:
  uint32_t value_ = 0;
};

}  // namespace qkv::train
