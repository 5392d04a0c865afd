// A causal model's settings in GGUF files: what is not supported is refused by name, and so is a part of a model.
#include "models/gguf_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "formats/gguf.h"
#include "formats/gguf_bytes.h"
#include "qkv/error.h"
#include "qkv/model.h"

namespace qkv {
namespace {

namespace fs = std::filesystem;
using test::Counted;
using test::Key;
using test::Raw;
using testing::AllOf;
using testing::HasSubstr;

std::string U32(const char* key, uint32_t value) { return Key(key, GgufKind::kU32, Raw(value)); }

struct Keys {
  std::string bytes;
  uint64_t count = 0;
  Keys& Add(const std::string& key) {
    bytes += key;
    ++count;
    return *this;
  }
};

// A file whose architecture is llama, with some keys more.
std::string File(const std::vector<std::string>& more) {
  Keys keys;
  keys.Add(Key("general.architecture", GgufKind::kString, Counted("llama")))
      .Add(U32("llama.embedding_length", 4))
      .Add(U32("llama.block_count", 2))
      .Add(U32("llama.attention.head_count", 2))
      .Add(U32("llama.feed_forward_length", 8))
      .Add(U32("llama.context_length", 16))
      .Add(Key("llama.attention.layer_norm_rms_epsilon", GgufKind::kF32, Raw(1e-5f)));
  for (const std::string& key : more) keys.Add(key);
  return test::GgufBytes({.tensors = 1,
                          .keys = keys.count,
                          .infos = keys.bytes + test::TensorInfo("token_embd.weight", {4, 6}, test::kF32Number, 0),
                          .data = std::string(96, '\0')});
}

CausalConfig Read(const std::string& file) {
  const GgufContent content = ParseGguf(std::as_bytes(std::span(file)), "model.gguf");
  const JsonObject all = content.metadata.Settings();
  const auto find = [&](std::string_view name) {
    return content.entries.front().name == name ? &content.entries.front() : nullptr;
  };
  return ReadGgufConfig(all, GgufTensors(all, find, "model.gguf"));
}

std::string Refusal(const std::string& file) {
  try {
    Read(file);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kFile);
    return error.what();
  }
  return "no error";
}

TEST(GgufConfig, SizesAndDefaultsAreTheFiles) {
  const CausalConfig config = Read(File({U32("llama.attention.sliding_window", 3)}));
  EXPECT_EQ(config.architecture, "llama");
  EXPECT_EQ(config.vocab, 6);
  EXPECT_EQ(config.head_width, 2);
  EXPECT_EQ(config.kv_heads, 2);
  EXPECT_TRUE(config.tied);
  EXPECT_EQ(config.pairing, RopePairing::kAdjacent);
  EXPECT_EQ(config.windows, (std::vector<std::optional<int64_t>>{3, 3}));
}

TEST(GgufConfig, WhatIsNotSupportedIsRefusedByName) {
  EXPECT_THAT(Refusal(File({U32("llama.expert_count", 8)})),
              AllOf(HasSubstr("model.gguf"), HasSubstr("llama.expert_count")));
  EXPECT_THAT(Refusal(File({U32("llama.attention.head_count_kv", 5)})), HasSubstr("llama.attention.head_count"));
  EXPECT_THAT(Refusal(File({U32("llama.rope.dimension_count", 3)})), HasSubstr("llama.rope.dimension_count"));
  EXPECT_THAT(Refusal(File({Key("llama.rope.scaling.type", GgufKind::kString, Counted("longrope"))})),
              HasSubstr("longrope"));
}

// The first part of three has all the settings, the others have none.
TEST(GgufConfig, APartOfAModelIsRefusedByName) {
  const std::string count = Key("split.count", GgufKind::kU16, Raw<uint16_t>(3));
  const std::string first = File({count});
  const std::string second = test::GgufBytes({.keys = 1, .infos = count});
  const fs::path folder = fs::temp_directory_path() / ("qkv-split-" + std::to_string(getpid()));
  fs::create_directories(folder);
  const std::pair<std::string, std::string> parts[] = {{"tiny-00001-of-00003.gguf", first},
                                                       {"tiny-00002-of-00003.gguf", second}};
  for (const auto& [name, bytes] : parts) {
    std::ofstream(folder / name, std::ios::binary) << bytes;
    try {
      LoadModel((folder / name).string());
      ADD_FAILURE() << name;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kFile);
      EXPECT_THAT(error.what(), AllOf(HasSubstr(name), HasSubstr("split over several files"), HasSubstr("3 parts")));
    }
  }
  fs::remove_all(folder);
}

}  // namespace
}  // namespace qkv
