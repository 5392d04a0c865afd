#include "layers/stored_linear.h"

#include <utility>

#include "kernels/activation.h"
#include "layers/quantised.h"

namespace qkv {

StoredLinear::StoredLinear(Linear linear)
    : inputs_(linear.inputs()), outputs_(linear.outputs()), linear_(std::move(linear)) {}

StoredLinear::StoredLinear(QuantisedParameters parameters)
    : inputs_(parameters.matrices.front().cols), blocks_(std::move(parameters)) {
  for (const QuantisedMatrix& matrix : blocks_.matrices) outputs_ += matrix.rows;
}

void StoredLinear::Forward(ConstRows x, int64_t rows, float* y, Into into, const std::optional<Linear>& packed) const {
  if (linear_) return linear_->Forward(x, rows, y, into);
  if (packed) return packed->Forward(x, rows, y, into);
  const ConstRows floats = Convert(x, rows * inputs_, DType::kF32);
  MultiplyBlocks(static_cast<const float*>(floats.data), rows, y, into);
}

std::optional<Linear> StoredLinear::Pack(int64_t rows) const {
  if (linear_ || rows <= kFewRows) return {};
  AlignedBuffer<float> weight(outputs_ * inputs_);
  float* to = weight.data();
  for (const QuantisedMatrix& matrix : blocks_.matrices) {
    Dequantise(matrix, 0, matrix.rows, DType::kF32, to);
    to += matrix.rows * inputs_;
  }
  const float* bias = blocks_.bias.size() > 0 ? blocks_.bias.data() : nullptr;
  return Linear(inputs_, LinearPart{weight.data(), bias, outputs_}, blocks_.activation, DType::kBF16);
}

void StoredLinear::MultiplyBlocks(const float* x, int64_t rows, float* y, Into into) const {
  const bool biased = blocks_.bias.size() > 0;
  if (!biased && into == Into::kOverwrite) {
    MultiplyQuantised(blocks_.matrices, x, rows, y);
    return Activate(blocks_.activation, y, rows * outputs_);
  }
  AlignedBuffer<float> products(rows * outputs_);
  MultiplyQuantised(blocks_.matrices, x, rows, products.data());
  for (int64_t row = 0; row < rows && biased; ++row) {
    float* sums = products.data() + row * outputs_;
    for (int64_t i = 0; i < outputs_; ++i) sums[i] += blocks_.bias[i];
  }
  Activate(blocks_.activation, products.data(), products.size());
  for (int64_t i = 0; i < products.size(); ++i) y[i] = into == Into::kAdd ? y[i] + products[i] : products[i];
}

}  // namespace qkv
