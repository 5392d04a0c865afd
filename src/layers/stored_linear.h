// y = f(x W^T + b) where W may be quantised in blocks, as its file holds it. A few rows, as decoding has them, are
// multiplied with the blocks themselves, which are a quarter of the memory to read; many rows, as a prompt has them,
// with bfloat16 made of the blocks when that is first needed.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
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

  // As Linear's. Which way is taken depends on `rows` alone, so that the same call always has the same bits.
  // Const use is safe from many threads at once.
  void Forward(const float* x, int64_t rows, float* y, Into into = Into::kOverwrite) const;
  // Makes what a Forward of so many rows needs; it would otherwise do so itself.
  void Prepare(int64_t rows) const;

  // Until here the blocks' products are faster than making bfloat16 of them would be.
  static constexpr int64_t kFewRows = 16;

  int64_t inputs() const { return inputs_; }
  int64_t outputs() const { return outputs_; }

 private:
  struct Packed {
    std::once_flag once;
    std::optional<Linear> linear;
  };

  bool ByBlocks(int64_t rows) const { return !blocks_.matrices.empty() && rows <= kFewRows; }
  const Linear& Pack() const;
  void MultiplyBlocks(const float* x, int64_t rows, float* y, Into into) const;

  int64_t inputs_ = 0, outputs_ = 0;
  QuantisedParameters blocks_;  // without matrices `packed_` has been there from the beginning
  std::unique_ptr<Packed> packed_;
};

}  // namespace qkv
