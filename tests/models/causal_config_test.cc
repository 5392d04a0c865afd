// Settings of causal models: read where they are supported, refused by name where they are not.
#include "models/causal_config.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "qkv/error.h"

namespace qkv {
namespace {

using nlohmann::json;

json Llama() {
  return {{"model_type", "llama"},      {"vocab_size", 100},       {"hidden_size", 32},
          {"num_hidden_layers", 3},     {"num_attention_heads", 4}, {"num_key_value_heads", 2},
          {"intermediate_size", 64},    {"max_position_embeddings", 128}};
}

json Gpt2() {
  return {{"model_type", "gpt2"}, {"vocab_size", 100}, {"n_embd", 32}, {"n_layer", 2}, {"n_head", 4},
          {"n_positions", 64}};
}

CausalConfig Read(const json& config) {
  const JsonObject object(config, "config.json");
  return config["model_type"] == "gpt2" ? ReadGpt2Config(object) : ReadLlamaConfig(object);
}

json With(json config, const char* key, const json& value) {
  config[key] = value;
  return config;
}

void ExpectRefused(const json& config, const std::string& name) {
  try {
    Read(config);
    ADD_FAILURE() << config.dump();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kFile);
    EXPECT_NE(std::string(error.what()).find(name), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find("config.json"), std::string::npos) << error.what();
  }
}

TEST(CausalConfig, DefaultsAreTheFamilies) {
  const CausalConfig llama = Read(Llama());
  EXPECT_EQ(llama.head_width, 8);
  EXPECT_EQ(llama.rope->base, 10000);
  EXPECT_EQ(llama.rope->rotary_dim, 8);
  EXPECT_FALSE(llama.tied);
  EXPECT_FALSE(llama.biases.qkv);
  const CausalConfig gpt2 = Read(Gpt2());
  EXPECT_EQ(gpt2.inner_width, 128);
  EXPECT_TRUE(gpt2.tied);
  EXPECT_FALSE(gpt2.rope.has_value());
  EXPECT_EQ(Read(With(Llama(), "model_type", "qwen2")).biases.qkv, true);
  EXPECT_EQ(Read(With(Llama(), "model_type", "qwen2")).biases.output, false);
  EXPECT_TRUE(Read(With(Llama(), "model_type", "qwen3")).head_norms);
}

TEST(CausalConfig, WindowsAreTheLayersThatHaveThem) {
  json mistral = With(Llama(), "model_type", "mistral");
  EXPECT_FALSE(Read(mistral).windows[0].has_value());
  mistral["sliding_window"] = 16;
  EXPECT_EQ(Read(mistral).windows, (std::vector<std::optional<int64_t>>{16, 16, 16}));
  json qwen = With(With(Llama(), "model_type", "qwen2"), "sliding_window", 16);
  EXPECT_FALSE(Read(qwen).windows[2].has_value());  // use_sliding_window is off
  qwen["use_sliding_window"] = true;
  qwen["max_window_layers"] = 2;
  EXPECT_EQ(Read(qwen).windows, (std::vector<std::optional<int64_t>>{{}, {}, 16}));
  qwen["layer_types"] = {"sliding_attention", "full_attention", "full_attention"};
  EXPECT_EQ(Read(qwen).windows, (std::vector<std::optional<int64_t>>{16, {}, {}}));
}

TEST(CausalConfig, ScalingsAreReadUnderOldAndNewNames) {
  const json factor{{"type", "linear"}, {"factor", 4.0}};
  const CausalConfig old_names = Read(With(With(Llama(), "rope_scaling", factor), "rope_theta", 500.0));
  EXPECT_EQ(std::get<LinearRope>(old_names.rope->scaling).factor, 4);
  EXPECT_EQ(old_names.rope->base, 500);
  const json parameters{{"rope_type", "llama3"},     {"rope_theta", 500.0},     {"factor", 8.0},
                        {"low_freq_factor", 1.0},    {"high_freq_factor", 4.0}, {"partial_rotary_factor", 0.5},
                        {"original_max_position_embeddings", 32}};
  const CausalConfig new_names = Read(With(Llama(), "rope_parameters", parameters));
  EXPECT_EQ(std::get<Llama3Rope>(new_names.rope->scaling).trained_length, 32);
  EXPECT_EQ(new_names.rope->rotary_dim, 4);
}

TEST(CausalConfig, WhatIsNotSupportedIsRefusedByName) {
  ExpectRefused(With(Llama(), "hidden_act", "gelu"), "hidden_act");
  ExpectRefused(With(Llama(), "pretraining_tp", 2), "pretraining_tp");
  ExpectRefused(With(Llama(), "num_key_value_heads", 3), "key/value heads");
  ExpectRefused(With(Llama(), "num_attention_heads", 6), "heads");
  ExpectRefused(With(Llama(), "head_dim", 7), "even number");
  ExpectRefused(With(Llama(), "quantization_config", {{"bits", 4}}), "quantization_config");
  ExpectRefused(With(Llama(), "rope_scaling", {{"type", "longrope"}}), "longrope");
  ExpectRefused(With(Llama(), "rope_scaling", {{"type", "linear"}}), "factor");
  ExpectRefused(With(Llama(), "rope_scaling", {{"type", "linear"}, {"factor", 2.0}, {"long_factor", {1.0}}}),
                "long_factor");
  ExpectRefused(With(Llama(), "layer_types", {"full_attention"}), "layer_types");
  ExpectRefused(With(Llama(), "layer_types", {"full_attention", "full_attention", "linear_attention"}),
                "linear_attention");
  ExpectRefused(With(Llama(), "num_hidden_layers", 100000), "num_hidden_layers");
  ExpectRefused(With(Gpt2(), "activation_function", "swish"), "activation_function");
  ExpectRefused(With(Gpt2(), "add_cross_attention", true), "add_cross_attention");
  ExpectRefused(With(Gpt2(), "n_head", 5), "heads");
  for (const char* key : {"vocab_size", "hidden_size", "num_hidden_layers", "intermediate_size"}) {
    json config = Llama();
    config.erase(key);
    ExpectRefused(config, key);
  }
}

}  // namespace
}  // namespace qkv
