// Matrix products of float32 on AMX's tiles (kernels/triple_matmul.h): training's, and those of weights in
// panels.
#include <algorithm>
#include <limits>

#include "kernels/triple_matmul.h"
#include "layers/matmul.h"
#include "layers/matmul_blocks.h"
#include "layers/panels.h"
#include "runtime/aligned.h"
#include "runtime/threads.h"

namespace qkv {
namespace {

// The factor from another row or column on; columns: whole panels.
TripleFactor From(TripleFactor factor, int64_t row, int64_t column) {
  factor.data += factor.order == FactorOrder::kColumns
                     ? column * factor.stride + row
                     : row * factor.stride + column / kTriplePanel * factor.panel;
  return factor;
}

// Results do not depend on it.
struct BlockSize {
  int64_t rows, columns;

  // What takes the threads the shortest time, when splitting a number takes as long as multiplying it by 64
  // rows or columns.
  BlockSize(int64_t m, int64_t n, int64_t depth) {
    constexpr int64_t kSplit = 64, kMore = 8;
    const BlockLimits most = TripleBlockLimits(depth);
    const int64_t down = BlocksOf(m, most.rows), across = BlocksOf(n, most.columns);
    int64_t least = std::numeric_limits<int64_t>::max();
    for (int64_t i = down; i < down + kMore; ++i) {
      for (int64_t j = across; j < across + kMore; ++j) {
        const int64_t r = Whole(BlocksOf(m, i), kGroupRows), c = Whole(BlocksOf(n, j), kTriplePanel);
        const int64_t turns = BlocksOf(BlocksOf(m, r) * BlocksOf(n, c), Threads());
        const int64_t time = turns * (r * c + kSplit * (r + c));
        if (time < least) least = time, rows = r, columns = c;
      }
    }
  }

 private:
  static constexpr int64_t kGroupRows = 32;
  static int64_t Whole(int64_t size, int64_t unit) { return BlocksOf(size, unit) * unit; }
};

float* ThreadScratch() {
  thread_local AlignedBuffer<float> scratch;
  if (scratch.size() == 0) scratch = AlignedBuffer<float>(TripleMatMulScratch());
  return scratch.data();
}

void Multiply(const TripleFactor& a, const TripleFactor& b, const Product& c) {
  const BlockSize size(c.m, c.n, c.k);
  const int64_t across = BlocksOf(c.n, size.columns), down = BlocksOf(c.m, size.rows);
  ParallelFor(down * across, [&](int64_t task, int) {
    const int64_t row = task / across * size.rows, column = task % across * size.columns;
    const RowsPart part{row, std::min(size.rows, c.m - row), column, std::min(size.columns, c.n - column)};
    TripleBlock block{ResultAt(c, part), From(a, row, 0), From(b, 0, column), c.k};
    if (c.column_sums != nullptr && row == 0) block.column_sums = c.column_sums + column;
    MultiplyTripleBlock(block, ThreadScratch());
    if (c.then) c.then(part);
  });
}

}  // namespace

void TripleMatMul(const Matrix& a, const Matrix& b, const Product& c) {
  Multiply({FactorAt<float>(a, c.m, c.k, 0, 0)}, {FactorAt<float>(b, c.k, c.n, 0, 0)}, c);
}

void MultiplySplitPanels(const Panels<float>& weight, ConstRows x, int64_t rows, Rows y, Into into) {
  const auto* from = static_cast<const float*>(Convert(x, rows * weight.inputs, DType::kF32).data);
  Product product(rows, weight.outputs, weight.inputs, static_cast<float*>(y.data), into);
  product.bias = weight.bias;
  Multiply({{from, weight.inputs, FactorOrder::kRows}},
           {{weight.packed, kTriplePanel, FactorOrder::kRows}, weight.inputs * kTriplePanel}, product);
}

}  // namespace qkv
