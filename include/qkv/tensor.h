// Views of tensors: a pointer, an element type, a shape and strides. Views own nothing and are cheap to copy.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>

#include "qkv/export.h"

namespace qkv {

enum class DType : uint8_t { kF64, kF32, kBF16, kF16, kI64, kI32, kI8, kU8, kBool };

QKV_API size_t SizeOf(DType dtype);           // bytes of one element
QKV_API const char* NameOf(DType dtype);      // "float32", "bfloat16", ...

// 16-bit floating point as raw bits; conversions round to nearest even and keep NaN and infinities.
struct BFloat16 { uint16_t bits; };
struct Float16 { uint16_t bits; };

template <class T> struct DTypeOf;
template <> struct DTypeOf<double> { static constexpr DType value = DType::kF64; };
template <> struct DTypeOf<float> { static constexpr DType value = DType::kF32; };
template <> struct DTypeOf<BFloat16> { static constexpr DType value = DType::kBF16; };
template <> struct DTypeOf<Float16> { static constexpr DType value = DType::kF16; };
template <> struct DTypeOf<int64_t> { static constexpr DType value = DType::kI64; };
template <> struct DTypeOf<int32_t> { static constexpr DType value = DType::kI32; };
template <> struct DTypeOf<int8_t> { static constexpr DType value = DType::kI8; };
template <> struct DTypeOf<uint8_t> { static constexpr DType value = DType::kU8; };
template <> struct DTypeOf<bool> { static constexpr DType value = DType::kBool; };

inline constexpr int kMaxRank = 4;

// Sizes per axis, outermost first.
struct QKV_API Shape {
  int rank = 0;
  std::array<int64_t, kMaxRank> size{};

  Shape() = default;
  Shape(std::initializer_list<int64_t> sizes);  // at most kMaxRank of them
  int64_t operator[](int axis) const { return size[static_cast<size_t>(axis)]; }
  bool operator==(const Shape& other) const;
  int64_t elements() const;   // the product; Error{kInvalidArgument} when it does not fit in 63 bits
};

QKV_API std::string ToString(const Shape& shape);  // "(1, 12, 15, 64)"

// A read-only tensor. Strides are in elements and may be zero or negative; `data` points at index (0, ..., 0).
struct QKV_API ConstTensor {
  const void* data = nullptr;
  DType dtype = DType::kF32;
  Shape shape;
  std::array<int64_t, kMaxRank> stride{};

  ConstTensor() = default;
  ConstTensor(const void* first, DType type, Shape sizes);  // contiguous, last axis innermost
  ConstTensor(const void* first, DType type, Shape sizes, std::array<int64_t, kMaxRank> steps);
  template <class T> ConstTensor(const T* first, Shape sizes) : ConstTensor(first, DTypeOf<T>::value, sizes) {}

  int rank() const { return shape.rank; }
  int64_t size(int axis) const { return shape[axis]; }
};

// A tensor that is written. Its strides may not make two indices share an element.
struct QKV_API Tensor : ConstTensor {
  Tensor() = default;
  Tensor(void* first, DType type, Shape sizes) : ConstTensor(first, type, sizes) {}
  Tensor(void* first, DType type, Shape sizes, std::array<int64_t, kMaxRank> steps)
      : ConstTensor(first, type, sizes, steps) {}
  template <class T> Tensor(T* first, Shape sizes) : ConstTensor(first, DTypeOf<T>::value, sizes) {}

  void* mutable_data() const { return const_cast<void*>(data); }
};

}  // namespace qkv
