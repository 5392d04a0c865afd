// One layer of a causal model, normalised before each step:
//   h = h + W_O attention(norm(h)), then h = h + feed_forward(norm(h)).
// The attention between Project and Finish, and the turning of q and k before it, are the caller's.
#pragma once

#include <cstdint>
#include <optional>
#include <variant>

#include "layers/layer_norm.h"
#include "layers/stored_linear.h"
#include "layers/rms_norm.h"
#include "models/causal_config.h"
#include "models/causal_tensors.h"

namespace qkv {

class CausalNorm {
 public:
  // Error{kFile} naming the tensor that is missing or has another shape.
  CausalNorm(const CausalTensors& tensors, const CausalConfig& config, const std::string& module);
  void Forward(const float* x, int64_t rows, float* out) const;

 private:
  std::variant<LayerNorm, RmsNorm> norm_;
};

class CausalLayer {
 public:
  // `index` counts from 0. Error{kFile} naming the tensor that is missing or has another shape or type.
  CausalLayer(const CausalTensors& tensors, const CausalConfig& config, int64_t index, std::optional<DType> dtype);

  // What passages of so many rows multiply with: made for each anew and not kept, since it is several times as large as
  // the blocks that it is made of.
  struct Packed {
    std::optional<Linear> qkv, output, up, down;
  };
  Packed Pack(int64_t rows) const;

  // h (rows, C) -> qkv (rows, (Hq + 2 Hkv) D): the queries of all heads, then the keys, then the values.
  // scratch: ScratchSize(rows) floats, here and below. packed: Pack(rows).
  void Project(const float* h, int64_t rows, const Packed& packed, float* qkv, float* scratch) const;
  // The rest of the layer. attended: (rows, Hq D), the heads' outputs side by side; h: (rows, C), read and written.
  void Finish(ConstRows attended, int64_t rows, const Packed& packed, float* h, float* scratch) const;
  // What its matrices are multiplied in where there are many rows.
  DType dtype() const { return qkv_.dtype(); }
  int64_t ScratchSize(int64_t rows) const;

 private:
  struct HeadNorms {
    RmsNorm q, k;
  };

  void FeedForward(const float* normal, int64_t rows, const Packed& packed, float* h, float* scratch) const;

  int64_t width_, inner_width_, heads_, kv_heads_, head_width_;
  FeedForwardKind feed_forward_;
  CausalNorm attention_norm_;
  StoredLinear qkv_;
  std::optional<HeadNorms> head_norms_;
  StoredLinear output_;
  CausalNorm feed_forward_norm_;
  StoredLinear up_, down_;  // up_: the gates first where the feed-forward layer is gated
};

}  // namespace qkv
