#include "layers/residual.h"

#include <algorithm>

#include "kernels/round.h"
#include "layers/row_tasks.h"

namespace qkv {
namespace {

void Round(const float* from, int64_t count, float* to) { std::copy_n(from, count, to); }
void Round(const float* from, int64_t count, BFloat16* to) { RoundToBFloat16(from, count, to); }

}  // namespace

template <class T>
void Gelus(Gelu kind, const T* x, RowsShape shape, T* out) {
  ForRows(shape.rows, shape.width, [&](int64_t first, int64_t rows) {
    const int64_t at = first * shape.width;
    GeluForward(kind, x + at, rows * shape.width, out + at);
  });
}

template <class T>
void GelusBackward(Gelu kind, const T* x, RowsShape shape, T* dx, T* out) {
  ForRows(shape.rows, shape.width, [&](int64_t first, int64_t rows) {
    const int64_t at = first * shape.width;
    GeluBackward(kind, x + at, dx + at, rows * shape.width, dx + at, out + at);
  });
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
void DropGradient(const std::optional<DropoutRows>& dropout, const float* dout, RowsShape shape, T* out) {
  ForRows(shape.rows, shape.width, [&](int64_t first, int64_t rows) {
    const int64_t at = first * shape.width;
    if (dropout) Drop(*dropout, first, dout + at, nullptr, rows, shape.width, out + at);
    if (!dropout) Round(dout + at, rows * shape.width, out + at);
  });
}

template void Gelus(Gelu, const float*, RowsShape, float*);
template void Gelus(Gelu, const BFloat16*, RowsShape, BFloat16*);
template void GelusBackward(Gelu, const float*, RowsShape, float*, float*);
template void GelusBackward(Gelu, const BFloat16*, RowsShape, BFloat16*, BFloat16*);
template void DropGradient(const std::optional<DropoutRows>&, const float*, RowsShape, float*);
template void DropGradient(const std::optional<DropoutRows>&, const float*, RowsShape, BFloat16*);

}  // namespace qkv
