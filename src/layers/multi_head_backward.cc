#include <algorithm>
#include <array>

#include "layers/multi_head_sizes.h"
#include "layers/projection.h"
#include "qkv/attention_backward.h"
#include "qkv/layers.h"
#include "runtime/aligned.h"

namespace qkv {
namespace {

using multi_head::HeadGrid;
using multi_head::Sizes;

// A layer's backward pass on one input.
class Backward {
 public:
  Backward(const MultiHeadConfig& config, const MultiHeadParameters& parameters, const MultiHeadInput& input)
      : config_(config), p_(parameters), in_(input), sizes_(multi_head::CheckedSizes(config)) {
    multi_head::CheckParameters(config, sizes_, parameters);
    CheckInput();
    kv_length_ = in_.context == nullptr ? in_.q_length : in_.kv_length;
    kv_source_ = in_.context == nullptr ? in_.x : in_.context;
  }

  MultiHeadGradients Run(const float* dout) {
    const int64_t q_width = sizes_.q_width(), k_width = sizes_.k_width(), v_width = sizes_.v_width();
    const AlignedBuffer<float> q = Project(p_.w_q, p_.b_q, in_.x, q_rows(), config_.d_in, q_width);
    const AlignedBuffer<float> k = Project(p_.w_k, p_.b_k, kv_source_, kv_rows(), d_context(), k_width);
    const AlignedBuffer<float> v = Project(p_.w_v, p_.b_v, kv_source_, kv_rows(), d_context(), v_width);
    AlignedBuffer<float> dq(q.size()), dk(k.size()), dv(v.size());
    BackwardOfHeads({q.data(), k.data(), v.data()}, dout, {dq.data(), dk.data(), dv.data()});

    grads_.x.resize(static_cast<size_t>(q_rows() * config_.d_in));
    if (in_.context != nullptr) grads_.context.resize(static_cast<size_t>(kv_rows() * d_context()));
    float* dsource = in_.context == nullptr ? grads_.x.data() : grads_.context.data();
    const Into next = in_.context == nullptr ? Into::kAdd : Into::kOverwrite;
    BackwardOf(p_.w_q, grads_.parameters.w_q, grads_.parameters.b_q,
               {in_.x, dq.data(), q_rows(), config_.d_in, q_width}, grads_.x.data(), Into::kOverwrite);
    BackwardOf(p_.w_k, grads_.parameters.w_k, grads_.parameters.b_k,
               {kv_source_, dk.data(), kv_rows(), d_context(), k_width}, dsource, next);
    BackwardOf(p_.w_v, grads_.parameters.w_v, grads_.parameters.b_v,
               {kv_source_, dv.data(), kv_rows(), d_context(), v_width}, dsource, Into::kAdd);
    return std::move(grads_);
  }

 private:
  struct Arrays {
    const float *q, *k, *v;
  };
  struct Targets {
    float *dq, *dk, *dv;
  };
  // One projection's input and the gradient by its output.
  struct Call {
    const float *x, *dy;
    int64_t rows, inputs, outputs;
  };

  int64_t q_rows() const { return in_.batch * in_.q_length; }
  int64_t kv_rows() const { return in_.batch * kv_length_; }
  int64_t d_context() const { return config_.d_context.value_or(config_.d_in); }

  void CheckInput() const {
    multi_head::CheckBatch(in_.batch, in_.q_length, config_.context_length, "q_length");
    if (in_.context != nullptr) {
      if (!config_.d_context) {
        multi_head::Refuse("not a cross-attention layer", "d_context", "the width of the second sequence",
                           "none");
      }
      return multi_head::CheckBatch(in_.batch, in_.kv_length, config_.context_length, "kv_length");
    }
    if (d_context() != config_.d_in) {
      multi_head::Refuse("a cross-attention layer needs a second sequence", "d_context",
                         "d_in = " + std::to_string(config_.d_in) + " for self-attention",
                         std::to_string(d_context()));
    }
  }

  static AlignedBuffer<float> Project(const std::vector<float>& weight, const std::vector<float>& bias,
                                      const float* x, int64_t rows, int64_t inputs, int64_t outputs) {
    AlignedBuffer<float> y(rows * outputs);
    const Projection<float> projection{weight.data(), bias.empty() ? nullptr : bias.data(), inputs, outputs,
                                       WeightOrder::kOutIn};
    ProjectForward(projection, x, rows, y.data());
    return y;
  }

  void BackwardOf(const std::vector<float>& weight, std::vector<float>& dweight, std::vector<float>& dbias,
                  const Call& call, float* dx, Into into) const {
    const Projection<float> projection{weight.data(), nullptr, call.inputs, call.outputs, WeightOrder::kOutIn};
    dweight.assign(weight.size(), 0.0f);
    if (config_.qkv_bias) dbias.assign(static_cast<size_t>(call.outputs), 0.0f);
    ProjectBackward(projection, call.dy, call.rows, dx, into);
    AddProjectionGradients(projection, call.x, call.dy, call.rows, dweight.data(),
                           config_.qkv_bias ? dbias.data() : nullptr);
  }

  // The gradient by the heads' outputs, and the gradients of W_O: dout itself where there is no W_O.
  const float* BackwardOfOutput(const float* heads, const float* dout, AlignedBuffer<float>& dheads) {
    if (!config_.output_projection) return dout;
    const int64_t width = sizes_.out_width();
    MultiHeadParameters& grads = grads_.parameters;
    const Projection<float> projection{p_.w_o.data(), nullptr, width, config_.d_out, WeightOrder::kOutIn};
    dheads = AlignedBuffer<float>(q_rows() * width);
    grads.w_o.assign(p_.w_o.size(), 0.0f);
    if (config_.output_bias) grads.b_o.assign(static_cast<size_t>(config_.d_out), 0.0f);
    ProjectBackward(projection, dout, q_rows(), dheads.data());
    AddProjectionGradients(projection, heads, dout, q_rows(), grads.w_o.data(),
                           config_.output_bias ? grads.b_o.data() : nullptr);
    return dheads.data();
  }

  void BackwardOfHeads(const Arrays& in, const float* dout, const Targets& to) {
    AttentionOptions options;
    options.causal = config_.causal;
    if (in_.training && config_.dropout > 0) {
      options.dropout_p = config_.dropout;
      options.seed = in_.training->seed;
    }
    const HeadGrid q{in_.batch, sizes_.heads, in_.q_length, sizes_.d_k, sizes_.q_width()};
    const HeadGrid k{in_.batch, sizes_.kv_heads, kv_length_, sizes_.d_k, sizes_.k_width()};
    const HeadGrid v{in_.batch, sizes_.kv_heads, kv_length_, sizes_.d_v, sizes_.v_width()};
    const HeadGrid o{in_.batch, sizes_.heads, in_.q_length, sizes_.d_v, sizes_.out_width()};
    AlignedBuffer<float> heads(q_rows() * sizes_.out_width()), lse(q_rows() * sizes_.heads), dheads;
    const Tensor log_sums(lse.data(), DType::kF32, Shape{in_.batch, sizes_.heads, in_.q_length});
    Attention(q.In(ConstRows(in.q)), k.In(ConstRows(in.k)), v.In(ConstRows(in.v)), options,
              o.In(Rows(heads.data())), &log_sums);
    const float* dout_of_heads = BackwardOfOutput(heads.data(), dout, dheads);
    AttentionBackward(o.In(ConstRows(dout_of_heads)), q.In(ConstRows(in.q)), k.In(ConstRows(in.k)),
                      v.In(ConstRows(in.v)), o.In(ConstRows(heads.data())), log_sums, options,
                      {q.In(Rows(to.dq)), k.In(Rows(to.dk)), v.In(Rows(to.dv)), {}, {}});
  }

  const MultiHeadConfig& config_;
  const MultiHeadParameters& p_;
  const MultiHeadInput& in_;
  Sizes sizes_;
  int64_t kv_length_ = 0;
  const float* kv_source_ = nullptr;
  MultiHeadGradients grads_;
};

}  // namespace

void SimplifiedAttentionBackward(const float* x, const float* dout, int64_t batch, int64_t length,
                                 int64_t width, bool causal, float* dx) {
  AttentionOptions options;
  options.scale = 1.0f;
  if (causal) options.causal = Causal::kTopLeft;
  const int64_t count = batch * length * width;
  AlignedBuffer<float> out(count), lse(batch * length), dk(count), dv(count);
  const HeadGrid grid{batch, 1, length, width, width};
  const Tensor log_sums(lse.data(), DType::kF32, Shape{batch, 1, length});
  const ConstTensor tokens = grid.In(ConstRows(x));
  Attention(tokens, tokens, tokens, options, grid.In(Rows(out.data())), &log_sums);
  AttentionBackward(grid.In(ConstRows(dout)), tokens, tokens, tokens, grid.In(ConstRows(out.data())), log_sums,
                    options, {grid.In(Rows(dx)), grid.In(Rows(dk.data())), grid.In(Rows(dv.data())), {}, {}});
  for (int64_t i = 0; i < count; ++i) dx[i] += dk[i] + dv[i];
}

MultiHeadGradients MultiHeadBackward(const MultiHeadConfig& config, const MultiHeadParameters& parameters,
                                     const MultiHeadInput& input, const float* dout) {
  return Backward(config, parameters, input).Run(dout);
}

std::vector<MultiHeadGradients> MultiHeadStackBackward(const MultiHeadConfig& head,
                                                       const std::vector<MultiHeadParameters>& heads,
                                                       const MultiHeadInput& input, const float* dout) {
  const int64_t rows = input.batch * input.q_length, width = head.d_out;
  const auto count = static_cast<int64_t>(heads.size());
  std::vector<MultiHeadGradients> all;
  AlignedBuffer<float> one(std::max<int64_t>(rows, 0) * width);
  MultiHeadInput of_head = input;
  for (int64_t h = 0; h < count; ++h) {
    if (of_head.training && h > 0) ++of_head.training->seed;  // as the stack's forward has it
    for (int64_t r = 0; r < rows; ++r)
      std::copy_n(dout + (r * count + h) * width, width, one.data() + r * width);
    all.push_back(MultiHeadBackward(head, heads[static_cast<size_t>(h)], of_head, one.data()));
    if (h == 0) continue;
    std::vector<float>&first = all.front().x, &own = all.back().x;
    std::transform(first.begin(), first.end(), own.begin(), first.begin(), std::plus<>());
    own.clear();
  }
  return all;
}

}  // namespace qkv
