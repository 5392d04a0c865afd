// Recording what a model's heads attend to while it runs, for every family alike.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "qkv/attention.h"
#include "qkv/capture.h"
#include "qkv/model.h"
#include "qkv/tensor.h"
#include "qkv/tokenizer.h"

namespace qkv {

// One layer's attention of one sequence: q (1, Hq, T, D), k (1, Hkv, T, D), v (1, Hkv, T, Dv), out (1, Hq, T,
// Dv).
struct LayerAttention {
  ConstTensor q, k, v;
  Tensor out;
};

// Error{kInvalidArgument}: not one length for each sequence, or one that is not 0 to `length`.
void CheckLengths(const std::vector<int64_t>* lengths, int64_t batch, int64_t length);

class LookRecorder {
 public:
  // Error{kInvalidArgument}: a layer, head or query that is not there, a negative top_k.
  LookRecorder(const ModelInfo& model, const Encoding& text, const LookRequest& request);

  int64_t LastLayer() const { return capture_.layer_ids.back(); }
  // Computes `out`, and records what was asked of this layer. Layers come in ascending order. options: the layer's
  // scale, window and causal rule.
  void Attend(int64_t layer, const LayerAttention& attention, const AttentionOptions& options);
  ModelCapture Take() { return std::move(capture_); }

 private:
  void Record(const Capture& layer);

  ModelCapture capture_;
};

}  // namespace qkv
