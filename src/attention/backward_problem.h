// A validated call of the operator's backward pass, in the kernels' terms.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "attention/problem.h"
#include "qkv/attention_backward.h"

namespace qkv {

// A tensor with rows: (B, H, T, channels), (total, H, channels) when packed, or lse's. Strides in elements.
struct RowTensor {
  std::byte* data = nullptr;
  DType dtype = DType::kF32;
  int64_t batch = 0, head = 0, row = 0, channel = 1;

  std::byte* At(int64_t b, int64_t h, int64_t i) const {
    return data + (b * batch + h * head + i * row) * static_cast<int64_t>(SizeOf(dtype));
  }
};

struct BackwardProblem {
  Problem forward;  // its out and lse are only read
  RowTensor dout, dq, dk, dv;
  std::optional<RowTensor> dlse;
  std::optional<Tensor> dbias, dsink;             // as they were given
  std::array<int64_t, kMaxRank> dbias_strides{};  // of a contiguous dbias, as it broadcasts to (B, Hq, Tq, Tk)

  const std::byte* DoutOf(const Row& row) const { return At(dout, row); }
  std::byte* DqOf(const Row& row) const { return At(dq, row); }
  float DlseOf(const Row& row) const { return dlse ? *reinterpret_cast<const float*>(At(*dlse, row)) : 0.0f; }
  float& DsinkOf(int64_t head) const {
    return static_cast<float*>(dsink->mutable_data())[head * dsink->stride[0]];
  }

 private:
  std::byte* At(const RowTensor& tensor, const Row& row) const {
    return tensor.At(row.batch, row.head,
                     forward.sequences[static_cast<size_t>(row.batch)].first_row + row.query);
  }
};

// Checks everything, so that kernels need no checks. Errors: qkv::Error naming the argument.
BackwardProblem MakeBackwardProblem(const ConstTensor& dout, const ConstTensor& q, const ConstTensor& k,
                                    const ConstTensor& v, const ConstTensor& out, const ConstTensor& lse,
                                    const AttentionOptions& options, const AttentionGradients& gradients,
                                    const ConstTensor* dlse);

}  // namespace qkv
