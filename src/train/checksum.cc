#include "train/checksum.h"

#include <zlib.h>

namespace qkv::train {

Checksum& Checksum::Add(std::span<const std::byte> bytes) {
  value_ = static_cast<uint32_t>(crc32_z(value_, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size()));
  return *this;
}

}  // namespace qkv::train
