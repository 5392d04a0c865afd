// The exchange with Hugging Face, against a GPT-2 that transformers wrote.
#include "train/export.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "formats/safetensors.h"
#include "qkv/error.h"
#include "runtime/half.h"
#include "train/golden_batches.h"

namespace qkv::train {
namespace {

namespace fs = std::filesystem;

const fs::path kGolden = QKV_GOLDEN "/train/gpt2";

class ExportTo : public testing::Test {
 protected:
  ExportTo() : folder_(fs::path(testing::TempDir()) / ("qkv-export-" + std::to_string(getpid()))) {
    fs::create_directories(folder_);
  }
  ~ExportTo() override { fs::remove_all(folder_); }

  void Write(const std::string& config) const {
    fs::copy_file(kGolden / "model.safetensors", folder_ / "model.safetensors",
                  fs::copy_options::overwrite_existing);
    std::ofstream(folder_ / "config.json") << config;
  }

  fs::path folder_;
};

std::span<const float> View(const AlignedBuffer<float>& buffer) {
  return {buffer.data(), static_cast<size_t>(buffer.size())};
}

std::map<std::string, std::vector<std::byte>> TensorsOf(const fs::path& folder) {
  const Safetensors file(folder / "model.safetensors");
  std::map<std::string, std::vector<std::byte>> tensors;
  for (const TensorEntry& entry : file.entries()) {
    tensors[entry.name + " " + ShapeText(entry.shape) + " " + NameOf(entry.type)] = {entry.bytes.begin(),
                                                                                     entry.bytes.end()};
  }
  return tensors;
}

nlohmann::json JsonOf(const fs::path& file) {
  std::ifstream stream(file);
  return nlohmann::json::parse(stream);
}

TEST(ReadDecoder, GivesTransformersLoss) {
  LoadedDecoder loaded = ReadDecoder(kGolden);
  EXPECT_EQ(loaded.config.layers, 2);
  EXPECT_EQ(loaded.config.vocab, 37);
  EXPECT_EQ(loaded.config.dropout, 0);
  TrainOptions options;
  options.batch = 4;
  options.length = 12;
  Trainer trainer(loaded.config, options, StateFrom(std::move(loaded.parameters)));
  const double expected = JsonOf(kGolden / "loss.json")["loss"];
  EXPECT_NEAR(trainer.Evaluate(test::GoldenBatches(37), 1), expected, 1e-6 * expected);
}

TEST_F(ExportTo, WritesTheTensorsThatTransformersWrites) {
  const LoadedDecoder loaded = ReadDecoder(kGolden);
  WriteDecoder(folder_, loaded.config, View(loaded.parameters), Precision::kFloat32);
  EXPECT_EQ(TensorsOf(folder_), TensorsOf(kGolden));
}

TEST_F(ExportTo, WritesTheConfigThatTransformersReads) {
  DecoderConfig config = ReadDecoder(kGolden).config;
  config.dropout = 0.1f;
  const auto ours = nlohmann::json::parse(ConfigJson(config, Precision::kFloat32));
  const auto theirs = JsonOf(kGolden / "config.json");
  for (const char* key :
       {"architectures", "model_type", "activation_function", "n_layer", "n_head", "n_embd", "n_inner",
        "n_positions", "vocab_size", "layer_norm_epsilon", "tie_word_embeddings", "dtype"}) {
    EXPECT_EQ(ours[key], theirs[key]) << key;
  }
  EXPECT_EQ(ours["resid_pdrop"], 0.1);
}

TEST_F(ExportTo, ReadsWhatItWrote) {
  DecoderConfig config = ReadDecoder(kGolden).config;
  config.dropout = 0.125f;
  config.head_weight = HeadWeight::kOwn;
  config.norm_epsilon = 1e-6f;
  const AlignedBuffer<float> parameters = InitialParameters(config, 1);
  for (const Precision stored : {Precision::kFloat32, Precision::kBFloat16}) {
    WriteDecoder(folder_, config, View(parameters), stored);
    const LoadedDecoder loaded = ReadDecoder(folder_);
    EXPECT_EQ(loaded.config, config);
    for (int64_t i = 0; i < parameters.size(); ++i) {
      const float rounded = ToFloat(ToBFloat16(parameters[i]));
      ASSERT_EQ(loaded.parameters[i], stored == Precision::kFloat32 ? parameters[i] : rounded);
    }
  }
}

TEST_F(ExportTo, WhatCannotBeTrainedIsRefusedByName) {
  const nlohmann::json golden = JsonOf(kGolden / "config.json");
  const auto with = [&](const char* key, const nlohmann::json& value) {
    nlohmann::json changed = golden;
    changed[key] = value;
    return changed.dump();
  };
  for (const auto& [config, words] : std::initializer_list<std::pair<std::string, const char*>>{
           {with("activation_function", "relu"), "activation_function"},
           {with("n_inner", 100), "n_inner"},
           {with("n_head", 3), "width"},
           {with("n_layer", 3), "h.2.ln_1.weight"},
           {with("vocab_size", 38), "wte.weight"},
           {with("add_cross_attention", true), "add_cross_attention"},
           {with("scale_attn_weights", false), "scale"},
           {with("model_type", "llama"), "model_type"},
           {with("n_embd", 1e30), "n_embd"}}) {
    Write(config);
    try {
      ReadDecoder(folder_);
      ADD_FAILURE() << config;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kFile) << error.what();
      EXPECT_NE(std::strstr(error.what(), words), nullptr) << error.what();
    }
  }
}

}  // namespace
}  // namespace qkv::train
