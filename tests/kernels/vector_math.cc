#include "vector_math.h"

#include <algorithm>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "vector_math.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h.
#include "hwy/highway.h"
#include "kernels/convert-inl.h"
#include "kernels/math-inl.h"
#include "kernels/multiply-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qkv {
namespace HWY_NAMESPACE {
namespace {

// In vectors; the last ones are padded.
template <class Function>
HWY_INLINE void OnVectors(const float* x, int64_t count, float* y, const Function& function) {
  const F32 tag;
  HWY_ALIGN float buffer[HWY_MAX_BYTES / sizeof(float)] = {};
  for (int64_t i = 0; i < count; i += Lanes()) {
    const int64_t n = std::min(Lanes(), count - i);
    std::copy_n(x + i, n, buffer);
    hn::StoreU(function(hn::LoadU(tag, buffer)), tag, buffer);
    std::copy_n(buffer, n, y + i);
  }
}

void Exp2OfAll(const float* x, int64_t count, float* y) {
  OnVectors(x, count, y, [](VecF32 v) HWY_ATTR { return Exp2(F32(), v); });
}
void TanhOfAll(const float* x, int64_t count, float* y) {
  OnVectors(x, count, y, [](VecF32 v) HWY_ATTR { return Tanh(F32(), v); });
}
void RowExpOfAll(const float* x, int64_t count, float base, float* y) {
  const RowExp exp(base);
  OnVectors(x, count, y, [&](VecF32 v) HWY_ATTR { return exp(F32(), v); });
}
void FromBFloat16(const BFloat16* x, int64_t count, float* y) { ConvertToFloat(x, count, y); }
void FromFloat16(const Float16* x, int64_t count, float* y) { ConvertToFloat(x, count, y); }

void MultiplyAll(int64_t rows, int64_t columns, int64_t depth, const float* a, const float* b, float* c,
                 int64_t ldc, int64_t rows_step, int64_t depth_step) {
  for (int64_t k = 0; k < depth; k += depth_step) {
    for (int64_t r = 0; r < rows; r += rows_step) {
      MultiplyPanel(std::min(rows_step, rows - r), columns, std::min(depth_step, depth - k), a + r * depth + k,
                    depth, b + k * PanelWidth(), PanelWidth(), c + r * ldc, ldc,
                    k == 0 ? Start::kZero : Start::kAdd);
    }
  }
}

}  // namespace

test::VectorMath VectorMathTable() {
  return {&Exp2OfAll,   &TanhOfAll, &RowExpOfAll, &FromBFloat16, &FromFloat16,
          &MultiplyAll, Lanes(),    PanelWidth(), kTileRows};
}

}  // namespace HWY_NAMESPACE
}  // namespace qkv
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "kernels/targets.h"
namespace qkv {
namespace {
test::VectorMath Pick(Isa isa) { QKV_PICK_TABLE(isa, VectorMathTable()) }
}  // namespace
namespace test {
VectorMath VectorMathFor(Isa isa) { return Pick(isa); }
}  // namespace test
}  // namespace qkv
#endif
