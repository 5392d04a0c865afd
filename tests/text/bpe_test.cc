// Byte-pair encoding against the reference: a small tokenizer of each family, hand-picked texts and 2,000 more.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "text/golden.h"
#include "text/tokenizer_json.h"

namespace qkv::test {
namespace {

using nlohmann::json;

void ExpectSane(const Encoding& encoding, std::string_view text) {
  for (const size_t size : {encoding.tokens.size(), encoding.labels.size(), encoding.continues.size(),
                            encoding.special.size(), encoding.span.size()})
    ASSERT_EQ(size, encoding.ids.size());
  for (const auto& [first, last] : encoding.span)
    ASSERT_TRUE(first >= 0 && first <= last && last <= static_cast<int64_t>(text.size()));
}

class BpeFamily : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    golden_ = ReadGolden("bpe/" + std::string(GetParam()) + ".json");
    tokenizer_ = TokenizerFromJson(golden_.at("tokenizer").dump(), "tokenizer.json");
  }

  json golden_;
  std::unique_ptr<const Tokenizer> tokenizer_;
};

TEST_P(BpeFamily, HandPickedTexts) {
  EXPECT_GE(golden_.at("cases").size(), 60u);
  for (const auto& expected : golden_.at("cases")) {
    const std::string text = expected.at("text");
    SCOPED_TRACE(text);
    const Encoding encoding = tokenizer_->Encode(text);
    EXPECT_EQ(encoding.tokens, expected.at("tokens").get<std::vector<std::string>>());
    EXPECT_EQ(encoding.ids, expected.at("ids").get<std::vector<int64_t>>());
    EXPECT_EQ(tokenizer_->Decode(encoding.ids), expected.at("decoded").get<std::string>());
    ExpectSane(encoding, text);
  }
}

TEST_P(BpeFamily, RandomTexts) {
  const auto texts = ReadGolden("bpe_texts.json");
  EXPECT_EQ(texts.size(), 2000u);
  const std::string checksums = golden_.at("checksums");
  for (size_t i = 0; i < texts.size(); ++i) {
    if (checksums[17 * i] == '-') continue;
    const Encoding encoding = tokenizer_->Encode(texts[i].get<std::string>());
    ASSERT_EQ(Checksum(encoding.ids), checksums.substr(17 * i, 16)) << texts[i] << ' ' << json(encoding.tokens);
  }
}

INSTANTIATE_TEST_SUITE_P(Families, BpeFamily,
                         testing::Values("gpt2", "gpt2_prefix", "smollm", "llama3", "qwen2", "tekken",
                                         "inverted", "rest", "roberta", "llama2", "llama2_no_prefix", "mistral",
                                         "metaspace", "unknown", "unknown_each"),
                         [](const auto& test) { return std::string(test.param); });

}  // namespace
}  // namespace qkv::test
