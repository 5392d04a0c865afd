#include "models/gguf_config.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "qkv/error.h"

namespace qkv {
namespace {

constexpr JsonObject::IntRange kSize{1, int64_t{1} << 31};
constexpr JsonObject::IntRange kLayers{1, 4096};
constexpr JsonObject::IntRange kHeads{1, 1 << 16};
constexpr JsonObject::OpenRange kPositive{0, 1e12};

// Settings by their names behind the architecture's: "llama.block_count".
class Settings {
 public:
  Settings(const JsonObject& all, std::string architecture) : all_(all), prefix_(std::move(architecture) + ".") {}

  std::string Key(const char* name) const { return prefix_ + name; }
  bool Has(const char* name) const { return all_.Has(Key(name).c_str()); }
  int64_t Int(const char* name, JsonObject::IntRange range) const { return all_.Int(Key(name).c_str(), range); }
  int64_t IntOr(const char* name, int64_t fallback, JsonObject::IntRange range) const {
    return all_.IntOr(Key(name).c_str(), fallback, range);
  }
  double Real(const char* name, JsonObject::OpenRange range) const { return all_.Real(Key(name).c_str(), range); }
  double RealOr(const char* name, double fallback, JsonObject::OpenRange range) const {
    return all_.RealOr(Key(name).c_str(), fallback, range);
  }
  std::string ChoiceOr(const char* name, const char* fallback, const std::vector<std::string_view>& choices) const {
    return all_.ChoiceOr(Key(name).c_str(), fallback, choices);
  }
  [[noreturn]] void Refuse(const char* name, const std::string& expected, const std::string& got) const {
    all_.Refuse("unsupported " + Key(name), expected, got);
  }

  // Settings of other models' kinds, which would change what this one computes.
  void RefuseOthers() const {
    constexpr std::array kOthers{"expert_count",        "attention.clamp_kqv",     "attention.max_alibi_bias",
                                 "attention.scale",     "logit_scale",             "embedding_scale",
                                 "residual_scale",      "final_logit_softcapping", "attn_logit_softcapping",
                                 "use_parallel_residual", "attention.sliding_window_pattern"};
    for (const char* name : kOthers) {
      if (Has(name)) Refuse(name, "none", "one");
    }
  }

 private:
  const JsonObject& all_;
  std::string prefix_;
};

RopeConfig ReadRope(const Settings& settings, const CausalConfig& config) {
  RopeConfig rope;
  rope.base = settings.RealOr("rope.freq_base", 10000.0, kPositive);
  rope.rotary_dim = settings.IntOr("rope.dimension_count", config.head_width, {2, config.head_width});
  if (rope.rotary_dim % 2 != 0) {
    settings.Refuse("rope.dimension_count", "an even number", std::to_string(rope.rotary_dim));
  }
  const char* kind_key = "rope.scaling.type";
  const std::string kind = settings.ChoiceOr(kind_key, "none", {"none", "linear", "yarn"});
  if (kind == "linear") rope.scaling = LinearRope{settings.Real("rope.scaling.factor", kPositive)};
  if (kind == "yarn") {
    YarnRope yarn;
    yarn.factor = settings.Real("rope.scaling.factor", kPositive);
    yarn.trained_length = settings.IntOr("rope.scaling.original_context_length", config.max_tokens, kSize);
    yarn.beta_fast = settings.RealOr("rope.scaling.yarn_beta_fast", yarn.beta_fast, kPositive);
    yarn.beta_slow = settings.RealOr("rope.scaling.yarn_beta_slow", yarn.beta_slow, kPositive);
    // The file's factor multiplies the amplitude that YaRN would have.
    const double factor = settings.RealOr("rope.scaling.attn_factor", 1.0, kPositive);
    yarn.amplitude = factor * (0.1 * std::log(yarn.factor) + 1.0);
    rope.scaling = yarn;
  }
  return rope;
}

void ReadSizes(const Settings& settings, const CausalTensors& tensors, CausalConfig& config) {
  config.width = settings.Int("embedding_length", kSize);
  config.layers = settings.Int("block_count", kLayers);
  config.heads = settings.Int("attention.head_count", kHeads);
  config.kv_heads = settings.IntOr("attention.head_count_kv", config.heads, kHeads);
  config.inner_width = settings.Int("feed_forward_length", kSize);
  config.max_tokens = settings.Int("context_length", kSize);
  if (config.heads % config.kv_heads != 0) {
    settings.Refuse("attention.head_count", "a multiple of head_count_kv, " + std::to_string(config.kv_heads),
                    std::to_string(config.heads));
  }
  if (settings.Has("attention.key_length")) {
    config.head_width = settings.Int("attention.key_length", {1, 1 << 16});
  } else if (config.width % config.heads == 0) {
    config.head_width = config.width / config.heads;
  } else {
    settings.Refuse("attention.head_count", "a divisor of embedding_length, " + std::to_string(config.width),
                    std::to_string(config.heads));
  }
  settings.IntOr("attention.value_length", config.head_width, {config.head_width, config.head_width});
  const TensorEntry* embeddings = tensors.Entry("token_embd.weight");
  if (embeddings == nullptr || embeddings->shape.size() != 2) {
    throw Error(ErrorCode::kFile, "no matrix of embeddings", tensors.where() + ", tensor token_embd.weight");
  }
  config.vocab = embeddings->shape[0];
}

// What Llama 3's files scale their frequencies by.
std::vector<float> ReadRopeFactors(const CausalTensors& tensors, int64_t pairs) {
  if (!tensors.Has("rope_freqs.weight")) return {};
  const Floats factors = tensors.RequireFloats("rope_freqs.weight", {pairs});
  for (float factor : factors.values) {
    if (std::isfinite(factor) && factor > 0) continue;
    throw Error(ErrorCode::kFile, "bad factor of a frequency", tensors.where() + ", tensor rope_freqs.weight",
                "above 0", std::to_string(factor));
  }
  return {factors.values.begin(), factors.values.end()};
}

}  // namespace

std::string GgufArchitecture(const JsonObject& all) {
  if (const int64_t parts = all.IntOr("split.count", 1, {0, 1 << 16}); parts > 1) {
    all.Refuse("the model is split over several files", "one file, as llama.cpp's gguf-split --merge makes it",
               std::to_string(parts) + " parts");
  }
  return all.ChoiceOr("general.architecture", "", {"llama", "qwen2", "qwen3", "gpt2"});
}

CausalTensors GgufTensors(const JsonObject& all, CausalTensors::Find find, std::string where) {
  const CausalNames& names = GgufArchitecture(all) == "gpt2" ? kGgufGpt2Names : kGgufLlamaNames;
  return {names, std::move(find), std::move(where)};
}

CausalConfig ReadGgufConfig(const JsonObject& all, const CausalTensors& tensors) {
  const std::string architecture = GgufArchitecture(all);
  const Settings settings(all, architecture);
  settings.RefuseOthers();
  CausalConfig config;
  config.architecture = architecture;
  ReadSizes(settings, tensors, config);
  const bool gpt2 = architecture == "gpt2";
  config.biases.qkv = tensors.Has("blk.0.attn_q.bias") || tensors.Has("blk.0.attn_qkv.bias");
  config.biases.output = tensors.Has("blk.0.attn_output.bias");
  config.biases.feed_forward = tensors.Has("blk.0.ffn_up.bias");
  config.tied = !tensors.Has("output.weight");
  const auto layers = static_cast<size_t>(config.layers);
  config.scales.assign(layers, static_cast<float>(1 / std::sqrt(static_cast<double>(config.head_width))));
  config.windows.resize(layers);
  if (gpt2) {
    config.norm = NormKind::kLayer;
    config.epsilon = settings.Real("attention.layer_norm_epsilon", {0, 1});
    config.feed_forward = FeedForwardKind::kPlain;
    config.activation = Activation::kGeluTanh;
    return config;
  }
  config.epsilon = settings.Real("attention.layer_norm_rms_epsilon", {0, 1});
  config.head_norms = architecture == "qwen3";
  // Rows of W_Q and W_K of Llama's files are turned so that neighbours are pairs.
  config.pairing = architecture == "llama" ? RopePairing::kAdjacent : RopePairing::kHalf;
  config.rope = ReadRope(settings, config);
  config.rope_factors = ReadRopeFactors(tensors, config.rope->rotary_dim / 2);
  if (settings.Has("attention.sliding_window")) {
    const int64_t window = settings.Int("attention.sliding_window", {0, kSize.most});
    if (window > 0) std::fill(config.windows.begin(), config.windows.end(), std::optional(window));
  }
  return config;
}

}  // namespace qkv
