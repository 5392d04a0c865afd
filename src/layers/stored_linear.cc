#include "layers/stored_linear.h"

#include <utility>

#include "kernels/activation.h"
#include "layers/quantised.h"

namespace qkv {

StoredLinear::StoredLinear(Linear linear)
    : inputs_(linear.inputs()), outputs_(linear.outputs()), packed_(std::make_unique<Packed>()) {
  std::call_once(packed_->once, [&] { packed_->linear.emplace(std::move(linear)); });
}

StoredLinear::StoredLinear(QuantisedParameters parameters)
    : inputs_(parameters.matrices.front().cols),
      blocks_(std::move(parameters)),
      packed_(std::make_unique<Packed>()) {
  for (const QuantisedMatrix& matrix : blocks_.matrices) outputs_ += matrix.rows;
}

void StoredLinear::Forward(const float* x, int64_t rows, float* y, Into into) const {
  if (ByBlocks(rows)) return MultiplyBlocks(x, rows, y, into);
  Pack().Forward(x, rows, y, into);
}

void StoredLinear::Prepare(int64_t rows) const {
  if (!ByBlocks(rows)) Pack();
}

const Linear& StoredLinear::Pack() const {
  std::call_once(packed_->once, [&] {
    AlignedBuffer<float> weight(outputs_ * inputs_);
    float* to = weight.data();
    for (const QuantisedMatrix& matrix : blocks_.matrices) {
      Dequantise(matrix, 0, matrix.rows, DType::kF32, to);
      to += matrix.rows * inputs_;
    }
    const float* bias = blocks_.bias.size() > 0 ? blocks_.bias.data() : nullptr;
    packed_->linear.emplace(inputs_, LinearPart{weight.data(), bias, outputs_}, blocks_.activation, DType::kBF16);
  });
  return *packed_->linear;
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
