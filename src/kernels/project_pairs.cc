#include "kernels/project_pairs.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "kernels/pairs.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/project_pairs.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h.
#include "hwy/highway.h"

#if HWY_TARGET == HWY_AVX3
#include "kernels/pair_products-inl.h"

HWY_PUSH_ATTRIBUTES(HWY_TARGET_STR ",avx512bf16")
namespace qkv {
namespace HWY_NAMESPACE {
namespace {

constexpr int64_t kStep = kPairDepth * kPairPanelColumns;  // elements of a panel for 32 inputs: 4 KiB
// Steps of a piece: 32 KiB, which the first rows read from the second-level cache and the others from the
// nearest; or 64 KiB where there are no others.
constexpr int64_t kPieceSteps = 8, kLongPieceSteps = 16;

int64_t CeilDivide(int64_t a, int64_t b) { return (a + b - 1) / b; }

template <class Products>
void MultiplyRows(Products& products, const PanelProduct& rows, const Ahead& ahead, int64_t lines) {
  switch (lines) {
    case 0: return products.template MultiplyPanel<0>(rows, ahead);
    case 1: return products.template MultiplyPanel<1>(rows, ahead);
    case 2: return products.template MultiplyPanel<2>(rows, ahead);
    default: return products.template MultiplyPanel<4>(rows, ahead);
  }
}

// All rows times one piece, a few at a time, which share what is asked for: `lines` of each stream for every
// quarter of a step.
template <class Products>
void MultiplyPiece(Products& products, PanelProduct piece, Ahead ahead, int64_t lines) {
  const int64_t rows = piece.rows, groups = CeilDivide(rows, Products::kPanelRows),
                each = CeilDivide(rows, groups);
  for (int64_t row = 0; row < rows; row += each) {
    const int64_t now = CeilDivide(lines, CeilDivide(rows - row, each));
    piece.rows = std::min(each, rows - row);
    MultiplyRows(products, piece, ahead, now);
    ahead.Advance(now * piece.steps * 4);
    lines -= now;
    piece.a += each * piece.a_stride;
    piece.c += each * kPairPanelColumns;
  }
}

template <class Products>
void Multiply(const BFloat16* x, int64_t rows, int64_t steps, const BFloat16* packed, int64_t panels,
              float* sums) {
  Products products;
  // As even as they can be, since each asks for as much as it is itself.
  const int64_t most = rows <= Products::kPanelRows ? kLongPieceSteps : kPieceSteps;
  const int64_t each = CeilDivide(steps, CeilDivide(steps, most));
  for (int64_t k = 0; k < steps; k += each) {
    const int64_t now = std::min(each, steps - k);
    const Start start = k == 0 ? Start::kZero : Start::kAdd;
    for (int64_t p = 0; p < panels; ++p) {
      const BFloat16* piece = packed + (p * steps + k) * kStep;
      const BFloat16* next = p + 1 < panels ? piece + steps * kStep : packed + (k + now) * kStep;
      const bool last = p + 1 == panels && k + now == steps;
      MultiplyPiece(products,
                    {x + k * kPairDepth, steps * kPairDepth, piece, sums + p * rows * kPairPanelColumns, rows,
                     now, start},
                    Ahead(next, now * kStep * static_cast<int64_t>(sizeof(BFloat16))), last ? 0 : 4);
    }
  }
}

void RoundSums(const float* sums, const float* bias, int64_t count, BFloat16* y) {
  for (int64_t n = 0; n < count; n += 16) {
    const __mmask16 some = FirstOf16(count - n);
    __m512 values = _mm512_maskz_loadu_ps(some, sums + n);
    if (bias != nullptr) values = _mm512_add_ps(values, _mm512_maskz_loadu_ps(some, bias + n));
    StoreRounded(values, y + n, some);
  }
}

}  // namespace

PairPanelKernel TilePanels() { return {Multiply<TileProducts>, RoundSums}; }
PairPanelKernel DotPanels() { return {Multiply<DotProducts>, RoundSums}; }

}  // namespace HWY_NAMESPACE
}  // namespace qkv
HWY_POP_ATTRIBUTES
#endif  // AVX-512

#if HWY_ONCE
namespace qkv {

#if HWY_TARGETS & HWY_AVX3
PairPanelKernel PairPanelKernelFor(Isa isa) {
  return isa == Isa::kAmx ? N_AVX3::TilePanels() : N_AVX3::DotPanels();
}
#else
PairPanelKernel PairPanelKernelFor(Isa) { return {}; }
#endif

}  // namespace qkv
#endif
