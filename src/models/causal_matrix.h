// From a model file's tensors to the matrices that its layers multiply by, and the table of its embeddings.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "kernels/quantised.h"
#include "layers/stored_linear.h"
#include "models/causal_tensors.h"

namespace qkv {

enum class Biased { kNo, kYes };

struct MatrixOptions {
  Biased biased = Biased::kNo;
  Activation activation = Activation::kNone;
  std::optional<DType> dtype;  // what is multiplied in; none: quantised matrices as they are, others in float32
  CausalNames::Rows lies = CausalNames::Rows::kOutputs;
};

// The parts' matrices and biases, one after the other. Error{kFile} naming the tensor that is missing or of another
// shape or type.
StoredLinear ReadMatrix(const CausalTensors& tensors, int64_t inputs, const std::vector<NamedPart>& parts,
                      const MatrixOptions& options);

// One part's weight (outputs, inputs) in float32, whatever the file has it as.
Floats ReadWeight(const CausalTensors& tensors, const NamedPart& part, int64_t inputs, CausalNames::Rows lies);

// A matrix whose rows are looked up, quantised or not, where it lies in its file.
class RowTable {
 public:
  RowTable(const CausalTensors& tensors, const std::string& tensor, int64_t rows, int64_t width);

  void CopyRow(int64_t row, float* to) const;

 private:
  int64_t width_;
  std::optional<QuantisedMatrix> blocks_;
  Floats floats_;  // where there are no blocks
};

}  // namespace qkv
