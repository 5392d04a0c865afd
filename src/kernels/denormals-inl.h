// How a thread's vector instructions take denormal numbers.

#if defined(QKV_KERNELS_DENORMALS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef QKV_KERNELS_DENORMALS_INL_H_
#undef QKV_KERNELS_DENORMALS_INL_H_
#else
#define QKV_KERNELS_DENORMALS_INL_H_
#endif

#include <immintrin.h>

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace qkv {
namespace HWY_NAMESPACE {

// While it lives, they are zeros, as operands and as results.
class DenormalsAreZeros {
 public:
  DenormalsAreZeros() : before_(_mm_getcsr()) { _mm_setcsr(before_ | kFlushResults | kZeroOperands); }
  ~DenormalsAreZeros() { _mm_setcsr(before_); }
  DenormalsAreZeros(const DenormalsAreZeros&) = delete;
  DenormalsAreZeros& operator=(const DenormalsAreZeros&) = delete;

 private:
  static constexpr unsigned kFlushResults = 1u << 15, kZeroOperands = 1u << 6;
  unsigned before_;
};

}  // namespace HWY_NAMESPACE
}  // namespace qkv
HWY_AFTER_NAMESPACE();

#endif  // include guard
