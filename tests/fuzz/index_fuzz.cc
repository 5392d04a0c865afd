// Any bytes as a model.safetensors.index.json: refused with an Error, or a map of tensors to files beside it.
#include <filesystem>
#include <string_view>

#include "formats/tensor_files.h"
#include "fuzz.h"
#include "qkv/error.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  using namespace qkv;
  const std::string_view text(reinterpret_cast<const char*>(bytes), size);
  try {
    for (const auto& [tensor, shard] : ParseShardIndex(text, "fuzz")) {
      const std::filesystem::path beside = std::filesystem::path("folder") / shard;
      test::Check(!shard.empty() && beside.lexically_normal() == beside && beside.parent_path() == "folder",
                  "a shard lies beside its index");
      test::Check(shard.find('\0') == std::string::npos, "a shard's name has no NUL");
    }
  } catch (const Error& error) {
    test::Check(error.code() == ErrorCode::kFile, "a bad file is a file error");
    test::Check(std::string_view(error.what()).find('\n') == std::string_view::npos, "an error is one line");
  }
  return 0;
}
