// Philox4x32-10 (runtime/random.h) on as many counters as there are lanes.

#if defined(QKV_KERNELS_PHILOX_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef QKV_KERNELS_PHILOX_INL_H_
#undef QKV_KERNELS_PHILOX_INL_H_
#else
#define QKV_KERNELS_PHILOX_INL_H_
#endif

#include <cstdint>

#include "hwy/highway.h"
#include "runtime/random.h"

HWY_BEFORE_NAMESPACE();
namespace qkv {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using BitsTag = hn::ScalableTag<uint32_t>;
using BitsVec = hn::Vec<BitsTag>;

struct PhiloxVectors {
  BitsVec a, b, c, d;  // words 0 to 3 of the counters, then of the results
};

// The upper 32 bits of the products; those of odd lanes are made in even ones.
HWY_INLINE BitsVec MultiplyHigh(BitsVec x, BitsVec factor) {
  const BitsTag tag;
#if HWY_TARGET == HWY_SCALAR
  const uint64_t product = uint64_t{hn::GetLane(x)} * hn::GetLane(factor);
  return hn::Set(tag, static_cast<uint32_t>(product >> 32));
#else
  const BitsVec even = hn::BitCast(tag, hn::MulEven(x, factor));
  const BitsVec odd = hn::BitCast(tag, hn::MulEven(hn::DupOdd(x), factor));
  return hn::OddEven(odd, hn::DupOdd(even));
#endif
}

HWY_INLINE void Philox(PhiloxVectors& words, PhiloxKey key) {
  const BitsTag tag;
  const BitsVec factor0 = hn::Set(tag, 0xD2511F53u), factor1 = hn::Set(tag, 0xCD9E8D57u);
  for (int round = 0; round < 10; ++round) {
    const BitsVec high0 = MultiplyHigh(words.a, factor0), low0 = hn::Mul(words.a, factor0);
    const BitsVec high1 = MultiplyHigh(words.c, factor1), low1 = hn::Mul(words.c, factor1);
    words.a = hn::Xor(hn::Xor(high1, words.b), hn::Set(tag, key[0]));
    words.c = hn::Xor(hn::Xor(high0, words.d), hn::Set(tag, key[1]));
    words.b = low1;
    words.d = low0;
    key = {key[0] + 0x9E3779B9u, key[1] + 0xBB67AE85u};
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace qkv
HWY_AFTER_NAMESPACE();

#endif  // include guard
