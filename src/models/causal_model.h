// A causal model of any family: embeddings, layers, a norm and the output matrix.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "models/causal_layer.h"
#include "models/causal_matrix.h"
#include "models/look.h"
#include "qkv/generate.h"
#include "qkv/model.h"
#include "runtime/aligned.h"

namespace qkv {

ModelInfo CausalInfo(const std::string& name, const CausalConfig& config, int64_t parameters);

class CausalModel : public Model {
 public:
  // B sequences of T tokens each, which stand at positions first ... first + T - 1.
  struct Passage {
    int64_t batch = 1, length = 0, first = 0;
    int64_t rows() const { return batch * length; }
  };
  // What the layers work in, for passages of a number of rows; kept from call to call where that is of use.
  struct Buffers {
    AlignedBuffer<float> h, qkv, scratch;
    AlignedBuffer<std::byte> rounded, attended;  // rounded: qkv in attention's type, where that is another
  };
  // One layer's attention; `attention` has (B, H, T, D) views, `options` the layer's scale, window and causal rule.
  using Attend = std::function<void(int64_t layer, const LayerAttention& attention,
                                    const AttentionOptions& options)>;

  CausalModel(ModelInfo info, CausalConfig config, const CausalTensors& tensors,
              std::unique_ptr<const Tokenizer> tokenizer, std::optional<DType> dtype);

  const ModelInfo& info() const override { return info_; }
  const Tokenizer& tokenizer() const override { return *tokenizer_; }
  std::vector<float> Forward(const std::vector<int64_t>& ids, int64_t batch, const std::vector<int64_t>* lengths,
                             const Progress& progress) const override;
  ModelCapture Look(const Encoding& text, const LookRequest& request,
                    std::vector<float>* hidden) const override;
  std::vector<float> Layers(const std::vector<int64_t>& ids, const Progress& progress) const override;
  OpenLayer Open(const Encoding& text, int64_t layer) const override;

  const CausalConfig& config() const { return config_; }
  // What q, k, v and the heads' outputs are: bfloat16 where the matrices are multiplied in it, else float32.
  DType attention_dtype() const { return layers_.front()->dtype(); }
  Buffers MakeBuffers(int64_t rows) const;
  // Error{kInvalidArgument}: no ids, an id outside the vocabulary, positions from `most` on.
  void CheckTokens(std::span<const int64_t> ids, const Passage& passage, int64_t most) const;
  // buffers.h = the passage's embeddings, then what the first `layers` layers make of them.
  void Embed(std::span<const int64_t> ids, const Passage& passage, Buffers& buffers) const;
  void RunLayers(const Passage& passage, int64_t layers, const Attend& attend, Buffers& buffers,
                 const Progress& progress) const;
  // h (rows, C), after the last layer: normalised where it lies; logits (rows, V) of what is normalised.
  void Normalise(float* h, int64_t rows) const { final_norm_.Forward(h, rows, h); }
  void Logits(const float* normal, int64_t rows, float* logits) const { output_.Forward(normal, rows, logits); }

 private:
  void Turn(const Passage& passage, const RopeTable& table, Buffers& buffers) const;
  RopeTable Angles(const Passage& passage) const;
  LayerAttention HeadsOf(const Passage& passage, Buffers& buffers) const;
  void Round(const Passage& passage, Buffers& buffers) const;

  ModelInfo info_;
  CausalConfig config_;
  CausalTensors tensors_;
  std::unique_ptr<const Tokenizer> tokenizer_;
  RowTable embeddings_;  // (V, C)
  std::optional<RowTable> positions_;  // (max_tokens, C), where positions are learned
  std::optional<RopeFrequencies> frequencies_;  // none where they change with the text's length
  std::vector<std::optional<CausalLayer>> layers_;  // all filled
  CausalNorm final_norm_;
  StoredLinear output_;
};

}  // namespace qkv
