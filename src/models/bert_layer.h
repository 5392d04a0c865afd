// One layer of a BERT encoder (Devlin et al. 2019, after Vaswani et al. 2017), normalised after each step:
//   h = norm(h + W_O attention(h)), then h = norm(h + W_down f(W_up h)).
// The attention between Project and Finish is the caller's.
#pragma once

#include <cstdint>
#include <string>

#include "formats/config.h"
#include "formats/tensor_files.h"
#include "layers/layer_norm.h"
#include "layers/linear.h"
#include "qkv/layers.h"

namespace qkv {

// Tensors of a BERT checkpoint by their names in transformers' BertModel.
class BertTensors {
 public:
  explicit BertTensors(const TensorFiles& files);

  void CheckLayers(int64_t layers) const;  // Error{kFile} where there is one beyond those that the config gives
  Floats Matrix(const std::string& name, int64_t rows, int64_t columns) const;
  Floats Vector(const std::string& name, int64_t size) const;
  // `name` + ".weight" and ".bias", or ".gamma" and ".beta" as files converted from TensorFlow call them.
  LayerNorm Norm(const std::string& name, const BertConfig& config) const;

 private:
  const TensorFiles& files_;
  std::string prefix_;  // "bert." where the file holds a model with a head on top
};

// A copy of what the attention of layer `index` multiplies by, in float32.
MultiHeadParameters ReadAttention(const BertTensors& tensors, int64_t width, int64_t index);

// The hidden states (rows, C): sums and norms are float32, and multiplies read what norms rounded beside it.
struct HiddenRows {
  float* values = nullptr;
  BFloat16* rounded = nullptr;  // where the model's operand is bfloat16, else null

  ConstRows operand() const { return rounded == nullptr ? ConstRows(values) : ConstRows(rounded); }
  HiddenRows From(int64_t element) const {
    return {values + element, rounded == nullptr ? nullptr : rounded + element};
  }
};

class BertLayer {
 public:
  // `index` counts from 0; dtype: of the matrices. Error{kFile} naming the tensor that is missing or has another shape.
  BertLayer(const BertTensors& tensors, const BertConfig& config, int64_t index, DType dtype);

  // h (rows, C) -> qkv (rows, 3 C): the queries of all heads, then the keys, then the values.
  void Project(const HiddenRows& h, int64_t rows, Rows qkv) const { qkv_.Forward(h.operand(), rows, qkv); }
  // The rest of the layer. attended: (rows, C), the heads' outputs side by side; h: (rows, C), read and
  // written; scratch: ScratchSize(rows) elements. attended and scratch are of operand()'s type.
  void Finish(ConstRows attended, int64_t rows, const HiddenRows& h, Rows scratch) const;
  int64_t ScratchSize(int64_t rows) const;
  // What activations between the multiplies are kept in: bfloat16 where they are multiplied in it.
  DType operand() const { return qkv_.operand(); }

 private:
  int64_t PartRows(int64_t rows) const;

  Linear qkv_, output_;
  LayerNorm output_norm_;
  Linear up_, down_;
  LayerNorm down_norm_;
};

}  // namespace qkv
