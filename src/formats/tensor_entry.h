// A named tensor of a model file, where it lies in the mapped file: what all formats have in common.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "qkv/tensor.h"
#include "runtime/aligned.h"

namespace qkv {

// Element types as the formats name them; more than there are qkv::DTypes. Those from kQ8_0 on are quantised in
// blocks, whose layout src/kernels/quantised.h knows.
enum class StoredType {
  kF64,
  kF32,
  kF16,
  kBF16,
  kF8E4M3,
  kF8E5M2,
  kI64,
  kI32,
  kI16,
  kI8,
  kU64,
  kU32,
  kU16,
  kU8,
  kBool,
  kQ8_0,
  kQ4_0,
  kQ4_1,
  kQ5_0,
  kQ5_1,
  kQ4_K,
  kQ5_K,
  kQ6_K
};

const char* NameOf(StoredType type);  // "F32", "F8_E4M3", "Q4_K", ...

// Elements are stored in blocks: of one where the type is not quantised. A row is a whole number of blocks.
struct StoredBlock {
  int64_t elements;
  size_t bytes;
};
StoredBlock BlockOf(StoredType type);
inline bool IsQuantised(StoredType type) { return BlockOf(type).elements > 1; }

// Nothing where it does not fit in 64 bits, or where `elements` is no whole number of blocks.
std::optional<uint64_t> StoredBytes(StoredType type, int64_t elements);

struct TensorEntry {
  std::string name;
  StoredType type = StoredType::kF32;
  std::vector<int64_t> shape;  // outermost first; empty for a scalar
  int64_t elements = 0;        // the product of the shape
  std::span<const std::byte>
      bytes;  // in the file: contiguous, little-endian, in safetensors aligned to nothing
};

std::string ShapeText(std::span<const int64_t> shape);  // "(30522, 384)", "()"

// The product of the sizes, 0 where one is 0; nothing where it does not fit in 63 bits. Sizes are not negative.
std::optional<int64_t> ElementsOf(std::span<const int64_t> shape);

// The tensor where it lies: nothing when it is misaligned for its type, has more than kMaxRank axes or a type
// that is no DType. BOOL comes as uint8, since a file may hold bytes other than 0 and 1.
std::optional<ConstTensor> DirectView(const TensorEntry& entry);

// Copies F64, F32, F16 or BF16 elements, aligned or not, to as many floats (entry.elements).
// Error{kFile} naming `where` for another type, kInvalidArgument for another number of floats.
void CopyFloats(const TensorEntry& entry, std::span<float> to, const std::string& where);

// A tensor as floats: where it lies in the file when it can be read there, else converted. Outlived by its
// file.
struct Floats {
  std::span<const float> values;   // row-major
  AlignedBuffer<float> converted;  // what `values` points to when the file itself would not do
};

// Error{kFile} naming `where` (its file) and the tensor for another shape.
void RequireShape(const TensorEntry& entry, std::span<const int64_t> shape, const std::string& where);

// A tensor that must have this shape and be F64, F32, F16 or BF16.
// Error{kFile} naming `where` (its file) and the tensor otherwise.
Floats FloatsOf(const TensorEntry& entry, std::span<const int64_t> shape, const std::string& where);

}  // namespace qkv
