// A causal model's layer laid open (Model::Open).
#include <algorithm>
#include <string>

#include "models/causal_matrix.h"
#include "models/causal_model.h"
#include "qkv/attention.h"
#include "qkv/error.h"

namespace qkv {
namespace {

std::vector<float> Copy(const Floats& floats) { return {floats.values.begin(), floats.values.end()}; }

class Reader {
 public:
  Reader(const CausalTensors& tensors, const CausalConfig& config, int64_t layer)
      : tensors_(tensors), names_(tensors.names()), config_(config), layer_(layer) {}

  MultiHeadParameters Parameters() const {
    const int64_t q = config_.heads * config_.head_width, kv = config_.kv_heads * config_.head_width;
    MultiHeadParameters p;
    if (*names_.qkv != '\0') {
      Split(Weight(names_.qkv, config_.width, q + 2 * kv), {q * config_.width, kv * config_.width}, p.w_q,
            p.w_k, p.w_v);
      Split(Bias(names_.qkv, q + 2 * kv, config_.biases.qkv), {q, kv}, p.b_q, p.b_k, p.b_v);
    } else {
      p.w_q = Weight(names_.q, config_.width, q), p.b_q = Bias(names_.q, q, config_.biases.qkv);
      p.w_k = Weight(names_.k, config_.width, kv), p.b_k = Bias(names_.k, kv, config_.biases.qkv);
      p.w_v = Weight(names_.v, config_.width, kv), p.b_v = Bias(names_.v, kv, config_.biases.qkv);
    }
    p.w_o = Weight(names_.attention_output, q, config_.width);
    p.b_o = Bias(names_.attention_output, config_.width, config_.biases.output);
    return p;
  }

  OpenNorm Norm(std::vector<float> hidden) const {
    const std::string module = tensors_.Module(names_.attention_norm, layer_);
    const bool rms = config_.norm == NormKind::kRms;
    return {rms ? ExplainedNorm::kRms : ExplainedNorm::kLayer, static_cast<float>(config_.epsilon),
            std::move(hidden), Vector(module + ".weight", config_.width),
            rms ? std::vector<float>() : Vector(module + ".bias", config_.width)};
  }

  OpenHeadNorms HeadNorms() const {
    const auto gain = [&](const char* name) {
      return Vector(tensors_.Module(name, layer_) + ".weight", config_.head_width);
    };
    return {gain(names_.q_norm), gain(names_.k_norm), static_cast<float>(config_.epsilon)};
  }

 private:
  struct Sizes {
    int64_t q, kv;
  };

  std::vector<float> Vector(const std::string& tensor, int64_t size) const {
    return Copy(tensors_.RequireFloats(tensor, {size}));
  }

  std::vector<float> Weight(const char* name, int64_t inputs, int64_t outputs) const {
    return Copy(ReadWeight(tensors_, {tensors_.Module(name, layer_), outputs}, inputs, names_.rows));
  }

  std::vector<float> Bias(const char* name, int64_t outputs, bool biased) const {
    return biased ? Vector(tensors_.Module(name, layer_) + ".bias", outputs) : std::vector<float>();
  }

  // What a family keeps in one tensor. Nothing where it has no such tensor.
  static void Split(const std::vector<float>& all, Sizes sizes, std::vector<float>& q, std::vector<float>& k,
                    std::vector<float>& v) {
    if (all.empty()) return;
    const auto k_begin = all.begin() + sizes.q, v_begin = k_begin + sizes.kv;
    q.assign(all.begin(), k_begin);
    k.assign(k_begin, v_begin);
    v.assign(v_begin, all.end());
  }

  const CausalTensors& tensors_;
  const CausalNames& names_;
  const CausalConfig& config_;
  int64_t layer_;
};

}  // namespace

OpenLayer CausalModel::Open(const Encoding& text, int64_t layer) const {
  const Passage passage{1, static_cast<int64_t>(text.ids.size()), 0};
  CheckTokens(text.ids, passage, config_.max_tokens);
  if (layer < 0 || layer >= info_.layers) {
    throw Error(ErrorCode::kInvalidArgument, "no such layer", "layer",
                "0 to " + std::to_string(info_.layers - 1), std::to_string(layer));
  }
  Buffers buffers = MakeBuffers(passage.rows());
  Embed(text.ids, passage, buffers);
  const auto attend = [](int64_t, const LayerAttention& heads, const AttentionOptions& options) {
    Attention(heads.q, heads.k, heads.v, options, heads.out);
  };
  RunLayers(passage, layer, attend, buffers, {});
  const Reader reader(tensors_, config_, layer);
  OpenLayer open;
  open.model = info_.name;
  open.layer = layer;
  open.tokens = text.labels;
  MultiHeadConfig& config = open.config;
  config.d_in = config.d_out = config_.width;
  config.num_heads = config_.heads;
  config.kv_heads = config_.kv_heads;
  config.d_k = config.d_v = config_.head_width;
  config.causal = Causal::kTopLeft;
  config.qkv_bias = config_.biases.qkv;
  config.output_bias = config_.biases.output;
  open.parameters = reader.Parameters();
  open.norm = reader.Norm({buffers.h.data(), buffers.h.data() + buffers.h.size()});
  open.input.resize(open.norm->hidden.size());
  const CausalNorm norm(tensors_, config_, tensors_.Module(tensors_.names().attention_norm, layer));
  norm.Forward(buffers.h.data(), passage.rows(), open.input.data());
  if (config_.head_norms) open.head_norms = reader.HeadNorms();
  if (config_.rope) open.rope = OpenRope{config_.pairing, Angles(passage)};
  open.scale = config_.scales[static_cast<size_t>(layer)];
  open.window = config_.windows[static_cast<size_t>(layer)];
  return open;
}

}  // namespace qkv
