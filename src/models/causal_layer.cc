#include "models/causal_layer.h"

#include <algorithm>
#include <array>
#include <string>
#include <utility>
#include <vector>

#include "layers/swiglu.h"
#include "models/causal_matrix.h"
#include "runtime/threads.h"

namespace qkv {
namespace {

// Rows that pass through the rest of a layer at a time: what they widen to stays in the second-level caches, and the
// multiplies are tall enough to run at full speed.
constexpr int64_t kRowsAtOnce = 256;

std::variant<LayerNorm, RmsNorm> ReadNorm(const CausalTensors& tensors, const CausalConfig& config,
                                          const std::string& module) {
  const auto epsilon = static_cast<float>(config.epsilon);
  const Floats gain = tensors.RequireFloats(module + ".weight", {config.width});
  if (config.norm == NormKind::kRms) return RmsNorm(gain.values, epsilon);
  const Floats shift = tensors.RequireFloats(module + ".bias", {config.width});
  return LayerNorm(gain.values, shift.values, epsilon);
}

// W_Q, W_K and W_V in one multiply.
StoredLinear ReadQkv(const CausalTensors& tensors, const CausalConfig& config, int64_t layer, std::optional<DType> dtype) {
  const CausalNames& names = tensors.names();
  const int64_t q = config.heads * config.head_width, kv = config.kv_heads * config.head_width;
  const MatrixOptions options{config.biases.qkv ? Biased::kYes : Biased::kNo, Activation::kNone, dtype,
                              tensors.names().rows};
  if (*names.qkv != '\0') {
    return ReadMatrix(tensors, config.width, {{tensors.Module(names.qkv, layer), q + 2 * kv}}, options);
  }
  return ReadMatrix(tensors, config.width,
                    {{tensors.Module(names.q, layer), q},
                     {tensors.Module(names.k, layer), kv},
                     {tensors.Module(names.v, layer), kv}},
                    options);
}

StoredLinear ReadOutput(const CausalTensors& tensors, const CausalConfig& config, int64_t layer, std::optional<DType> dtype) {
  const MatrixOptions options{config.biases.output ? Biased::kYes : Biased::kNo, Activation::kNone, dtype,
                              tensors.names().rows};
  return ReadMatrix(tensors, config.heads * config.head_width,
                    {{tensors.Module(tensors.names().attention_output, layer), config.width}}, options);
}

StoredLinear ReadUp(const CausalTensors& tensors, const CausalConfig& config, int64_t layer, std::optional<DType> dtype) {
  const Biased biased = config.biases.feed_forward ? Biased::kYes : Biased::kNo;
  std::vector<NamedPart> parts;
  if (config.feed_forward == FeedForwardKind::kGated) {
    parts.push_back({tensors.Module(tensors.names().gate, layer), config.inner_width});
  }
  parts.push_back({tensors.Module(tensors.names().up, layer), config.inner_width});
  return ReadMatrix(tensors, config.width, parts, {biased, config.activation, dtype, tensors.names().rows});
}

StoredLinear ReadDown(const CausalTensors& tensors, const CausalConfig& config, int64_t layer, std::optional<DType> dtype) {
  const MatrixOptions options{config.biases.feed_forward ? Biased::kYes : Biased::kNo, Activation::kNone, dtype,
                              tensors.names().rows};
  return ReadMatrix(tensors, config.inner_width,
                    {{tensors.Module(tensors.names().down, layer), config.width}}, options);
}

}  // namespace

CausalNorm::CausalNorm(const CausalTensors& tensors, const CausalConfig& config, const std::string& module)
    : norm_(ReadNorm(tensors, config, module)) {}

void CausalNorm::Forward(const float* x, int64_t rows, float* out) const {
  std::visit([&](const auto& norm) { norm.Forward(x, rows, out); }, norm_);
}

CausalLayer::CausalLayer(const CausalTensors& tensors, const CausalConfig& config, int64_t index, std::optional<DType> dtype)
    : width_(config.width),
      inner_width_(config.inner_width),
      heads_(config.heads),
      kv_heads_(config.kv_heads),
      head_width_(config.head_width),
      feed_forward_(config.feed_forward),
      attention_norm_(tensors, config, tensors.Module(tensors.names().attention_norm, index)),
      qkv_(ReadQkv(tensors, config, index, dtype)),
      output_(ReadOutput(tensors, config, index, dtype)),
      feed_forward_norm_(tensors, config, tensors.Module(tensors.names().feed_forward_norm, index)),
      up_(ReadUp(tensors, config, index, dtype)),
      down_(ReadDown(tensors, config, index, dtype)) {
  if (!config.head_norms) return;
  const auto norm = [&](const char* name) {
    const std::string tensor = tensors.Module(name, index) + ".weight";
    return RmsNorm(tensors.RequireFloats(tensor, {head_width_}).values, static_cast<float>(config.epsilon));
  };
  head_norms_.emplace(HeadNorms{norm(tensors.names().q_norm), norm(tensors.names().k_norm)});
}

// One thread a matrix, the largest first: threads that share one wait for each other.
CausalLayer::Packed CausalLayer::Pack(int64_t rows) const {
  Packed packed;
  if (rows <= StoredLinear::kFewRows) return packed;
  const std::array<std::pair<const StoredLinear*, std::optional<Linear>*>, 4> matrices{
      {{&up_, &packed.up}, {&down_, &packed.down}, {&qkv_, &packed.qkv}, {&output_, &packed.output}}};
  ParallelFor(static_cast<int64_t>(matrices.size()), [&](int64_t i, int) {
    const auto& [matrix, to] = matrices[static_cast<size_t>(i)];
    *to = matrix->Pack(rows);
  });
  return packed;
}

void CausalLayer::Project(const float* h, int64_t rows, const Packed& packed, float* qkv, float* scratch) const {
  const int64_t stride = qkv_.outputs();
  for (int64_t first = 0; first < rows; first += kRowsAtOnce) {
    const int64_t count = std::min(kRowsAtOnce, rows - first);
    attention_norm_.Forward(h + first * width_, count, scratch);
    qkv_.Forward(scratch, count, qkv + first * stride, Into::kOverwrite, packed.qkv);
  }
  if (!head_norms_) return;
  head_norms_->q.ForwardHeads(qkv, rows, stride, heads_);
  head_norms_->k.ForwardHeads(qkv + heads_ * head_width_, rows, stride, kv_heads_);
}

void CausalLayer::Finish(ConstRows attended, int64_t rows, const Packed& packed, float* h, float* scratch) const {
  for (int64_t first = 0; first < rows; first += kRowsAtOnce) {
    const int64_t count = std::min(kRowsAtOnce, rows - first);
    float* h_rows = h + first * width_;
    output_.Forward(attended.From(first * output_.inputs()), count, h_rows, Into::kAdd, packed.output);
    feed_forward_norm_.Forward(h_rows, count, scratch);
    FeedForward(scratch, count, packed, h_rows, scratch + count * width_);
  }
}

void CausalLayer::FeedForward(const float* normal, int64_t rows, const Packed& packed, float* h, float* scratch) const {
  up_.Forward(normal, rows, scratch, Into::kOverwrite, packed.up);
  if (feed_forward_ == FeedForwardKind::kPlain) return down_.Forward(scratch, rows, h, Into::kAdd, packed.down);
  float* gated = scratch + rows * up_.outputs();
  SwiGlu(scratch, rows, inner_width_, gated);
  down_.Forward(gated, rows, h, Into::kAdd, packed.down);
}

int64_t CausalLayer::ScratchSize(int64_t rows) const {
  return std::min(rows, kRowsAtOnce) * (width_ + up_.outputs() + inner_width_);
}

}  // namespace qkv
