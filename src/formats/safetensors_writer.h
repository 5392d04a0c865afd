// Writing .safetensors files (https://github.com/huggingface/safetensors#format).
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "qkv/tensor.h"

namespace qkv {

// A tensor to write: contiguous, outermost axis first.
struct TensorToWrite {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;
  std::span<const std::byte> data;
};

// Whole or not at all (runtime/write_file.h); tensors lie in the order given, from a multiple of 8 bytes on.
// Error{kIo} naming the file; kInvalidArgument: a name twice, data of another size than the shape says.
void WriteSafetensors(const std::filesystem::path& file, std::span<const TensorToWrite> tensors,
                      const std::map<std::string, std::string>& metadata = {});

}  // namespace qkv
