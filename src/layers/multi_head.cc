#include <algorithm>
#include <numeric>
#include <string>

#include "kernels/round.h"
#include "layers/linear.h"
#include "layers/multi_head_sizes.h"
#include "qkv/error.h"
#include "qkv/layers.h"
#include "runtime/aligned.h"

namespace qkv {
namespace {

using multi_head::CheckBatch;
using multi_head::CheckedSizes;
using multi_head::CheckParameters;
using multi_head::HeadGrid;
using multi_head::Refuse;
using multi_head::Sizes;

LinearPart Part(std::span<const float> weight, std::span<const float> bias, int64_t outputs) {
  return {weight.data(), bias.empty() ? nullptr : bias.data(), outputs};
}

// Memory for rows of either type.
class RowsBuffer {
 public:
  RowsBuffer(int64_t elements, DType dtype)
      : memory_(elements * static_cast<int64_t>(SizeOf(dtype))), dtype_(dtype) {}
  Rows rows() { return {memory_.data(), dtype_}; }

 private:
  AlignedBuffer<std::byte> memory_;
  DType dtype_;
};

struct QueriesKeysValues {
  ConstTensor q, k, v;  // (B, H, T, D)
};

void AttendWithWeights(const QueriesKeysValues& in, const AttentionOptions& options, const Tensor& out,
                       float* weights) {
  if (weights == nullptr) return Attention(in.q, in.k, in.v, options, out);
  CaptureRequest request;
  request.rows.emplace(static_cast<size_t>(in.q.size(2)));
  std::iota(request.rows->begin(), request.rows->end(), 0);
  const Capture capture = AttentionWithCapture(in.q, in.k, in.v, options, request, out);
  std::copy(capture.row_values.begin(), capture.row_values.end(), weights);
}

}  // namespace

void SimplifiedAttention(const float* x, int64_t batch, int64_t length, int64_t width, bool causal, float* out,
                         float* weights) {
  AttentionOptions options;
  options.scale = 1.0f;
  if (causal) options.causal = Causal::kTopLeft;
  const HeadGrid grid{batch, 1, length, width, width};
  const ConstTensor tokens = grid.In(ConstRows(x));
  AttendWithWeights({tokens, tokens, tokens}, options, grid.In(Rows(out)), weights);
}

// A self-attention layer multiplies by W_Q, W_K and W_V at once; a cross-attention layer by W_Q, and by W_K and
// W_V at once.
struct MultiHeadAttention::State {
  MultiHeadConfig config;
  Sizes sizes;
  std::optional<Linear> qkv, q, kv, output;

  void Attend(const QueriesKeysValues& in, float* out, std::optional<Dropout> training, float* weights) const {
    AttentionOptions options;
    options.causal = config.causal;
    if (training && config.dropout > 0) {
      options.dropout_p = config.dropout;
      options.seed = training->seed;
    }
    const int64_t batch = in.q.size(0), length = in.q.size(2);
    const HeadGrid grid{batch, sizes.heads, length, sizes.d_v, sizes.out_width()};
    const int64_t elements = batch * length * sizes.out_width();
    if (!output && in.q.dtype == DType::kF32) return AttendWithWeights(in, options, grid.In(Rows(out)), weights);
    RowsBuffer heads(elements, in.q.dtype);
    AttendWithWeights(in, options, grid.In(heads.rows()), weights);
    if (output) return output->Forward(heads.rows(), batch * length, out);
    WidenToFloat(static_cast<const BFloat16*>(heads.rows().data), elements, out);
  }
};

MultiHeadAttention::MultiHeadAttention(const MultiHeadConfig& config, const MultiHeadParameterViews& parameters) {
  const Sizes sizes = CheckedSizes(config);
  CheckParameters(config, sizes, parameters);
  state_ = std::make_unique<State>(State{config, sizes, {}, {}, {}, {}});
  constexpr Activation kNone = Activation::kNone;
  const LinearPart q = Part(parameters.w_q, parameters.b_q, sizes.q_width());
  const LinearPart k = Part(parameters.w_k, parameters.b_k, sizes.k_width());
  const LinearPart v = Part(parameters.w_v, parameters.b_v, sizes.v_width());
  if (config.d_context) {
    state_->q.emplace(config.d_in, q, kNone, config.dtype);
    state_->kv.emplace(*config.d_context, std::array{k, v}, kNone, config.dtype);
  } else {
    state_->qkv.emplace(config.d_in, std::array{q, k, v}, kNone, config.dtype);
  }
  if (config.output_projection) {
    state_->output.emplace(sizes.out_width(), Part(parameters.w_o, parameters.b_o, config.d_out), kNone,
                            config.dtype);
  }
}

MultiHeadAttention::~MultiHeadAttention() = default;
MultiHeadAttention::MultiHeadAttention(MultiHeadAttention&&) noexcept = default;
MultiHeadAttention& MultiHeadAttention::operator=(MultiHeadAttention&&) noexcept = default;

MultiHeadConfig MultiHeadAttention::OneHead(int64_t d_in, int64_t d_k, int64_t d_v, int64_t d_out) {
  MultiHeadConfig config;
  config.d_in = d_in;
  config.d_out = d_out;
  config.d_k = d_k;
  config.d_v = d_v;
  config.output_bias = false;
  return config;
}

MultiHeadConfig MultiHeadAttention::CausalHead(int64_t d_in, int64_t d_out, int64_t context_length,
                                               float dropout, bool qkv_bias) {
  MultiHeadConfig config = CausalMultiHead(d_in, d_out, context_length, 1, dropout, qkv_bias);
  config.output_projection = false;
  return config;
}

MultiHeadConfig MultiHeadAttention::CausalMultiHead(int64_t d_in, int64_t d_out, int64_t context_length,
                                                    int64_t num_heads, float dropout, bool qkv_bias,
                                                    bool output_projection) {
  MultiHeadConfig config;
  config.d_in = d_in;
  config.d_out = d_out;
  config.num_heads = num_heads;
  config.context_length = context_length;
  config.causal = Causal::kTopLeft;
  config.dropout = dropout;
  config.qkv_bias = qkv_bias;
  config.output_projection = output_projection;
  return config;
}

const MultiHeadConfig& MultiHeadAttention::config() const { return state_->config; }

void MultiHeadAttention::Forward(const float* x, int64_t batch, int64_t length, float* out,
                                 std::optional<Dropout> training, float* weights) const {
  const Sizes& sizes = state_->sizes;
  if (!state_->qkv) {
    if (*state_->config.d_context != state_->config.d_in) {
      Refuse("a cross-attention layer needs a second sequence", "d_context",
             "d_in = " + std::to_string(state_->config.d_in) + " for self-attention",
             std::to_string(*state_->config.d_context));
    }
    return Cross(x, x, batch, length, length, out, training, weights);
  }
  CheckBatch(batch, length, state_->config.context_length, "length");
  const int64_t row = state_->qkv->outputs();
  RowsBuffer qkv(batch * length * row, state_->qkv->operand());
  state_->qkv->Forward(x, batch * length, qkv.rows());
  const ConstRows q = qkv.rows(), k = q.From(sizes.q_width()), v = k.From(sizes.k_width());
  state_->Attend({HeadGrid{batch, sizes.heads, length, sizes.d_k, row}.In(q),
                  HeadGrid{batch, sizes.kv_heads, length, sizes.d_k, row}.In(k),
                  HeadGrid{batch, sizes.kv_heads, length, sizes.d_v, row}.In(v)},
                 out, training, weights);
}

void MultiHeadAttention::Cross(const float* x, const float* context, int64_t batch, int64_t q_length,
                               int64_t kv_length, float* out, std::optional<Dropout> training,
                               float* weights) const {
  const Sizes& sizes = state_->sizes;
  if (state_->qkv) {
    Refuse("not a cross-attention layer", "d_context", "the width of the second sequence", "none");
  }
  CheckBatch(batch, q_length, state_->config.context_length, "q_length");
  CheckBatch(batch, kv_length, state_->config.context_length, "kv_length");
  const int64_t row = state_->kv->outputs();
  RowsBuffer q(batch * q_length * sizes.q_width(), state_->q->operand());
  RowsBuffer kv(batch * kv_length * row, state_->kv->operand());
  state_->q->Forward(x, batch * q_length, q.rows());
  state_->kv->Forward(context, batch * kv_length, kv.rows());
  const ConstRows k = kv.rows(), v = k.From(sizes.k_width());
  state_->Attend({HeadGrid{batch, sizes.heads, q_length, sizes.d_k, sizes.q_width()}.In(ConstRows(q.rows())),
                  HeadGrid{batch, sizes.kv_heads, kv_length, sizes.d_k, row}.In(k),
                  HeadGrid{batch, sizes.kv_heads, kv_length, sizes.d_v, row}.In(v)},
                 out, training, weights);
}

MultiHeadStack::MultiHeadStack(const MultiHeadConfig& head, const std::vector<MultiHeadParameters>& heads) {
  if (heads.empty()) Refuse("a stack without heads", "heads", "at least 1", "0");
  heads_.reserve(heads.size());
  for (const MultiHeadParameters& parameters : heads) heads_.emplace_back(head, parameters);
}

int64_t MultiHeadStack::width() const {
  return static_cast<int64_t>(heads_.size()) * heads_.front().config().d_out;
}

void MultiHeadStack::Forward(const float* x, int64_t batch, int64_t length, float* out,
                             std::optional<Dropout> training) const {
  const int64_t d_out = heads_.front().config().d_out, rows = batch * length;
  AlignedBuffer<float> one(std::max<int64_t>(rows, 0) * d_out);
  for (size_t h = 0; h < heads_.size(); ++h) {
    // Each head drops weights of its own.
    if (training && h > 0) ++training->seed;
    heads_[h].Forward(x, batch, length, one.data(), training);
    float* to = out + static_cast<int64_t>(h) * d_out;
    for (int64_t r = 0; r < rows; ++r) std::copy_n(one.data() + r * d_out, d_out, to + r * width());
  }
}

}  // namespace qkv
