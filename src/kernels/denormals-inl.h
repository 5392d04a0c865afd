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

// While it lives, they are zeros, as operands and as results; or numbers, as IEEE 754 has them.
template <unsigned kZeros>
class DenormalMode {
 public:
  DenormalMode() : before_(_mm_getcsr()) { _mm_setcsr((before_ & ~kFlushes) | kZeros); }
  ~DenormalMode() { _mm_setcsr(before_); }
  DenormalMode(const DenormalMode&) = delete;
  DenormalMode& operator=(const DenormalMode&) = delete;

  static constexpr unsigned kFlushes = 1u << 15 | 1u << 6;  // results, operands

 private:
  unsigned before_;
};
using DenormalsAreZeros = DenormalMode<1u << 15 | 1u << 6>;
using DenormalsAreNumbers = DenormalMode<0>;

}  // namespace HWY_NAMESPACE
}  // namespace qkv
HWY_AFTER_NAMESPACE();

#endif  // include guard
