// The last projection of a language model and its cross-entropy, together: some rows of logits at a time are
// made, turned into their gradients and multiplied on, so that the logits of all rows are never in memory.
#pragma once

#include <cstdint>
#include <span>

#include "qkv/tensor.h"
#include "runtime/aligned.h"

namespace qkv {

// T is float or BFloat16: of hidden states and of the table.
template <class T>
class HeadLoss {
 public:
  HeadLoss(int64_t vocab, int64_t width, int64_t rows);  // of at most `rows` hidden states a call

  // The sum over rows of -log softmax(hidden table^T)[target], in nats. hidden (rows, width); table (vocab,
  // width). Error{kInvalidArgument} for a target outside [0, vocab).
  double Forward(const T* hidden, std::span<const int32_t> targets, const T* table);

  // The same, and the gradients of `scale` times the sum: hidden becomes its own gradient, dtable (vocab,
  // width) is added to.
  double Backward(T* hidden, std::span<const int32_t> targets, const T* table, float scale, float* dtable);

 private:
  void MakeLogits(const T* hidden, int64_t rows, const T* table);
  void CheckTargets(std::span<const int32_t> targets) const;
  double SumOfLosses(int64_t rows) const;

  int64_t vocab_, width_, chunk_;
  AlignedBuffer<float> logits_;   // (chunk, vocab)
  AlignedBuffer<T> gradients_;    // (chunk, vocab); empty for float, whose gradients take the logits' place
  AlignedBuffer<double> losses_;  // (chunk)
};

}  // namespace qkv
