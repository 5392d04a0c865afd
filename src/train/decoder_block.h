// One block of a GPT-2 decoder, forward and backward:
//   middle = x + dropout(heads(norm1(x)) W + b),  out = middle + dropout(gelu(norm2(middle) W + b) W + b).
// T is float or BFloat16: of multiplies and what is kept for them. The residual stream is float.
#pragma once

#include <cstdint>

#include "runtime/aligned.h"
#include "train/decoder_config.h"
#include "train/seeds.h"
#include "train/weights.h"

namespace qkv::train {

struct PassShape {
  int64_t batch = 0, length = 0;  // sequences, and tokens of each
  int64_t rows() const { return batch * length; }
};

// What the backward needs of a block's forward; the rest it computes again.
template <class T>
struct BlockActivations {
  BlockActivations(const DecoderConfig& config, int64_t rows);

  AlignedBuffer<float> x, middle;  // (rows, C)
  AlignedBuffer<T> qkv;            // (rows, 3 C): queries, keys and values side by side
  AlignedBuffer<T> heads;          // (rows, C): the heads' outputs side by side
  AlignedBuffer<float> lse;        // (B, H, T)
  AlignedBuffer<T> inner;          // (rows, 4 C): before the activation
};

// Shared by all blocks; contents do not outlive a call.
template <class T>
struct BlockScratch {
  BlockScratch(const DecoderConfig& config, int64_t rows);

  AlignedBuffer<T> normal;      // (rows, C): a norm's output
  AlignedBuffer<T> active;      // (rows, 4 C): after the activation
  AlignedBuffer<T> dinner;      // (rows, 4 C); its memory serves dqkv (rows, 3 C) too
  AlignedBuffer<T> dnarrow;     // (rows, C): of norms' and heads' outputs
  AlignedBuffer<float> branch;  // (rows, C): what dropout takes; empty without dropout
  AlignedBuffer<T> dbranch;     // (rows, C): its gradient; empty for float without dropout
};

// Where whatever changes the residual stream's gradient in bfloat16 without dropout leaves it rounded too, for the
// branch that takes it next; null for float and with dropout.
template <class T>
T* RoundedGradient(const PassSeeds& seeds, BlockScratch<T>& scratch);

template <class T>
class Block {
 public:
  using Weights = BlockWeights<const T, const float>;
  using Gradients = BlockWeights<float, float>;

  Block(const DecoderConfig& config, int64_t layer) : config_(config), layer_(layer) {}

  // kept.x (rows, C) -> out (rows, C).
  void Forward(PassShape shape, const Weights& weights, const PassSeeds& seeds, BlockActivations<T>& kept,
               BlockScratch<T>& scratch, float* out) const;
  // dx: the gradient by out becomes that by x; RoundedGradient, where there is one, follows it. gradients are added to.
  void Backward(PassShape shape, const Weights& weights, const PassSeeds& seeds,
                const BlockActivations<T>& kept, BlockScratch<T>& scratch, float* dx,
                const Gradients& gradients) const;

 private:
  struct Projections;
  Projections ProjectionsOf(const Weights& weights) const;
  void FeedForwardBackward(int64_t rows, const Projections& p, const PassSeeds& seeds,
                           const BlockActivations<T>& kept, BlockScratch<T>& scratch, float* dx,
                           const Gradients& gradients) const;
  void AttentionPartBackward(PassShape shape, const Projections& p, const PassSeeds& seeds,
                             const BlockActivations<T>& kept, BlockScratch<T>& scratch, float* dx,
                             const Gradients& gradients) const;

  int64_t AttentionPlace() const { return 1 + 3 * layer_; }
  int64_t HeadsOutPlace() const { return 2 + 3 * layer_; }
  int64_t InnerOutPlace() const { return 3 + 3 * layer_; }

  DecoderConfig config_;
  int64_t layer_;
};

}  // namespace qkv::train
