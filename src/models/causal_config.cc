#include "models/causal_config.h"

#include <algorithm>
#include <cmath>

#include "qkv/error.h"

namespace qkv {
namespace {

constexpr JsonObject::IntRange kSize{1, int64_t{1} << 31};
constexpr JsonObject::IntRange kLayers{1, 4096};  // each takes memory before its tensors are looked up
constexpr JsonObject::IntRange kHeads{1, 1 << 16};
constexpr JsonObject::IntRange kToken{0, int64_t{1} << 31};
constexpr JsonObject::OpenRange kPositive{0, 1e12};

// The scaling of positions, from `rope_parameters` (transformers 5) or `rope_scaling`.
RopeConfig ReadScaling(const JsonObject& rope, RopeConfig result, int64_t max_tokens) {
  rope.AllowOnly({"rope_type", "type", "rope_theta", "factor", "original_max_position_embeddings",
                  "low_freq_factor", "high_freq_factor", "beta_fast", "beta_slow", "attention_factor", "mscale",
                  "mscale_all_dim", "truncate", "partial_rotary_factor"});
  const auto trained = [&] { return rope.IntOr("original_max_position_embeddings", max_tokens, kSize); };
  const auto real = [&](const char* key) -> std::optional<double> {
    if (!rope.Has(key)) return {};
    return rope.Real(key, kPositive);
  };
  const char* key = rope.Has("rope_type") ? "rope_type" : "type";
  const std::string kind =
      rope.ChoiceOr(key, "default", {"default", "linear", "dynamic", "yarn", "llama3"});
  if (kind == "linear") result.scaling = LinearRope{rope.Real("factor", kPositive)};
  if (kind == "dynamic") result.scaling = DynamicNtkRope{rope.Real("factor", kPositive), max_tokens, 0};
  if (kind == "llama3") {
    result.scaling = Llama3Rope{rope.Real("factor", kPositive), rope.Real("low_freq_factor", kPositive),
                                rope.Real("high_freq_factor", kPositive), trained()};
  }
  if (kind == "yarn") {
    YarnRope yarn;
    yarn.trained_length = trained();
    yarn.factor = real("factor").value_or(static_cast<double>(max_tokens) /
                                          static_cast<double>(yarn.trained_length));
    yarn.beta_fast = real("beta_fast").value_or(yarn.beta_fast);
    yarn.beta_slow = real("beta_slow").value_or(yarn.beta_slow);
    yarn.amplitude = real("attention_factor");
    yarn.mscale = real("mscale");
    yarn.mscale_all_dim = real("mscale_all_dim");
    yarn.ramp = rope.BoolOr("truncate", true) ? YarnRope::Ramp::kWholePairs : YarnRope::Ramp::kExact;
    result.scaling = yarn;
  }
  return result;
}

RopeConfig ReadRope(const JsonObject& config, const CausalConfig& causal) {
  const std::optional<JsonObject> parameters = config.Object("rope_parameters");
  const std::optional<JsonObject> scaling = parameters ? parameters : config.Object("rope_scaling");
  const auto real = [&](const char* key, double fallback) {
    if (scaling && scaling->Has(key)) return scaling->Real(key, kPositive);
    return config.RealOr(key, fallback, kPositive);
  };
  RopeConfig rope;
  rope.base = real("rope_theta", 10000.0);
  const double turning = static_cast<double>(causal.head_width) * real("partial_rotary_factor", 1.0);
  rope.rotary_dim = static_cast<int64_t>(turning);
  if (rope.rotary_dim < 2 || rope.rotary_dim % 2 != 0 || rope.rotary_dim > causal.head_width) {
    config.Refuse("rotary positions turn pairs of a head's channels", "an even number of channels",
                  std::to_string(rope.rotary_dim) + " of " + std::to_string(causal.head_width));
  }
  return scaling ? ReadScaling(*scaling, rope, causal.max_tokens) : rope;
}

// Which layers see a window only: as `layer_types` lists them, else as the family has it.
std::vector<std::optional<int64_t>> ReadWindows(const JsonObject& config, const CausalConfig& causal) {
  const auto layers = static_cast<size_t>(causal.layers);
  std::vector<std::optional<int64_t>> windows(layers);
  const bool mistral = causal.architecture == "mistral";
  const bool windowed = config.Has("sliding_window") && (mistral || config.BoolOr("use_sliding_window", false));
  if (config.Has("layer_types")) {
    const std::vector<std::string> types = config.Strings("layer_types");
    if (types.size() != layers) {
      config.Refuse("wrong number of layer_types", std::to_string(layers), std::to_string(types.size()));
    }
    for (size_t layer = 0; layer < layers; ++layer) {
      if (types[layer] == "sliding_attention") windows[layer] = config.Int("sliding_window", kSize);
      if (types[layer] == "sliding_attention" || types[layer] == "full_attention") continue;
      config.Refuse("unsupported layer_types", "full_attention or sliding_attention", types[layer]);
    }
  } else if (windowed) {
    const int64_t first = mistral ? 0 : config.IntOr("max_window_layers", 28, {0, kSize.most});
    for (size_t layer = static_cast<size_t>(std::min(first, causal.layers)); layer < layers; ++layer) {
      windows[layer] = config.Int("sliding_window", kSize);
    }
  }
  return windows;
}

// Settings of any family that would change what the model computes.
void RefuseUnsupported(const JsonObject& config) {
  if (config.Has("quantization_config")) {
    config.Refuse("unsupported quantization_config", "float32, float16 or bfloat16 tensors, or a GGUF file",
                  "an object");
  }
  if (config.BoolOr("add_cross_attention", false)) {
    config.Refuse("unsupported add_cross_attention", "false", "true");
  }
}

void CheckHeads(const JsonObject& config, const CausalConfig& causal) {
  if (causal.heads % causal.kv_heads == 0) return;
  config.Refuse("query heads cannot be shared out among the key/value heads",
                "a multiple of " + std::to_string(causal.kv_heads), std::to_string(causal.heads));
}

int64_t WholeHeads(const JsonObject& config, const CausalConfig& causal) {
  if (causal.width % causal.heads != 0) {
    config.Refuse("the width is not a multiple of the number of heads",
                  "a multiple of " + std::to_string(causal.heads), std::to_string(causal.width));
  }
  return causal.width / causal.heads;
}

}  // namespace

CausalConfig ReadLlamaConfig(const JsonObject& config) {
  RefuseUnsupported(config);
  CausalConfig causal;
  causal.architecture = config.String("model_type");
  const bool qwen2 = causal.architecture == "qwen2";
  causal.vocab = config.Int("vocab_size", kSize);
  causal.width = config.Int("hidden_size", kSize);
  causal.layers = config.Int("num_hidden_layers", kLayers);
  causal.heads = config.Int("num_attention_heads", kHeads);
  causal.kv_heads = config.IntOr("num_key_value_heads", causal.heads, kHeads);
  causal.inner_width = config.Int("intermediate_size", kSize);
  causal.max_tokens = config.Int("max_position_embeddings", kSize);
  causal.epsilon = config.RealOr("rms_norm_eps", 1e-6, {0, 1});
  causal.biases.qkv = qwen2 || config.BoolOr("attention_bias", false);
  causal.biases.output = !qwen2 && causal.biases.qkv;
  causal.biases.feed_forward = config.BoolOr("mlp_bias", false);
  causal.head_norms = causal.architecture == "qwen3";
  causal.tied = config.BoolOr("tie_word_embeddings", false);
  config.ChoiceOr("hidden_act", "silu", {"silu"});
  config.IntOr("pretraining_tp", 1, {1, 1});
  CheckHeads(config, causal);
  causal.head_width =
      config.Has("head_dim") ? config.Int("head_dim", {1, 1 << 16}) : WholeHeads(config, causal);
  causal.rope = ReadRope(config, causal);
  causal.windows = ReadWindows(config, causal);
  const auto head = static_cast<double>(causal.head_width);
  causal.scales.assign(static_cast<size_t>(causal.layers), static_cast<float>(1 / std::sqrt(head)));
  causal.end_ids = config.IntsOr("eos_token_id", kToken);
  return causal;
}

CausalConfig ReadGpt2Config(const JsonObject& config) {
  RefuseUnsupported(config);
  CausalConfig causal;
  causal.architecture = "gpt2";
  causal.vocab = config.Int("vocab_size", kSize);
  causal.width = config.Int("n_embd", kSize);
  causal.layers = config.Int("n_layer", kLayers);
  causal.heads = causal.kv_heads = config.Int("n_head", kHeads);
  causal.max_tokens = config.Int("n_positions", kSize);
  causal.head_width = WholeHeads(config, causal);
  causal.inner_width = config.IntOr("n_inner", 4 * causal.width, kSize);
  causal.norm = NormKind::kLayer;
  causal.epsilon = config.RealOr("layer_norm_epsilon", 1e-5, {0, 1});
  causal.feed_forward = FeedForwardKind::kPlain;
  const std::string activation =
      config.ChoiceOr("activation_function", "gelu_new", {"gelu_new", "gelu_pytorch_tanh", "gelu", "relu"});
  causal.activation = activation == "relu"   ? Activation::kRelu
                       : activation == "gelu" ? Activation::kGeluErf
                                              : Activation::kGeluTanh;
  causal.biases = {true, true, true};
  causal.tied = config.BoolOr("tie_word_embeddings", true);
  causal.windows.resize(static_cast<size_t>(causal.layers));
  const bool by_width = config.BoolOr("scale_attn_weights", true);
  const bool by_layer = config.BoolOr("scale_attn_by_inverse_layer_idx", false);
  for (int64_t layer = 0; layer < causal.layers; ++layer) {
    const double scale = by_width ? 1 / std::sqrt(static_cast<double>(causal.head_width)) : 1.0;
    causal.scales.push_back(static_cast<float>(by_layer ? scale / static_cast<double>(layer + 1) : scale));
  }
  causal.end_ids = config.IntsOr("eos_token_id", kToken);
  return causal;
}

}  // namespace qkv
