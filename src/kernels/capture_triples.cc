// The second pass for float32 on AMX's tiles of bfloat16: the forward pass's scores again (kernels/triples.h).
#include <algorithm>
#include <cstdint>

#include "kernels/capture.h"
#include "kernels/triples.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/capture_triples.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h.
#include "hwy/highway.h"

#if HWY_TARGET == HWY_AVX3
#include "kernels/capture-inl.h"
#include "kernels/pair_forward-inl.h"

HWY_PUSH_ATTRIBUTES(HWY_TARGET_STR ",avx512bf16")
namespace qkv {
namespace HWY_NAMESPACE {
namespace {

ScratchSizes SizesOf(int64_t rows, const Layout& layout) noexcept {
  return {0, QueryFloats<kTripleParts>(rows, layout), PaddedWidth(rows, kPairGroupRows) * kScoreStride, 0, 0};
}

void Begin(const Block& block, Scratch& scratch) noexcept {
  const PhaseTimer timer(Phase::kRows);
  PackQueries<kTripleParts>(block, reinterpret_cast<BFloat16*>(scratch.queries()));
}

// Of the keys that a group of rows sees, in whole pairs of pair tiles.
void MultiplyTile(const Block& block, const KeyTile& tile, Scratch& scratch) {
  const TripleProducts products;
  const auto* queries = reinterpret_cast<const BFloat16*>(scratch.queries());
  for (int64_t row = 0; row < block.count; row += kPairGroupRows) {
    const int64_t rows = std::min(kPairGroupRows, block.count - row);
    const Range seen = VisibleToAny(block.rows + row, rows, tile.first);
    for (int64_t key = seen.first / kColumn * kColumn; key < seen.last; key += kColumn) {
      float* scores = scratch.scores() + row * kScoreStride + key;
      products.Run(ColumnProduct<kTripleParts>(block, tile, row, rows, key, queries, scores, kScoreStride));
    }
  }
}

void AddTile(const Block& block, const KeyTile& tile, RowCapture* captures, TopList& top, RowValues values,
             Scratch& scratch) noexcept {
  CaptureTile(block, tile, captures, top, values, scratch, [&](const GroupRanges& ranges) {
    MultiplyTile(block, tile, scratch);
    ApplyRulesToTile(block, tile.first, ranges, scratch.scores());
  });
}

}  // namespace

CaptureKernels TripleCaptureTable() { return {&SizesOf, &Begin, &AddTile}; }

}  // namespace HWY_NAMESPACE
}  // namespace qkv
HWY_POP_ATTRIBUTES
#endif  // AVX-512

#if HWY_ONCE
namespace qkv {
#if HWY_TARGETS & HWY_AVX3
CaptureKernels TripleCaptureKernels() { return N_AVX3::TripleCaptureTable(); }
#else
CaptureKernels TripleCaptureKernels() { return {}; }
#endif
}  // namespace qkv
#endif
