#include "layers/head_loss.h"

#include <algorithm>
#include <numeric>
#include <string>
#include <type_traits>

#include "kernels/loss.h"
#include "layers/projection.h"
#include "layers/row_tasks.h"
#include "qkv/error.h"

namespace qkv {
namespace {

// Rows of logits at a time: 8 MiB of them, but enough rows for the multiplies to be fast.
int64_t ChunkRows(int64_t vocab, int64_t rows) {
  return std::min(rows, std::clamp<int64_t>((int64_t{1} << 21) / vocab, 128, 1024));
}

}  // namespace

template <class T>
HeadLoss<T>::HeadLoss(int64_t vocab, int64_t width, int64_t rows)
    : vocab_(vocab),
      width_(width),
      chunk_(ChunkRows(vocab, rows)),
      logits_(chunk_ * vocab),
      gradients_(std::is_same_v<T, float> ? 0 : chunk_ * vocab),
      losses_(chunk_) {}

template <class T>
void HeadLoss<T>::CheckTargets(std::span<const int32_t> targets) const {
  const auto outside =
      std::find_if(targets.begin(), targets.end(), [&](int32_t t) { return t < 0 || t >= vocab_; });
  if (outside == targets.end()) return;
  throw Error(ErrorCode::kInvalidArgument, "token id outside the vocabulary", "targets",
              "0 to " + std::to_string(vocab_ - 1), std::to_string(*outside));
}

template <class T>
void HeadLoss<T>::MakeLogits(const T* hidden, int64_t rows, const T* table) {
  const Projection<T> head{table, nullptr, width_, vocab_, WeightOrder::kOutIn};
  ProjectForward(head, hidden, rows, logits_.data());
}

template <class T>
double HeadLoss<T>::SumOfLosses(int64_t rows) const {
  return std::accumulate(losses_.data(), losses_.data() + rows, 0.0);
}

template <class T>
double HeadLoss<T>::Forward(const T* hidden, std::span<const int32_t> targets, const T* table) {
  CheckTargets(targets);
  const auto count = static_cast<int64_t>(targets.size());
  double sum = 0;
  for (int64_t first = 0; first < count; first += chunk_) {
    const int64_t rows = std::min(chunk_, count - first);
    MakeLogits(hidden + first * width_, rows, table);
    ForRows(rows, vocab_, [&](int64_t row, int64_t some) {
      for (int64_t r = row; r < row + some; ++r) {
        losses_[r] =
            CrossEntropyOf(logits_.data() + r * vocab_, vocab_, targets[static_cast<size_t>(first + r)]);
      }
    });
    sum += SumOfLosses(rows);
  }
  return sum;
}

template <class T>
double HeadLoss<T>::Backward(T* hidden, std::span<const int32_t> targets, const T* table, float scale,
                             float* dtable) {
  CheckTargets(targets);
  const Projection<T> head{table, nullptr, width_, vocab_, WeightOrder::kOutIn};
  T* gradients = gradients_.data();
  if constexpr (std::is_same_v<T, float>) gradients = logits_.data();
  const auto count = static_cast<int64_t>(targets.size());
  double sum = 0;
  for (int64_t first = 0; first < count; first += chunk_) {
    const int64_t rows = std::min(chunk_, count - first);
    T* states = hidden + first * width_;
    MakeLogits(states, rows, table);
    ForRows(rows, vocab_, [&](int64_t row, int64_t some) {
      for (int64_t r = row; r < row + some; ++r) {
        losses_[r] = CrossEntropyRow(logits_.data() + r * vocab_, vocab_,
                                     targets[static_cast<size_t>(first + r)], scale, gradients + r * vocab_);
      }
    });
    AddProjectionGradients<T>(head, states, gradients, rows, dtable, nullptr);
    ProjectBackward(head, gradients, rows, states);
    sum += SumOfLosses(rows);
  }
  return sum;
}

template class HeadLoss<float>;
template class HeadLoss<BFloat16>;

}  // namespace qkv
