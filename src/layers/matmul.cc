#include "layers/matmul.h"

#include <algorithm>
#include <vector>

#include "kernels/optimizer.h"
#include "kernels/pair_matmul.h"
#include "kernels/project.h"
#include "kernels/triple_matmul.h"
#include "layers/residual.h"
#include "runtime/aligned.h"
#include "runtime/cpu.h"
#include "runtime/half.h"
#include "runtime/threads.h"

namespace qkv {
namespace {

float At(const void* data, DType dtype, int64_t i) {
  return dtype == DType::kF32 ? static_cast<const float*>(data)[i]
                              : ToFloat(static_cast<const BFloat16*>(data)[i]);
}

void Put(float value, void* data, DType dtype, int64_t i) {
  if (dtype == DType::kF32) static_cast<float*>(data)[i] = value;
  if (dtype == DType::kBF16) static_cast<BFloat16*>(data)[i] = ToBFloat16(value);
}

// A range of rows or columns.
struct Span {
  int64_t first, count;
};

// A part of a (rows, columns) matrix as float32, row after row; rows are `stride` apart, zeros after the last
// column.
struct Packing {
  const Matrix& from;
  int64_t rows, columns;

  void operator()(Span r, Span c, int64_t stride, float* to) const {
    const bool by_rows = from.layout == Layout::kRows;
    const int64_t down = by_rows ? columns : 1, across = by_rows ? 1 : rows;
    for (int64_t i = 0; i < r.count; ++i, to += stride) {
      const int64_t at = (r.first + i) * down + c.first * across;
      for (int64_t j = 0; j < c.count; ++j) to[j] = At(from.data, from.dtype, at + j * across);
      std::fill(to + c.count, to + stride, 0.0f);
    }
  }
};

void Store(const Product& c, Span rows, Span columns, const float* sums, int64_t stride) {
  for (int64_t i = 0; i < rows.count; ++i, sums += stride) {
    const int64_t at = (rows.first + i) * c.n + columns.first;
    for (int64_t j = 0; j < columns.count; ++j) {
      float value = sums[j] + (c.bias == nullptr ? 0.0f : c.bias[columns.first + j]);
      if (c.into == Into::kAdd) value += At(c.data, c.dtype, at + j);
      Put(value, c.data, c.dtype, at + j);
    }
  }
}

// Depth that is packed at once: 96 rows and 64 columns of it take 320 KiB.
constexpr int64_t kDepth = 512;

// What a thread packs and sums in.
struct TileScratch {
  AlignedBuffer<float> rows{kProjectRows * kDepth}, panel{kProjectMaxColumns * kDepth};
  AlignedBuffer<float> part{kProjectRows * kProjectMaxColumns}, sums{kProjectRows * kProjectMaxColumns};
};

void MultiplyBlock(const Packing& a, const Packing& b, Span rows, Span columns, const PanelKernel& kernel,
                   TileScratch& scratch) {
  std::fill_n(scratch.sums.data(), rows.count * kernel.columns, 0.0f);
  for (int64_t k = 0; k < a.columns; k += kDepth) {
    const Span depth{k, std::min(kDepth, a.columns - k)};
    a(rows, depth, depth.count, scratch.rows.data());
    b(depth, columns, kernel.columns, scratch.panel.data());
    kernel.multiply(scratch.rows.data(), rows.count, depth.count, scratch.panel.data(), 1, scratch.part.data());
    for (int64_t i = 0; i < rows.count * kernel.columns; ++i) scratch.sums[i] += scratch.part[i];
  }
}

template <class T>
void AddSumsOf(const Matrix& b, int64_t rows, int64_t columns, float* sums) {
  constexpr int64_t kColumns = 128;  // of a task: enough for memory to be read along its rows
  const auto* first = static_cast<const T*>(b.data);
  ParallelFor((columns + kColumns - 1) / kColumns, [&](int64_t task, int) {
    const int64_t c = task * kColumns;
    AddColumnSums(first + c, rows, std::min(kColumns, columns - c), columns, sums + c);
  });
}

// What PairMatMul does on the way, around the other ways.
void MatMulAround(const Matrix& a, const Matrix& b, Product c) {
  if (c.residual != nullptr) {
    if (c.residual != c.data) CopyRows(c.residual, {c.m, c.n}, static_cast<float*>(c.data));
    c.into = Into::kAdd;
  }
  OneDnnMultiplies(a.dtype) && c.k > 0 ? OneDnnMatMul(a, b, c) : TileMatMul(a, b, c);
  if (c.column_sums != nullptr) {
    AddMatrixColumnSums(b, c.k, c.n, c.column_sums);
  }
  if (c.then) ForRows(c.m, c.n, [&](int64_t first, int64_t count) { c.then({first, count, 0, c.n}); });
}

}  // namespace

void AddMatrixColumnSums(const Matrix& b, int64_t rows, int64_t columns, float* sums) {
  if (b.dtype == DType::kF32) AddSumsOf<float>(b, rows, columns, sums);
  if (b.dtype == DType::kBF16) AddSumsOf<BFloat16>(b, rows, columns, sums);
}

void TileMatMul(const Matrix& a, const Matrix& b, const Product& c) {
  const PanelKernel kernel = ChosenPanelKernel();
  const Packing packed_a{a, c.m, c.k}, packed_b{b, c.k, c.n};
  const int64_t blocks = (c.m + kProjectRows - 1) / kProjectRows;
  const int64_t panels = (c.n + kernel.columns - 1) / kernel.columns;
  std::vector<TileScratch> scratch(static_cast<size_t>(Threads()));
  ParallelFor(blocks * panels, [&](int64_t task, int thread) {
    const int64_t row = task / panels * kProjectRows, column = task % panels * kernel.columns;
    const Span rows{row, std::min(kProjectRows, c.m - row)};
    const Span columns{column, std::min(kernel.columns, c.n - column)};
    TileScratch& own = scratch[static_cast<size_t>(thread)];
    MultiplyBlock(packed_a, packed_b, rows, columns, kernel, own);
    Store(c, rows, columns, own.sums.data(), kernel.columns);
  });
}

bool OneDnnMultiplies(DType dtype) {
  if (dtype == DType::kBF16) return OneDnnRunsBFloat16();
  return ChosenIsa() != Isa::kPortable && OneDnnRuns();
}

void MatMul(const Matrix& a, const Matrix& b, const Product& c) {
  if (c.m == 0 || c.n == 0) return;
  const bool pairs = a.dtype == DType::kBF16 && c.k > 0 && HasPairMatMul(ChosenIsa());
  const bool triples = a.dtype == DType::kF32 && c.k > 0 && std::min(c.m, c.n) > kFewTripleLines &&
                       HasTripleMatMul(ChosenIsa());
  if (pairs) return PairMatMul(a, b, c);
  triples ? TripleMatMul(a, b, c) : MatMulAround(a, b, c);
}

}  // namespace qkv
