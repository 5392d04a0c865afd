#include "models/causal_matrix.h"

#include <algorithm>
#include <utility>

#include "layers/quantised.h"
#include "runtime/aligned.h"
#include "runtime/threads.h"

namespace qkv {
namespace {

std::optional<QuantisedType> Quantisation(StoredType type) {
  switch (type) {
    case StoredType::kQ8_0: return QuantisedType::kQ8_0;
    case StoredType::kQ4_0: return QuantisedType::kQ4_0;
    case StoredType::kQ4_1: return QuantisedType::kQ4_1;
    case StoredType::kQ5_0: return QuantisedType::kQ5_0;
    case StoredType::kQ5_1: return QuantisedType::kQ5_1;
    case StoredType::kQ4_K: return QuantisedType::kQ4_K;
    case StoredType::kQ5_K: return QuantisedType::kQ5_K;
    case StoredType::kQ6_K: return QuantisedType::kQ6_K;
    default: return {};
  }
}

// The tensor's blocks, or nothing where it is not quantised.
std::optional<QuantisedMatrix> BlocksOf(const TensorEntry& entry) {
  const auto type = Quantisation(entry.type);
  if (!type) return {};
  return QuantisedMatrix{*type, entry.shape[0], entry.shape[1], entry.bytes.data()};
}

Floats Allocated(int64_t count) {
  Floats floats;
  floats.converted = AlignedBuffer<float>(count);
  floats.values = {floats.converted.data(), static_cast<size_t>(count)};
  return floats;
}

// All parts' blocks, or nothing where one is not quantised.
std::vector<QuantisedMatrix> ReadBlocks(const CausalTensors& tensors, const std::vector<NamedPart>& parts,
                                        int64_t inputs) {
  std::vector<QuantisedMatrix> quantised;
  for (const NamedPart& part : parts) {
    const auto blocks = BlocksOf(tensors.Require(part.module + ".weight", {part.outputs, inputs}));
    if (!blocks) return {};
    quantised.push_back(*blocks);
  }
  return quantised;
}

AlignedBuffer<float> Stacked(const std::vector<Floats>& biases) {
  int64_t count = 0;
  for (const Floats& bias : biases) count += static_cast<int64_t>(bias.values.size());
  AlignedBuffer<float> stacked(count);
  float* to = stacked.data();
  for (const Floats& bias : biases) to = std::copy(bias.values.begin(), bias.values.end(), to);
  return stacked;
}

std::vector<Floats> ReadBiases(const CausalTensors& tensors, const std::vector<NamedPart>& parts, Biased biased) {
  std::vector<Floats> biases;
  for (const NamedPart& part : parts) {
    if (biased == Biased::kNo) break;
    biases.push_back(tensors.RequireFloats(part.module + ".bias", {part.outputs}));
  }
  return biases;
}

}  // namespace

Floats ReadWeight(const CausalTensors& tensors, const NamedPart& part, int64_t inputs, CausalNames::Rows lies) {
  const std::string name = part.module + ".weight";
  if (lies == CausalNames::Rows::kInputs) {
    const Floats from = tensors.RequireFloats(name, {inputs, part.outputs});
    Floats to = Allocated(part.outputs * inputs);
    ParallelFor(part.outputs, [&](int64_t row, int) {
      for (int64_t i = 0; i < inputs; ++i) {
        to.converted[row * inputs + i] = from.values[static_cast<size_t>(i * part.outputs + row)];
      }
    });
    return to;
  }
  const auto blocks = BlocksOf(tensors.Require(name, {part.outputs, inputs}));
  if (!blocks) return tensors.RequireFloats(name, {part.outputs, inputs});
  Floats floats = Allocated(part.outputs * inputs);
  Dequantise(*blocks, 0, part.outputs, DType::kF32, floats.converted.data());
  return floats;
}

StoredLinear ReadMatrix(const CausalTensors& tensors, int64_t inputs, const std::vector<NamedPart>& parts,
                      const MatrixOptions& options) {
  const std::vector<Floats> biases = ReadBiases(tensors, parts, options.biased);
  const auto bias_of = [&](size_t part) { return biases.empty() ? nullptr : biases[part].values.data(); };
  if (!options.dtype && options.lies == CausalNames::Rows::kOutputs) {
    std::vector<QuantisedMatrix> blocks = ReadBlocks(tensors, parts, inputs);
    if (!blocks.empty()) return StoredLinear({std::move(blocks), Stacked(biases), options.activation});
  }
  std::vector<Floats> weights;
  std::vector<LinearPart> linear;
  for (size_t i = 0; i < parts.size(); ++i) {
    weights.push_back(ReadWeight(tensors, parts[i], inputs, options.lies));
    linear.push_back({weights.back().values.data(), bias_of(i), parts[i].outputs});
  }
  return StoredLinear(Linear(inputs, linear, options.activation, options.dtype.value_or(DType::kF32)));
}

RowTable::RowTable(const CausalTensors& tensors, const std::string& tensor, int64_t rows, int64_t width)
    : width_(width), blocks_(BlocksOf(tensors.Require(tensor, {rows, width}))) {
  if (!blocks_) floats_ = tensors.RequireFloats(tensor, {rows, width});
}

void RowTable::CopyRow(int64_t row, float* to) const {
  if (blocks_) return DequantiseRows(*blocks_, row, 1, DType::kF32, to);
  std::copy_n(floats_.values.data() + row * width_, width_, to);
}

}  // namespace qkv
