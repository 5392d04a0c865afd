#include "formats/safetensors_writer.h"

#include <cstring>

#include <nlohmann/json.hpp>

#include "qkv/error.h"
#include "runtime/write_file.h"

namespace qkv {
namespace {

using nlohmann::ordered_json;

const char* StoredName(DType dtype) {
  switch (dtype) {
    case DType::kF64: return "F64";
    case DType::kF32: return "F32";
    case DType::kBF16: return "BF16";
    case DType::kF16: return "F16";
    case DType::kI64: return "I64";
    case DType::kI32: return "I32";
    case DType::kI8: return "I8";
    case DType::kU8: return "U8";
    case DType::kBool: return "BOOL";
  }
  return "?";
}

[[noreturn]] void Fail(const std::string& reason, const std::string& name, std::string expected = {},
                       std::string got = {}) {
  throw Error(ErrorCode::kInvalidArgument, reason, "tensor " + name, std::move(expected), std::move(got));
}

void CheckSize(const TensorToWrite& tensor) {
  size_t bytes = SizeOf(tensor.dtype);
  for (const int64_t size : tensor.shape) {
    if (size < 0 || __builtin_mul_overflow(bytes, static_cast<size_t>(size), &bytes)) Fail("bad shape", tensor.name);
  }
  if (bytes != tensor.data.size()) {
    Fail("wrong size of data", tensor.name, std::to_string(bytes) + " bytes", std::to_string(tensor.data.size()));
  }
}

std::string Header(std::span<const TensorToWrite> tensors, const std::map<std::string, std::string>& metadata) {
  ordered_json header = ordered_json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  size_t offset = 0;
  for (const TensorToWrite& tensor : tensors) {
    CheckSize(tensor);
    if (header.contains(tensor.name)) Fail("two tensors have this name", tensor.name);
    header[tensor.name] = {{"dtype", StoredName(tensor.dtype)},
                           {"shape", tensor.shape},
                           {"data_offsets", {offset, offset + tensor.data.size()}}};
    offset += tensor.data.size();
  }
  std::string text = header.dump();
  text.append((8 - text.size() % 8) % 8, ' ');  // so that the data begins at a multiple of 8
  return text;
}

}  // namespace

void WriteSafetensors(const std::filesystem::path& file, std::span<const TensorToWrite> tensors,
                      const std::map<std::string, std::string>& metadata) {
  const std::string header = Header(tensors, metadata);
  const uint64_t length = header.size();  // little-endian, as everything in the file
  char bytes[sizeof(length)];
  std::memcpy(bytes, &length, sizeof(length));
  FileWriter writer(file);
  writer.Write({bytes, sizeof(bytes)});
  writer.Write(header);
  for (const TensorToWrite& tensor : tensors) writer.Write(tensor.data);
  writer.Commit();
}

}  // namespace qkv
