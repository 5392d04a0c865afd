// All 65,536 codes of both 16-bit types on every instruction set, as the scalar conversions have them.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <numeric>
#include <vector>

#include "runtime/half.h"
#include "support/guard.h"
#include "vector_math.h"

namespace qkv::test {
namespace {

template <class T>
void ExpectEveryCode(Isa isa, void (*convert)(const T*, int64_t, float*)) {
  GuardedBuffer<T> codes(65536);
  GuardedBuffer<float> values(65536);
  for (int64_t i = 0; i < 65536; ++i) codes[i].bits = static_cast<uint16_t>(i);
  convert(codes.data(), codes.size(), values.data());
  int64_t wrong = 0;
  for (int64_t i = 0; i < 65536; ++i) {
    const float expected = ToFloat(codes[i]);
    const bool same = std::isnan(expected)
                          ? std::isnan(values[i])
                          : std::bit_cast<uint32_t>(expected) == std::bit_cast<uint32_t>(values[i]);
    wrong += !same;
  }
  EXPECT_EQ(wrong, 0) << NameOf(isa) << " " << NameOf(DTypeOf<T>::value);
}

TEST(Half, EveryCodeOnEveryInstructionSet) {
  for (Isa isa : SupportedIsas()) {
    ExpectEveryCode<BFloat16>(isa, VectorMathFor(isa).from_bfloat16);
    ExpectEveryCode<Float16>(isa, VectorMathFor(isa).from_float16);
  }
}

TEST(Half, AnyCountIsReadToItsEndAndNoFurther) {
  for (Isa isa : SupportedIsas()) {
    for (int64_t count = 0; count <= 2 * VectorMathFor(isa).lanes + 1; ++count) {
      for (Edge edge : {Edge::kEnd, Edge::kBegin}) {
        GuardedBuffer<Float16> codes(count, edge);
        GuardedBuffer<float> values(count, edge);
        for (int64_t i = 0; i < count; ++i) codes[i] = ToFloat16(static_cast<float>(i));
        VectorMathFor(isa).from_float16(codes.data(), count, values.data());
        for (int64_t i = 0; i < count; ++i) EXPECT_EQ(values[i], static_cast<float>(i));
      }
    }
  }
}

}  // namespace
}  // namespace qkv::test
