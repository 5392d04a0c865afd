#include "kernels/capture.h"

#include <cstdint>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/capture.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h.
#include "hwy/highway.h"
#include "kernels/capture-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qkv {
namespace HWY_NAMESPACE {
namespace {

ScratchSizes SizesOf(int64_t rows, const Layout& layout) noexcept {
  return {0, rows * layout.d, rows * kScoreStride, 0, 0};
}

void Begin(const Block& block, Scratch& scratch) noexcept {
  const PhaseTimer timer(Phase::kRows);
  LoadQueries(block, scratch.queries());
}

void AddTile(const Block& block, const KeyTile& tile, RowCapture* captures, TopList& top, RowValues values,
             Scratch& scratch) noexcept {
  CaptureTile(block, tile, captures, top, values, scratch, [&](const GroupRanges& ranges) {
    ScoreTile(block, tile, ranges, scratch.queries(), scratch.scores());
  });
}

}  // namespace

CaptureKernels CaptureTable() { return {&SizesOf, &Begin, &AddTile}; }

}  // namespace HWY_NAMESPACE
}  // namespace qkv
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "kernels/targets.h"
namespace qkv {
CaptureKernels CaptureKernelsFor(Isa isa) { QKV_PICK_TABLE(isa, CaptureTable()) }
}  // namespace qkv
#endif
