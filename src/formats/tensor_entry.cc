#include "formats/tensor_entry.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "qkv/error.h"
#include "runtime/half.h"
#include "runtime/printable.h"

namespace qkv {
namespace {

static_assert(std::endian::native == std::endian::little, "files are read as they lie in memory");

struct StoredTypeInfo {
  const char* name;
  StoredBlock block;
};
// In the order of StoredType.
constexpr std::array<StoredTypeInfo, 23> kStoredTypes{
    {{"F64", {1, 8}},      {"F32", {1, 4}},      {"F16", {1, 2}},     {"BF16", {1, 2}},   {"F8_E4M3", {1, 1}},
     {"F8_E5M2", {1, 1}},  {"I64", {1, 8}},      {"I32", {1, 4}},     {"I16", {1, 2}},    {"I8", {1, 1}},
     {"U64", {1, 8}},      {"U32", {1, 4}},      {"U16", {1, 2}},     {"U8", {1, 1}},     {"BOOL", {1, 1}},
     {"Q8_0", {32, 34}},   {"Q4_0", {32, 18}},   {"Q4_1", {32, 20}},  {"Q5_0", {32, 22}}, {"Q5_1", {32, 24}},
     {"Q4_K", {256, 144}}, {"Q5_K", {256, 176}}, {"Q6_K", {256, 210}}}};
static_assert(static_cast<size_t>(StoredType::kQ6_K) == kStoredTypes.size() - 1);

const StoredTypeInfo& InfoOf(StoredType type) { return kStoredTypes[static_cast<size_t>(type)]; }

float ToFloat(float value) { return value; }
float ToFloat(double value) { return static_cast<float>(value); }

template <class T>
void Convert(std::span<const std::byte> from, std::span<float> to) {
  for (size_t i = 0; i < to.size(); ++i) {
    T value;
    std::memcpy(&value, from.data() + i * sizeof(T), sizeof(T));
    to[i] = ToFloat(value);
  }
}

std::optional<DType> DTypeFor(StoredType type) {
  switch (type) {
    case StoredType::kF64: return DType::kF64;
    case StoredType::kF32: return DType::kF32;
    case StoredType::kF16: return DType::kF16;
    case StoredType::kBF16: return DType::kBF16;
    case StoredType::kI64: return DType::kI64;
    case StoredType::kI32: return DType::kI32;
    case StoredType::kI8: return DType::kI8;
    case StoredType::kU8:
    case StoredType::kBool: return DType::kU8;
    default: return std::nullopt;
  }
}

std::string Named(const TensorEntry& entry) { return "tensor " + Printable(entry.name); }

}  // namespace

const char* NameOf(StoredType type) { return InfoOf(type).name; }
StoredBlock BlockOf(StoredType type) { return InfoOf(type).block; }

std::optional<uint64_t> StoredBytes(StoredType type, int64_t elements) {
  const StoredBlock block = BlockOf(type);
  uint64_t bytes = 0;
  const bool whole = elements % block.elements == 0;
  if (!whole || __builtin_mul_overflow(static_cast<uint64_t>(elements / block.elements), block.bytes, &bytes)) {
    return std::nullopt;
  }
  return bytes;
}

std::string ShapeText(std::span<const int64_t> shape) {
  std::string text = "(";
  for (int64_t size : shape) text += (text.size() > 1 ? ", " : "") + std::to_string(size);
  return text + ")";
}

std::optional<int64_t> ElementsOf(std::span<const int64_t> shape) {
  if (std::find(shape.begin(), shape.end(), 0) != shape.end()) return 0;
  int64_t product = 1;
  for (int64_t size : shape) {
    if (__builtin_mul_overflow(product, size, &product)) return std::nullopt;
  }
  return product;
}

std::optional<ConstTensor> DirectView(const TensorEntry& entry) {
  const std::optional<DType> dtype = DTypeFor(entry.type);
  if (!dtype || entry.shape.size() > static_cast<size_t>(kMaxRank)) return std::nullopt;
  if (std::bit_cast<uintptr_t>(entry.bytes.data()) % SizeOf(*dtype) != 0) return std::nullopt;
  Shape shape;
  for (int64_t size : entry.shape) shape.size[static_cast<size_t>(shape.rank++)] = size;
  return ConstTensor(entry.bytes.data(), *dtype, shape);
}

void CopyFloats(const TensorEntry& entry, std::span<float> to, const std::string& where) {
  if (to.size() != static_cast<size_t>(entry.elements)) {
    throw Error(ErrorCode::kInvalidArgument, "wrong room for " + Named(entry), where,
                std::to_string(entry.elements) + " floats", std::to_string(to.size()));
  }
  switch (entry.type) {
    case StoredType::kF64: return Convert<double>(entry.bytes, to);
    case StoredType::kF32: return Convert<float>(entry.bytes, to);
    case StoredType::kF16: return Convert<Float16>(entry.bytes, to);
    case StoredType::kBF16: return Convert<BFloat16>(entry.bytes, to);
    default:
      throw Error(ErrorCode::kFile, Named(entry) + " has the wrong type", where, "F64, F32, F16 or BF16",
                  NameOf(entry.type));
  }
}

void RequireShape(const TensorEntry& entry, std::span<const int64_t> shape, const std::string& where) {
  if (!std::equal(shape.begin(), shape.end(), entry.shape.begin(), entry.shape.end())) {
    throw Error(ErrorCode::kFile, Named(entry) + " has the wrong shape", where, ShapeText(shape),
                ShapeText(entry.shape));
  }
}

Floats FloatsOf(const TensorEntry& entry, std::span<const int64_t> shape, const std::string& where) {
  RequireShape(entry, shape, where);
  Floats floats;
  const std::optional<ConstTensor> view = DirectView(entry);
  if (view && view->dtype == DType::kF32) {
    floats.values = {static_cast<const float*>(view->data), static_cast<size_t>(entry.elements)};
  } else {
    floats.converted = AlignedBuffer<float>(entry.elements);
    const std::span<float> room(floats.converted.data(), static_cast<size_t>(entry.elements));
    CopyFloats(entry, room, where);
    floats.values = room;
  }
  return floats;
}

}  // namespace qkv
