// Short calls of the operator for tests with known answers.
#pragma once

#include <cmath>
#include <cstdint>
#include <functional>
#include <vector>

#include "qkv/attention.h"
#include "runtime/cpu.h"
#include "runtime/half.h"
#include "runtime/threads.h"
#include "support/rng.h"

namespace qkv::test {

template <class T>
T FromFloat(float value) {
  if constexpr (std::is_same_v<T, BFloat16>)
    return ToBFloat16(value);
  else if constexpr (std::is_same_v<T, Float16>)
    return ToFloat16(value);
  else
    return static_cast<T>(value);
}

// A contiguous tensor that owns its elements.
template <class T>
struct Array {
  Shape shape;
  std::vector<T> values;

  explicit Array(Shape sizes, float value = 0)
      : shape(sizes), values(static_cast<size_t>(sizes.elements()), FromFloat<T>(value)) {}
  Array(Shape sizes, const std::function<double(int64_t)>& value_at) : Array(sizes) {
    for (size_t i = 0; i < values.size(); ++i)
      values[i] = FromFloat<T>(static_cast<float>(value_at(static_cast<int64_t>(i))));
  }
  static Array Random(Shape sizes, uint64_t seed, double size = 1) {
    Rng rng(seed);
    return Array(sizes, [&](int64_t) { return size * rng.Symmetric(); });
  }
  ConstTensor in() const { return {values.data(), DTypeOf<T>::value, shape}; }
  Tensor out() { return {values.data(), DTypeOf<T>::value, shape}; }
  T& operator[](int64_t i) { return values[static_cast<size_t>(i)]; }
  const T& operator[](int64_t i) const { return values[static_cast<size_t>(i)]; }
};

// std::vector<bool> has no elements to point at.
struct Mask {
  Shape shape;
  std::vector<uint8_t> values;
  Mask(Shape sizes, std::vector<uint8_t> may_attend) : shape(sizes), values(std::move(may_attend)) {}
  ConstTensor in() const { return {values.data(), DType::kBool, shape}; }
};

template <class T>
struct Answer {
  Array<T> out;
  Array<float> lse;
};

// q (B, Hq, Tq, D), k and v as qkv/attention.h says; out and lse begin as 7, so that what is not written shows.
template <class T, class K>
Answer<T> Attend(const Array<T>& q, const Array<K>& k, const Array<K>& v,
                 const AttentionOptions& options = {}) {
  const Shape& s = q.shape;
  const bool packed = s.rank == 3;
  Answer<T> answer{Array<T>(packed ? Shape{s[0], s[1], v.shape[2]} : Shape{s[0], s[1], s[2], v.shape[3]}, 7),
                   Array<float>(packed ? Shape{s[1], s[0]} : Shape{s[0], s[1], s[2]}, 7)};
  const Tensor lse = answer.lse.out();
  Attention(q.in(), k.in(), v.in(), options, answer.out.out(), &lse);
  return answer;
}

// Runs body on each instruction set of this machine; the best one is chosen again afterwards.
template <class Body>
void OnEveryIsa(const Body& body) {
  for (Isa isa : SupportedIsas()) {
    ForceIsa(isa);
    body(isa);
  }
}

}  // namespace qkv::test
