#include "layers/linear.h"

#include <algorithm>

#include "qkv/error.h"
#include "runtime/aligned.h"
#include "runtime/cpu.h"
#include "runtime/threads.h"

namespace qkv {

int64_t LinearParameters::outputs() const {
  int64_t outputs = 0;
  for (const LinearPart& part : parts) outputs += part.outputs;
  return outputs;
}

bool LinearParameters::biased() const {
  return std::any_of(parts.begin(), parts.end(), [](const LinearPart& part) { return part.bias != nullptr; });
}

const float* LinearParameters::Row(int64_t n) const {
  auto part = parts.begin();
  for (; n >= part->outputs; ++part) n -= part->outputs;
  return part->weight + n * inputs;
}

AlignedBuffer<float> LinearParameters::Bias() const {
  AlignedBuffer<float> bias(outputs());
  float* to = bias.data();
  for (const LinearPart& part : parts) {
    if (part.bias == nullptr) std::fill_n(to, part.outputs, 0.0f);
    if (part.bias != nullptr) std::copy_n(part.bias, part.outputs, to);
    to += part.outputs;
  }
  return bias;
}

namespace {

// Rows that are multiplied before they are activated: few enough for their results to be in the second-level caches
// still, and enough for multiplies at full speed.
constexpr int64_t kActivatedRows = 1024;

void ActivateAll(Activation activation, Rows y, int64_t count) {
  constexpr int64_t kTaskValues = 16384;  // some 5 us, several times what handing out a task costs
  ParallelFor((count + kTaskValues - 1) / kTaskValues, [&](int64_t task, int) {
    const int64_t first = task * kTaskValues, values = std::min(kTaskValues, count - first);
    const Rows part = y.From(first);
    if (y.dtype == DType::kBF16) return Activate(activation, static_cast<BFloat16*>(part.data), values);
    Activate(activation, static_cast<float*>(part.data), values);
  });
}

std::unique_ptr<const LinearBackend> MakeBackend(const LinearParameters& parameters) {
  const bool portable = ChosenIsa() == Isa::kPortable;  // asked for: no generated code either
  const bool runs = parameters.dtype == DType::kBF16 ? OneDnnRunsBFloat16() : OneDnnRuns();
  return !portable && runs ? MakeOneDnnBackend(parameters) : MakeTileBackend(parameters);
}

}  // namespace

Linear::Linear(int64_t inputs, std::span<const LinearPart> parts, Activation activation, DType dtype)
    : inputs_(inputs), activation_(activation), dtype_(dtype) {
  const LinearParameters parameters{inputs, parts, dtype};
  outputs_ = parameters.outputs();
  backend_ = MakeBackend(parameters);
}

Linear::Linear(int64_t inputs, const LinearPart& part, Activation activation, DType dtype)
    : Linear(inputs, std::span(&part, 1), activation, dtype) {}

void Linear::Forward(ConstRows x, int64_t rows, Rows y, Into into) const {
  if (activation_ == Activation::kNone) {
    if (rows > 0) backend_->Run(x, rows, y, into);
    return;
  }
  if (into == Into::kAdd) throw Error(ErrorCode::kInternal, "a layer with an activation does not add to its output");
  for (int64_t first = 0; first < rows; first += kActivatedRows) {
    const int64_t count = std::min(kActivatedRows, rows - first);
    const Rows y_rows = y.From(first * outputs_);
    backend_->Run(x.From(first * inputs_), count, y_rows, into);
    ActivateAll(activation_, y_rows, count * outputs_);
  }
}

}  // namespace qkv
