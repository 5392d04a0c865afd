// y = f(x W^T + b): projections and feed-forward layers. On oneDNN, with parameters packed once; on the
// project's own tiles where oneDNN cannot run (no executable memory for its generated code, another processor, no
// instructions for bfloat16).
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "kernels/activation.h"
#include "layers/linear_backend.h"

namespace qkv {

// Const use is safe from many threads at once. Owns its parameters.
class Linear {
 public:
  // dtype: what parameters are kept and multiplied in, kF32 or kBF16 (biases stay float32). bfloat16 takes half the
  // memory; where the machine has instructions for it, x is rounded to it too, else products are float32.
  Linear(int64_t inputs, std::span<const LinearPart> parts, Activation activation = Activation::kNone,
         DType dtype = DType::kF32);
  Linear(int64_t inputs, const LinearPart& part, Activation activation = Activation::kNone,
         DType dtype = DType::kF32);

  // x (rows, inputs) -> y (rows, outputs), contiguous, apart from each other. Into::kAdd adds to y: a residual (of a
  // layer without activation).
  // Rows of a bfloat16 layer may be float32 or bfloat16, x and y apart from each other; of a float32 layer, float32.
  // Error{kInternal} for a failure of oneDNN, Error{kOutOfMemory}.
  void Forward(ConstRows x, int64_t rows, Rows y, Into into = Into::kOverwrite) const;

  int64_t inputs() const { return inputs_; }
  int64_t outputs() const { return outputs_; }
  DType dtype() const { return dtype_; }
  DType operand() const { return backend_->operand(); }  // the type of x that needs no conversion

 private:
  int64_t inputs_, outputs_;
  Activation activation_;
  DType dtype_;
  std::unique_ptr<const LinearBackend> backend_;
};

}  // namespace qkv
