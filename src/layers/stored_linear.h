// y = f(x W^T + b) where W may be quantised in blocks, as its file holds it. A few rows, as decoding has them, are
// multiplied with the blocks themselves, which are a quarter of the memory to read; many rows, as a prompt has them,
// with bfloat16 made of the blocks, which the caller keeps for as long as it has rows.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "kernels/activation.h"
#include "kernels/quantised.h"
#include "layers/linear.h"
#include "runtime/aligned.h"

namespace qkv {

// Matrices that share their input, their outputs side by side. The blocks outlive the layer.
struct QuantisedParameters {
  std::vector<QuantisedMatrix> matrices;  // (outputs, inputs) each
  AlignedBuffer<float> bias;              // of all outputs, or empty for zero
  Activation activation = Activation::kNone;
};

class StoredLinear {
 public:
  explicit StoredLinear(Linear linear);
  explicit StoredLinear(QuantisedParameters parameters);

  // What so many rows are multiplied with, made of the blocks; nothing where few rows, or a layer that is not
  // quantised, need nothing made.
  std::optional<Linear> Pack(int64_t rows) const;
  // As Linear's. packed: what Pack has made for all rows of a passage, of which these may be some; it alone decides
  // which way is taken, so that the same passage always has the same bits. Const use is safe from many threads at once.
  void Forward(ConstRows x, int64_t rows, float* y, Into into, const std::optional<Linear>& packed) const;
  // The same, where there are few rows or it is done once.
  void Forward(ConstRows x, int64_t rows, float* y, Into into = Into::kOverwrite) const {
    Forward(x, rows, y, into, Pack(rows));
  }

  // Until here the blocks' products are faster than making bfloat16 of them would be.
  static constexpr int64_t kFewRows = 32;

  int64_t inputs() const { return inputs_; }
  int64_t outputs() const { return outputs_; }
  // What many rows are multiplied in.
  DType dtype() const { return linear_ ? linear_->dtype() : DType::kBF16; }

 private:
  void MultiplyBlocks(const float* x, int64_t rows, float* y, Into into) const;

  int64_t inputs_ = 0, outputs_ = 0;
  std::optional<Linear> linear_;  // one of the two
  QuantisedParameters blocks_;
};

}  // namespace qkv
