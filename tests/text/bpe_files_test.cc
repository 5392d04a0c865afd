// What is wrong with a tokenizer.json of byte-pair encoding, said in one line that names file and key.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "qkv/error.h"
#include "text/golden.h"
#include "text/tokenizer_json.h"

namespace qkv::test {
namespace {

using nlohmann::json;
using testing::HasSubstr;

std::string AfterSetting(const std::string& family, const char* pointer, const json& value,
                         const std::string& text = "") {
  json tokenizer = ReadGolden("bpe/" + family + ".json").at("tokenizer");
  tokenizer[json::json_pointer(pointer)] = value;
  try {
    TokenizerFromJson(tokenizer.dump(), "t.json")->Encode(text);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kFile);
    return error.what();
  }
  return "no error";
}

TEST(BpeJson, UnsupportedSettingsAreNamed) {
  EXPECT_EQ(AfterSetting("gpt2", "/model/continuing_subword_prefix", "##"),
            "t.json: model.continuing_subword_prefix: unsupported, expected null");
  EXPECT_EQ(AfterSetting("gpt2", "/model/end_of_word_suffix", "</w>"),
            "t.json: model.end_of_word_suffix: unsupported, expected null");
  EXPECT_EQ(AfterSetting("gpt2", "/model/dropout", 0.1),
            "t.json: model.dropout: unsupported, expected null or 0");
  EXPECT_EQ(AfterSetting("gpt2", "/model/dropout", 0.0), "no error");
  EXPECT_EQ(AfterSetting("gpt2", "/model/byte_fallback", true),
            "t.json: model.byte_fallback: unsupported with ByteLevel, expected false");
  EXPECT_EQ(AfterSetting("gpt2", "/normalizer", {{"type", "NFKC"}}),
            "t.json: normalizer.type: unsupported, expected NFC, Prepend, Replace or Sequence, got NFKC");
  EXPECT_EQ(AfterSetting("smollm", "/pre_tokenizer/pretokenizers/0/type", "Whitespace"),
            "t.json: pre_tokenizer.pretokenizers[0].type: unsupported, expected ByteLevel, Split, Digits, "
            "Metaspace or Sequence, got Whitespace");
  EXPECT_EQ(AfterSetting("llama3", "/pre_tokenizer/pretokenizers/0/behavior", "MergedWithNext"),
            "t.json: pre_tokenizer.pretokenizers[0].behavior: unsupported, expected Isolated or Removed, got "
            "MergedWithNext");
  EXPECT_EQ(AfterSetting("gpt2", "/decoder/type", "Metaspace"),
            "t.json: decoder.type: unsupported, expected ByteLevel, got Metaspace");
  EXPECT_THAT(AfterSetting("llama2", "/decoder/decoders/0/type", "CTC"),
              HasSubstr("t.json: decoder.decoders[0].type: unsupported"));
  EXPECT_THAT(AfterSetting("mistral", "/pre_tokenizer/prepend_scheme", "last"),
              HasSubstr("t.json: pre_tokenizer.prepend_scheme: unsupported"));
  const json bytes = {{"type", "ByteLevel"}, {"add_prefix_space", false}};
  EXPECT_EQ(AfterSetting("gpt2", "/pre_tokenizer", {{"type", "Sequence"}, {"pretokenizers", {bytes, bytes}}}),
            "t.json: pre_tokenizer.pretokenizers[1]: unsupported after ByteLevel");
}

TEST(BpeJson, ContradictionsAreNamed) {
  EXPECT_EQ(AfterSetting("gpt2", "/model/unk_token", "<none>"),
            "t.json: model.unk_token: not in the vocabulary, got '<none>'");
  EXPECT_EQ(AfterSetting("gpt2", "/model/merges/7", "a zzz"),
            "t.json: model.merges[7]: not in the vocabulary, got 'zzz'");
  EXPECT_EQ(AfterSetting("gpt2", "/model/merges/7", "a b c"),
            "t.json: model.merges[7]: no merge, expected two pieces with a space between, got 'a b c'");
  EXPECT_EQ(AfterSetting("llama3", "/model/merges/7", {"a", "b", "c"}),
            "t.json: model.merges[7]: no merge, expected two pieces, got array");
  EXPECT_EQ(AfterSetting("llama3", "/model/merges/7", 3),
            "t.json: model.merges[7]: no merge, expected two pieces, got number");
  EXPECT_EQ(AfterSetting("gpt2", "/model/merges", "a b"),
            "t.json: model.merges: wrong type, expected array, got string");
  EXPECT_EQ(AfterSetting("llama2", "/normalizer/normalizers/0/prepend", std::string(100, 'x')),
            "t.json: normalizer.normalizers[0].prepend: wrong length, expected 1 to 64 bytes, got 100");
  EXPECT_EQ(AfterSetting("tekken", "/pre_tokenizer/pretokenizers/0/pattern/Regex", "("),
            "t.json: pre_tokenizer.pretokenizers[0].pattern.Regex: not a regular expression, got '('");
}

// Steps that each double the text cannot take all memory.
TEST(BpeJson, EndlessGrowthIsStopped) {
  json steps = json::array();
  for (int i = 0; i < 60; ++i)
    steps.push_back({{"type", "Replace"}, {"pattern", {{"String", "a"}}}, {"content", "aa"}});
  EXPECT_EQ(AfterSetting("gpt2", "/normalizer", {{"type", "Sequence"}, {"normalizers", steps}}, "aaaa"),
            "text: the tokenizer makes far more of it");
}

}  // namespace
}  // namespace qkv::test
