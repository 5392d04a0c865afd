// What a multiply of a Linear runs on.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "layers/rows.h"
#include "runtime/aligned.h"

namespace qkv {

enum class Into { kOverwrite, kAdd };  // y = x W^T + b, or y += x W^T + b

// One matrix among several that share their input and are multiplied at once, their outputs side by side.
struct LinearPart {
  const float* weight = nullptr;  // (outputs, inputs), row-major
  const float* bias = nullptr;    // (outputs), or null for zero
  int64_t outputs = 0;
};

struct LinearParameters {
  int64_t inputs = 0;
  std::span<const LinearPart> parts;
  // kF32, or kBF16: the weight is rounded to bfloat16 and kept so; products of bfloat16 are exact in float32, and sums
  // are of float32.
  DType dtype = DType::kF32;

  int64_t outputs() const;
  bool biased() const;               // whether any part is
  const float* Row(int64_t n) const; // of output n, counted through the parts
  AlignedBuffer<float> Bias() const; // of all outputs, zeros for parts without
};

class LinearBackend {
 public:
  virtual ~LinearBackend() = default;
  virtual void Run(ConstRows x, int64_t rows, Rows y, Into into) const = 0;
  // The type of x that is multiplied as it is; the other one is converted first.
  virtual DType operand() const = 0;
};

// Whether oneDNN is built in and can generate and run code in this process; tried once, at the first call.
bool OneDnnRuns();
// Whether it also has instructions for bfloat16 here: without them it refuses, or is slower than in float32.
bool OneDnnRunsBFloat16();

// Both copy the parameters.
std::unique_ptr<const LinearBackend> MakeOneDnnBackend(
    const LinearParameters& parameters);  // needs OneDnnRuns(), and OneDnnRunsBFloat16() where its type is that
std::unique_ptr<const LinearBackend> MakeTileBackend(const LinearParameters& parameters);

}  // namespace qkv
