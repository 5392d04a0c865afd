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
  // rows or columns. columns_split: they are split already.
  BlockSize(int64_t m, int64_t n, int64_t depth, bool columns_split) {
    constexpr int64_t kSplit = 64, kMore = 8;
    const int64_t split_column = columns_split ? 0 : kSplit;
    const BlockLimits most = TripleBlockLimits(depth);
    const int64_t down = BlocksOf(m, most.rows), across = BlocksOf(n, most.columns);
    int64_t least = std::numeric_limits<int64_t>::max();
    for (int64_t i = down; i < down + kMore; ++i) {
      for (int64_t j = across; j < across + kMore; ++j) {
        const int64_t r = Whole(BlocksOf(m, i), kGroupRows), c = Whole(BlocksOf(n, j), kTriplePanel);
        const int64_t turns = BlocksOf(BlocksOf(m, r) * BlocksOf(n, c), Threads());
        const int64_t time = turns * (r * c + kSplit * r + split_column * c);
        if (time < least) least = time, rows = r, columns = c;
      }
    }
  }

 private:
  static constexpr int64_t kGroupRows = 32;
  static int64_t Whole(int64_t size, int64_t unit) { return BlocksOf(size, unit) * unit; }
};

TripleFactor FactorOf(const Panels<float>& weight) {
  return {{weight.packed, kTriplePanel, FactorOrder::kRows}, weight.inputs * kTriplePanel};
}

float* ThreadScratch() {
  thread_local AlignedBuffer<float> scratch;
  if (scratch.size() == 0) scratch = AlignedBuffer<float>(TripleMatMulScratch());
  return scratch.data();
}

// split: b's columns, if they are split already.
void MultiplyBlocks(const TripleFactor& a, const TripleFactor& b, const TripleColumns* split, const Product& c) {
  const BlockSize size(c.m, c.n, c.k, split != nullptr);
  const int64_t across = BlocksOf(c.n, size.columns), down = BlocksOf(c.m, size.rows);
  ParallelFor(down * across, [&](int64_t task, int) {
    const int64_t row = task / across * size.rows, column = task % across * size.columns;
    const RowsPart part{row, std::min(size.rows, c.m - row), column, std::min(size.columns, c.n - column)};
    TripleBlock block{ResultAt(c, part), From(a, row, 0), From(b, 0, column), c.k, split, column};
    if (c.column_sums != nullptr && row == 0) block.column_sums = c.column_sums + column;
    MultiplyTripleBlock(block, ThreadScratch());
    if (c.then) c.then(part);
  });
}

}  // namespace

void TripleMatMul(const Matrix& a, const Matrix& b, const Product& c) {
  MultiplyBlocks({FactorAt<float>(a, c.m, c.k, 0, 0)}, {FactorAt<float>(b, c.k, c.n, 0, 0)}, nullptr, c);
}

SplitPanels::SplitPanels(const Panels<float>& weight) : weight_(weight) {
  columns_.depth = weight.inputs, columns_.columns = weight.outputs;
  tiles_ = AlignedBuffer<BFloat16>(TripleColumnElements(columns_));
  odd_ = AlignedBuffer<uint8_t>(columns_.steps() * columns_.panels());
  columns_.tiles = tiles_.data(), columns_.odd = odd_.data();
  ParallelFor(BlocksOf(weight.outputs, kTriplePanel), [&](int64_t task, int) {
    const int64_t column = task * kTriplePanel;
    SplitTripleColumns(From(FactorOf(weight_), 0, column), column, columns_);
  });
}

void SplitPanels::Multiply(ConstRows x, int64_t rows, Rows y, Into into) const {
  const auto* from = static_cast<const float*>(Convert(x, rows * weight_.inputs, DType::kF32).data);
  Product product(rows, weight_.outputs, weight_.inputs, static_cast<float*>(y.data), into);
  product.bias = weight_.bias;
  MultiplyBlocks({{from, weight_.inputs, FactorOrder::kRows}}, FactorOf(weight_), &columns_, product);
}

}  // namespace qkv
