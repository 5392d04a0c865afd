#include "train/decoder_block.h"

#include <type_traits>

#include "layers/norm_backward.h"
#include "layers/projection.h"
#include "layers/residual.h"
#include "qkv/attention_backward.h"

namespace qkv::train {
namespace {

// The queries, keys or values of all heads inside rows of `row` elements, as the operator sees them: (B, H, T,
// D).
template <class T>
Tensor HeadsIn(const DecoderConfig& config, PassShape shape, T* first, int64_t row) {
  const int64_t d = config.head_width();
  return {const_cast<std::remove_const_t<T>*>(first),
          DTypeOf<std::remove_const_t<T>>::value,
          Shape{shape.batch, config.heads, shape.length, d},
          {shape.length * row, d, row, 1}};
}

struct AttentionArrays {
  Tensor q, k, v, out;
};
template <class T>
AttentionArrays ArraysOf(const DecoderConfig& config, PassShape shape, T* qkv, T* out) {
  const int64_t c = config.width;
  return {HeadsIn(config, shape, qkv, 3 * c), HeadsIn(config, shape, qkv + c, 3 * c),
          HeadsIn(config, shape, qkv + 2 * c, 3 * c), HeadsIn(config, shape, out, c)};
}

AttentionOptions OptionsOf(const PassSeeds& seeds, int64_t place) {
  AttentionOptions options;
  options.causal = Causal::kTopLeft;
  if (seeds.p() == 0) return options;
  options.dropout_p = seeds.p();
  options.seed = seeds.At(place);
  return options;
}

Tensor LseOf(const DecoderConfig& config, PassShape shape, const float* lse) {
  return {const_cast<float*>(lse), DType::kF32, Shape{shape.batch, config.heads, shape.length}};
}

// out = residual + dropout(x W + b).
template <class T>
void AddBranch(const Projection<T>& p, const T* x, const std::optional<DropoutRows>& dropout,
               const float* residual, int64_t rows, BlockScratch<T>& scratch, float* out) {
  if (!dropout) return ProjectOnto(p, x, rows, residual, out);
  ProjectForward(p, x, rows, scratch.branch.data());
  AddDropped(*dropout, scratch.branch.data(), residual, {rows, p.outputs}, out);
}

// The gradient by a branch's output, where dx is that by the residual sum.
template <class T>
const T* BranchGradient(const std::optional<DropoutRows>& dropout, const float* dx, int64_t rows, int64_t width,
                        BlockScratch<T>& scratch) {
  if (dropout) DropGradient(*dropout, dx, {rows, width}, scratch.dbranch.data());
  if constexpr (std::is_same_v<T, float>) {
    if (!dropout) return dx;
  }
  return scratch.dbranch.data();
}

}  // namespace

template <class T>
BlockActivations<T>::BlockActivations(const DecoderConfig& config, int64_t rows)
    : x(rows * config.width),
      middle(rows * config.width),
      qkv(rows * 3 * config.width),
      heads(rows * config.width),
      lse(rows * config.heads),
      inner(rows * config.inner()) {}

template <class T>
BlockScratch<T>::BlockScratch(const DecoderConfig& config, int64_t rows)
    : normal(rows * config.width),
      active(rows * config.inner()),
      dinner(rows * config.inner()),
      dnarrow(rows * config.width),
      branch(config.dropout > 0 ? rows * config.width : 0),
      dbranch(config.dropout > 0 || !std::is_same_v<T, float> ? rows * config.width : 0) {}

template <class T>
T* RoundedGradient(const PassSeeds& seeds, BlockScratch<T>& scratch) {
  return std::is_same_v<T, float> || seeds.p() > 0 ? nullptr : scratch.dbranch.data();
}

template <class T>
struct Block<T>::Projections {
  Projection<T> qkv, heads_out, inner, inner_out;
  LayerNormParameters norm1, norm2;
};

template <class T>
typename Block<T>::Projections Block<T>::ProjectionsOf(const Weights& w) const {
  const int64_t c = config_.width;
  return {{w.qkv, w.qkv_bias, c, 3 * c},
          {w.heads_out, w.heads_out_bias, c, c},
          {w.inner, w.inner_bias, c, config_.inner()},
          {w.inner_out, w.inner_out_bias, config_.inner(), c},
          {w.norm1_gain, w.norm1_shift, c, config_.norm_epsilon},
          {w.norm2_gain, w.norm2_shift, c, config_.norm_epsilon}};
}

template <class T>
void Block<T>::Forward(PassShape shape, const Weights& weights, const PassSeeds& seeds,
                       BlockActivations<T>& kept, BlockScratch<T>& scratch, float* out) const {
  const Projections p = ProjectionsOf(weights);
  const int64_t rows = shape.rows();
  LayerNormForward(kept.x.data(), rows, p.norm1, scratch.normal.data());
  ProjectForward(p.qkv, scratch.normal.data(), rows, kept.qkv.data());
  const auto arrays = ArraysOf(config_, shape, kept.qkv.data(), kept.heads.data());
  const Tensor lse = LseOf(config_, shape, kept.lse.data());
  Attention(arrays.q, arrays.k, arrays.v, OptionsOf(seeds, AttentionPlace()), arrays.out, &lse);
  AddBranch(p.heads_out, kept.heads.data(), seeds.Rows(HeadsOutPlace()), kept.x.data(), rows, scratch,
            kept.middle.data());

  LayerNormForward(kept.middle.data(), rows, p.norm2, scratch.normal.data());
  ProjectForward(p.inner, scratch.normal.data(), rows, kept.inner.data(), [&](const RowsPart& part) {
    Gelus(Gelu::kTanh, kept.inner.data(), config_.inner(), part, scratch.active.data());
  });
  AddBranch(p.inner_out, scratch.active.data(), seeds.Rows(InnerOutPlace()), kept.middle.data(), rows, scratch,
            out);
}

template <class T>
void Block<T>::Backward(PassShape shape, const Weights& weights, const PassSeeds& seeds,
                        const BlockActivations<T>& kept, BlockScratch<T>& scratch, float* dx,
                        const Gradients& gradients) const {
  const Projections p = ProjectionsOf(weights);
  FeedForwardBackward(shape.rows(), p, seeds, kept, scratch, dx, gradients);
  AttentionPartBackward(shape, p, seeds, kept, scratch, dx, gradients);
}

template <class T>
void Block<T>::FeedForwardBackward(int64_t rows, const Projections& p, const PassSeeds& seeds,
                                   const BlockActivations<T>& kept, BlockScratch<T>& scratch, float* dx,
                                   const Gradients& gradients) const {
  T *normal = scratch.normal.data(), *dnormal = scratch.dnarrow.data();
  T *active = scratch.active.data(), *dinner = scratch.dinner.data();
  const T* d = BranchGradient(seeds.Rows(InnerOutPlace()), dx, rows, config_.width, scratch);
  ProjectBackward(p.inner_out, d, rows, dinner, Into::kOverwrite, [&](const RowsPart& part) {
    GelusBackward(Gelu::kTanh, kept.inner.data(), config_.inner(), part, dinner, active);
  });
  AddProjectionGradients(p.inner_out, active, d, rows, gradients.inner_out, gradients.inner_out_bias);
  ProjectBackward(p.inner, dinner, rows, dnormal);
  LayerNormBackward<T>({kept.middle.data(), dnormal, dx, gradients.norm2_gain, gradients.norm2_shift, normal,
                        RoundedGradient(seeds, scratch)},
                       rows, p.norm2);
  AddProjectionGradients<T>(p.inner, normal, dinner, rows, gradients.inner, gradients.inner_bias);
}

template <class T>
void Block<T>::AttentionPartBackward(PassShape shape, const Projections& p, const PassSeeds& seeds,
                                     const BlockActivations<T>& kept, BlockScratch<T>& scratch, float* dx,
                                     const Gradients& gradients) const {
  const int64_t rows = shape.rows();
  T *normal = scratch.normal.data(), *dnarrow = scratch.dnarrow.data(), *dqkv = scratch.dinner.data();
  const T* d = BranchGradient(seeds.Rows(HeadsOutPlace()), dx, rows, config_.width, scratch);
  ProjectBackward(p.heads_out, d, rows, dnarrow);
  AddProjectionGradients(p.heads_out, kept.heads.data(), d, rows, gradients.heads_out,
                         gradients.heads_out_bias);
  const auto arrays = ArraysOf(config_, shape, kept.qkv.data(), kept.heads.data());
  const auto grads = ArraysOf(config_, shape, dqkv, dnarrow);
  AttentionBackward(grads.out, arrays.q, arrays.k, arrays.v, arrays.out, LseOf(config_, shape, kept.lse.data()),
                    OptionsOf(seeds, AttentionPlace()), {grads.q, grads.k, grads.v, {}, {}});
  ProjectBackward(p.qkv, dqkv, rows, dnarrow);
  LayerNormBackward<T>({kept.x.data(), dnarrow, dx, gradients.norm1_gain, gradients.norm1_shift, normal,
                        RoundedGradient(seeds, scratch)},
                       rows, p.norm1);
  AddProjectionGradients<T>(p.qkv, normal, dqkv, rows, gradients.qkv, gradients.qkv_bias);
}

template float* RoundedGradient(const PassSeeds&, BlockScratch<float>&);
template BFloat16* RoundedGradient(const PassSeeds&, BlockScratch<BFloat16>&);
template struct BlockActivations<float>;
template struct BlockActivations<BFloat16>;
template struct BlockScratch<float>;
template struct BlockScratch<BFloat16>;
template class Block<float>;
template class Block<BFloat16>;

}  // namespace qkv::train
