#include "layers/residual.h"

#include <algorithm>


namespace qkv {
namespace {

// body(at, count) for each run of elements of a part.
template <class Body>
void ForRuns(int64_t width, const RowsPart& part, const Body& body) {
  if (part.columns == width) return body(part.row * width, part.rows * width);
  for (int64_t r = part.row; r < part.row + part.rows; ++r) body(r * width + part.column, part.columns);
}

}  // namespace

template <class T>
void Gelus(Gelu kind, const T* x, int64_t width, const RowsPart& part, T* out) {
  ForRuns(width, part, [&](int64_t at, int64_t count) { GeluForward(kind, x + at, count, out + at); });
}

template <class T>
void GelusBackward(Gelu kind, const T* x, int64_t width, const RowsPart& part, T* dx, T* out) {
  ForRuns(width, part,
          [&](int64_t at, int64_t count) { GeluBackward(kind, x + at, dx + at, count, dx + at, out + at); });
}

void SwiGluBackward(const float* gate_up, const float* dout, RowsShape shape, float* dgate_up) {
  ForRows(shape.rows, 2 * shape.width, [&](int64_t first, int64_t rows) {
    const int64_t at = first * shape.width;
    SwiGluBackwardRows(gate_up + 2 * at, dout + at, rows, shape.width, dgate_up + 2 * at);
  });
}

void CopyRows(const float* from, RowsShape shape, float* to) {
  ForRows(shape.rows, shape.width, [&](int64_t first, int64_t rows) {
    std::copy_n(from + first * shape.width, rows * shape.width, to + first * shape.width);
  });
}

void AddDropped(const DropoutRows& dropout, const float* branch, const float* residual, RowsShape shape,
                float* out) {
  ForRows(shape.rows, shape.width, [&](int64_t first, int64_t rows) {
    const int64_t at = first * shape.width;
    Drop(dropout, first, branch + at, residual + at, rows, shape.width, out + at);
  });
}

template <class T>
void DropGradient(const DropoutRows& dropout, const float* dout, RowsShape shape, T* out) {
  ForRows(shape.rows, shape.width, [&](int64_t first, int64_t rows) {
    const int64_t at = first * shape.width;
    Drop(dropout, first, dout + at, nullptr, rows, shape.width, out + at);
  });
}

template void Gelus(Gelu, const float*, int64_t, const RowsPart&, float*);
template void Gelus(Gelu, const BFloat16*, int64_t, const RowsPart&, BFloat16*);
template void GelusBackward(Gelu, const float*, int64_t, const RowsPart&, float*, float*);
template void GelusBackward(Gelu, const BFloat16*, int64_t, const RowsPart&, BFloat16*, BFloat16*);
template void DropGradient(const DropoutRows&, const float*, RowsShape, float*);
template void DropGradient(const DropoutRows&, const float*, RowsShape, BFloat16*);

}  // namespace qkv
