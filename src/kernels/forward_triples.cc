// The fused forward for float32 on AMX's tiles of bfloat16 (kernels/pair_forward-inl.h, kernels/triples.h).
#include <cstdint>

#include "kernels/triples.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/forward_triples.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h.
#include "hwy/highway.h"

#if HWY_TARGET == HWY_AVX3
#include "kernels/pair_forward-inl.h"

HWY_PUSH_ATTRIBUTES(HWY_TARGET_STR ",avx512bf16")
namespace qkv {
namespace HWY_NAMESPACE {
namespace {

ScratchSizes SizesOf(int64_t rows, const Layout& layout) noexcept {
  return {PaddedWidth(rows, kPairGroupRows), QueryFloats<kTripleParts>(rows, layout), Parts<kTripleParts>::kFloats,
          OutStride(layout), 0};
}

}  // namespace

ForwardKernels TripleTable() {
  return {&SizesOf, &Begin<kTripleParts>,  &BeginSplit,   &AddTile<TripleProducts>, nullptr,
          &Merge,   &Finish<kTripleParts>, kPairGroupRows};
}

}  // namespace HWY_NAMESPACE
}  // namespace qkv
HWY_POP_ATTRIBUTES
#endif  // AVX-512

#if HWY_ONCE
namespace qkv {
#if HWY_TARGETS & HWY_AVX3
bool HasTripleKernels(Isa isa) { return isa == Isa::kAmx; }
ForwardKernels TripleForwardKernels() { return N_AVX3::TripleTable(); }
#else
bool HasTripleKernels(Isa) { return false; }
ForwardKernels TripleForwardKernels() { return {}; }
#endif
}  // namespace qkv
#endif
