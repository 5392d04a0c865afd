// What a causal model is made of: one struct for every family, from config.json or from a GGUF file's metadata.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "formats/config.h"
#include "kernels/activation.h"
#include "qkv/rope.h"

namespace qkv {

// How the rows of a layer's norms are scaled, and what its feed-forward layer is.
enum class NormKind { kLayer, kRms };
enum class FeedForwardKind {
  kPlain,  // W_down f(W_up x)
  kGated,  // W_down (silu(W_gate x) * W_up x)
};

struct CausalConfig {
  std::string architecture;  // "llama", "mistral", "qwen2", "qwen3", "gpt2"
  int64_t vocab = 0, width = 0, layers = 0, heads = 0, kv_heads = 0;
  int64_t head_width = 0;    // D of q, k and v
  int64_t inner_width = 0;   // of the feed-forward layer
  int64_t max_tokens = 0;    // positions that the model was trained for

  NormKind norm = NormKind::kRms;
  double epsilon = 0;
  FeedForwardKind feed_forward = FeedForwardKind::kGated;
  Activation activation = Activation::kNone;  // f of a plain feed-forward layer

  // Which multiplies add a bias.
  struct Biases {
    bool qkv = false, output = false, feed_forward = false;
  } biases;
  bool head_norms = false;   // RMS norms of each head's q and k, before they turn
  bool tied = false;         // the output matrix is the token embeddings

  std::optional<RopeConfig> rope;             // none: learned positions, added to the embeddings
  RopePairing pairing = RopePairing::kHalf;   // as the rows of W_Q and W_K lie
  std::vector<float> rope_factors;            // what each frequency is divided by; empty: 1
  std::vector<std::optional<int64_t>> windows;  // a layer: W tokens with the query's own, or all
  std::vector<float> scales;                  // a layer: of its scores

  std::vector<int64_t> end_ids;  // tokens that end a text
};

// Names and defaults are those of transformers' LlamaConfig, MistralConfig, Qwen2Config, Qwen3Config and
// GPT2Config. Error{kFile} naming the setting that is missing, out of range or not supported.
CausalConfig ReadLlamaConfig(const JsonObject& config);  // model_type llama, mistral, qwen2 or qwen3
CausalConfig ReadGpt2Config(const JsonObject& config);

}  // namespace qkv
