#include "layers/norm_backward.h"

#include <algorithm>
#include <vector>

#include "kernels/round.h"
#include "layers/row_tasks.h"
#include "runtime/aligned.h"

namespace qkv {
namespace {

using Kernel = void (*)(const float*, const float*, int64_t, const LayerNormParameters&,
                        const NormGradients&) noexcept;

void RunRows(Kernel kernel, const NormBackward<float>& a, int64_t first, int64_t rows,
             const LayerNormParameters& p, NormGradients to, float*) {
  const int64_t at = first * p.width;
  to.dx = a.dx + at;
  to.out = a.out + at;
  kernel(a.x + at, a.dout + at, rows, p, to);
}

// A row at a time goes through float32; `scratch` holds two.
void RunRows(Kernel kernel, const NormBackward<BFloat16>& a, int64_t first, int64_t rows,
             const LayerNormParameters& p, NormGradients to, float* scratch) {
  for (int64_t r = first; r < first + rows; ++r) {
    const int64_t at = r * p.width;
    WidenToFloat(a.dout + at, p.width, scratch);
    to.dx = a.dx + at;
    to.out = scratch + p.width;
    kernel(a.x + at, scratch, 1, p, to);
    RoundToBFloat16(to.out, p.width, a.out + at);
    if (a.rounded_dx != nullptr) RoundToBFloat16(to.dx, p.width, a.rounded_dx + at);
  }
}

// Gradients of gain and shift are summed block by block of rows, and the blocks' sums in order.
constexpr int64_t kBlocks = 64;

template <class T>
void Backward(Kernel kernel, const NormBackward<T>& a, int64_t rows, const LayerNormParameters& p) {
  const int64_t block_rows = std::max<int64_t>(8, (rows + kBlocks - 1) / kBlocks);
  const int64_t blocks = (rows + block_rows - 1) / block_rows;
  AlignedBuffer<float> partial(blocks * 2 * p.width), scratch(Threads() * 2 * p.width);
  ParallelFor(blocks, [&](int64_t block, int thread) {
    float* dgain = partial.data() + block * 2 * p.width;
    std::fill_n(dgain, 2 * p.width, 0.0f);
    const int64_t first = block * block_rows;
    RunRows(kernel, a, first, std::min(block_rows, rows - first), p, {nullptr, dgain, dgain + p.width, nullptr},
            scratch.data() + thread * 2 * p.width);
  });
  for (int64_t block = 0; block < blocks; ++block) {
    const float* part = partial.data() + block * 2 * p.width;
    for (int64_t c = 0; c < p.width; ++c) a.dgain[c] += part[c];
    if (a.dshift == nullptr) continue;
    for (int64_t c = 0; c < p.width; ++c) a.dshift[c] += part[p.width + c];
  }
}

void ForwardRows(const float* x, int64_t rows, const LayerNormParameters& p, float* out) {
  LayerNormRows(x, rows, p, out);
}

void ForwardRows(const float* x, int64_t rows, const LayerNormParameters& p, BFloat16* out) {
  std::vector<float> row(static_cast<size_t>(p.width));
  for (int64_t r = 0; r < rows; ++r) {
    LayerNormRows(x + r * p.width, 1, p, row.data(), out + r * p.width);
  }
}

}  // namespace

template <class T>
void LayerNormForward(const float* x, int64_t rows, const LayerNormParameters& p, T* out) {
  ForRows(rows, p.width, [&](int64_t first, int64_t count) {
    ForwardRows(x + first * p.width, count, p, out + first * p.width);
  });
}

template <class T>
void LayerNormBackward(const NormBackward<T>& arrays, int64_t rows, const LayerNormParameters& parameters) {
  Backward(LayerNormBackwardRows, arrays, rows, parameters);
}

template <class T>
void RmsNormBackward(const NormBackward<T>& arrays, int64_t rows, const LayerNormParameters& parameters) {
  Backward(RmsNormBackwardRows, arrays, rows, parameters);
}

template void LayerNormForward(const float*, int64_t, const LayerNormParameters&, float*);
template void LayerNormForward(const float*, int64_t, const LayerNormParameters&, BFloat16*);
template void LayerNormBackward(const NormBackward<float>&, int64_t, const LayerNormParameters&);
template void LayerNormBackward(const NormBackward<BFloat16>&, int64_t, const LayerNormParameters&);
template void RmsNormBackward(const NormBackward<float>&, int64_t, const LayerNormParameters&);
template void RmsNormBackward(const NormBackward<BFloat16>&, int64_t, const LayerNormParameters&);

}  // namespace qkv
