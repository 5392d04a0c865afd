// Gradients of attention: what a loss whose gradient by `out` is `dout` has by q, k, v, bias and sinks. Weights
// are recomputed from lse tile by tile, so memory is O(T) (Dao et al. 2022, algorithm 4):
//   P = exp(S - lse), dV = P^T dO, dP = dO V^T, dS = P o (dP - delta), dQ = dS K, dK = dS^T Q, delta =
//   rowsum(dO o O).
#pragma once

#include <optional>

#include "qkv/attention.h"
#include "qkv/export.h"
#include "qkv/tensor.h"

namespace qkv {

// Where gradients are written: all elements of each, whatever they held before. Any strides that keep elements
// apart; none may overlap an input or each other.
struct AttentionGradients {
  Tensor dq, dk, dv;            // shape and type of q, k and v
  std::optional<Tensor> dbias;  // shape and type of options.bias: summed over the axes that were broadcast
  std::optional<Tensor> dsink;  // float32 (Hq)
};

// dout, out (B, Hq, Tq, Dv) and lse (B, Hq, Tq): the gradient by out, and what Attention gave for q, k, v and
// the same options. dlse, where given: the gradient by lse, float32, lse's shape. Packed batches as for
// Attention. Types: dout as out; the rest as for Attention. float64 runs on the reference, slowly, and takes
// nothing from out and lse but their shapes. What a row does not see, and what lies past the lengths, neither
// gives nor gets: such gradients are zeros, whatever NaN or infinity stands there. The same bits for any number
// of threads. Errors: kInvalidArgument or kWrongType naming the argument, before anything is written;
// kOutOfMemory; kCancelled.
QKV_API void AttentionBackward(const ConstTensor& dout, const ConstTensor& q, const ConstTensor& k,
                               const ConstTensor& v, const ConstTensor& out, const ConstTensor& lse,
                               const AttentionOptions& options, const AttentionGradients& gradients,
                               const ConstTensor* dlse = nullptr);

}  // namespace qkv
