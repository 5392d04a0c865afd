// Model folders with something wrong in them: each gives one line that names it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>

#include "models/golden.h"
#include "qkv/error.h"

namespace qkv {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;

std::string ReadFile(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

void WriteFile(const fs::path& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

// A copy of a tiny model, to be spoilt.
class HostileModel : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / ("qkv-hostile-" + std::to_string(getpid()));
    fs::remove_all(folder_);
    fs::copy(test::TinyFolder("tiny-plain"), folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  // Rewrites the names, shapes and offsets of model.safetensors and leaves its data.
  void EditHeader(const std::function<void(json&)>& edit) const {
    const fs::path path = folder_ / "model.safetensors";
    const std::string file = ReadFile(path);
    uint64_t size = 0;
    std::memcpy(&size, file.data(), sizeof(size));
    json header = json::parse(file.substr(8, size));
    edit(header);
    const std::string text = header.dump(), data = file.substr(8 + size);
    size = text.size();
    WriteFile(path, std::string(reinterpret_cast<const char*>(&size), sizeof(size)) + text + data);
  }

  void EditConfig(const std::function<void(json&)>& edit) const {
    json config = json::parse(ReadFile(folder_ / "config.json"));
    edit(config);
    WriteFile(folder_ / "config.json", config.dump());
  }

  std::string Load(ErrorCode code = ErrorCode::kFile) const {
    try {
      LoadModel(folder_.string());
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), code) << error.what();
      EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos);
      return error.what();
    }
    return "no error";
  }

  fs::path folder_;
};

TEST_F(HostileModel, UnspoiltItLoads) {
  EXPECT_EQ(Load(), "no error");
  EditHeader([](json&) {});
  EXPECT_EQ(Load(), "no error");
}

// Every tensor but the pooler's, which nothing here needs.
TEST_F(HostileModel, EveryMissingTensorIsNamed) {
  std::vector<std::string> names;
  EditHeader([&](json& header) {
    for (const auto& [name, entry] : header.items()) names.push_back(name);
  });
  int needed = 0;
  for (const std::string& name : names) {
    if (name == "__metadata__" || name.starts_with("pooler.")) continue;
    SetUp();
    EditHeader([&](json& header) {
      header["renamed"] = header[name];
      header.erase(name);
    });
    EXPECT_THAT(Load(), HasSubstr(name));
    ++needed;
  }
  EXPECT_EQ(needed, 5 + 2 * 16);
}

TEST_F(HostileModel, EveryMisshapenTensorIsNamed) {
  for (const char* name :
       {"embeddings.word_embeddings.weight", "embeddings.token_type_embeddings.weight",
        "encoder.layer.0.attention.self.key.weight", "encoder.layer.1.intermediate.dense.weight",
        "encoder.layer.1.output.LayerNorm.weight"}) {
    SetUp();
    EditHeader([&](json& header) { header[name]["shape"].insert(header[name]["shape"].begin(), 1); });
    EXPECT_THAT(Load(), AllOf(HasSubstr(name), HasSubstr("(1, "))) << name;
  }
}

TEST_F(HostileModel, AConfigThatContradictsTheTensorsNamesOne) {
  EditConfig([](json& config) { config["hidden_size"] = 18; });
  EXPECT_THAT(Load(), HasSubstr("embeddings"));
  SetUp();
  EditConfig([](json& config) { config["num_hidden_layers"] = 3; });
  EXPECT_THAT(Load(), HasSubstr("encoder.layer.2."));
  SetUp();
  EditConfig([](json& config) { config["num_attention_heads"] = 5; });
  EXPECT_THAT(Load(), HasSubstr("num_attention_heads"));
  SetUp();
  EditConfig([](json& config) { config["hidden_act"] = "silu"; });
  EXPECT_THAT(Load(), AllOf(HasSubstr("hidden_act"), HasSubstr("silu")));
}

// Sizes that a file claims do not decide how much memory is taken.
TEST_F(HostileModel, AHugeClaimIsRefusedAtOnce) {
  EditConfig([](json& config) { config["vocab_size"] = 2000000000; });
  EXPECT_NE(Load(), "no error");
  SetUp();
  EditConfig([](json& config) { config["max_position_embeddings"] = 2000000000; });
  EXPECT_NE(Load(), "no error");
}

TEST_F(HostileModel, AnUnknownFamilyIsRefusedByName) {
  EditConfig([](json& config) { config["model_type"] = "roberta"; });
  EXPECT_THAT(Load(), AllOf(HasSubstr("roberta"), HasSubstr("bert"), HasSubstr("config.json")));
  EditConfig([](json& config) { config.erase("model_type"); });
  EXPECT_THAT(Load(), HasSubstr("model_type"));
  WriteFile(folder_ / "config.json", "{\"model_type\": ");
  EXPECT_THAT(Load(), HasSubstr("config.json"));
}

TEST_F(HostileModel, MissingFilesAreNamed) {
  for (const char* file : {"config.json", "vocab.txt"}) {
    SetUp();
    fs::remove(folder_ / file);
    EXPECT_THAT(Load(), HasSubstr(file));
  }
  SetUp();
  fs::remove(folder_ / "model.safetensors");
  EXPECT_THAT(Load(), HasSubstr("safetensors"));
  WriteFile(folder_ / "pytorch_model.bin", "PK");
  EXPECT_THAT(Load(), HasSubstr("pytorch_model.bin"));
}

TEST_F(HostileModel, ATruncatedFileIsRefused) {
  const std::string whole = ReadFile(folder_ / "model.safetensors");
  for (size_t size : {size_t{0}, size_t{7}, size_t{100}, whole.size() / 2, whole.size() - 1}) {
    WriteFile(folder_ / "model.safetensors", whole.substr(0, size));
    EXPECT_THAT(Load(), HasSubstr("model.safetensors"));
  }
}

TEST_F(HostileModel, WhatIsNoFolderIsRefused) {
  const auto load = [](const std::string& name) -> std::pair<ErrorCode, std::string> {
    try {
      LoadModel(name);
    } catch (const Error& error) {
      return {error.code(), error.what()};
    }
    return {ErrorCode::kInternal, "no error"};
  };
  const std::string file = (folder_ / "model.safetensors").string();
  EXPECT_THAT(load(file), testing::Pair(ErrorCode::kFile, HasSubstr(file)));
  EXPECT_THAT(load((folder_ / "nowhere").string()), testing::Pair(ErrorCode::kFile, HasSubstr("nowhere")));
  EXPECT_THAT(load("no-such-model"), testing::Pair(ErrorCode::kInvalidArgument, HasSubstr("no-such-model")));
}

}  // namespace
}  // namespace qkv
