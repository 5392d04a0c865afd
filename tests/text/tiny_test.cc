// Made-up tokenizers, each setting on and off, against the reference. They need no model.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "text/golden.h"
#include "text/tokenizer_json.h"
#include "text/vocab_txt.h"

namespace qkv::test {
namespace {

class TinyJson : public testing::TestWithParam<const char*> {};

TEST_P(TinyJson, EqualsTheReference) {
  const auto golden = ReadGolden("tiny/" + std::string(GetParam()) + ".json");
  const auto tokenizer = TokenizerFromJson(golden.at("tokenizer").dump(), "tokenizer.json");
  EXPECT_GE(golden.at("cases").size(), 20u);
  for (const auto& expected : golden.at("cases")) ExpectCase(*tokenizer, expected);
}

INSTANTIATE_TEST_SUITE_P(Variants, TinyJson,
                         testing::Values("plain", "cased", "accents", "cased_stripped", "raw", "unnormalized",
                                         "added", "added_cased", "no_prefix"),
                         [](const auto& test) { return std::string(test.param); });

class TinyVocabulary : public testing::TestWithParam<const char*> {};

TEST_P(TinyVocabulary, EqualsTheReference) {
  const auto golden = ReadGolden("tiny/vocab_" + std::string(GetParam()) + ".json");
  const std::string vocabulary = golden.at("vocab"), config = golden.at("config").dump();
  const auto tokenizer = TokenizerFromVocabulary({vocabulary, "vocab.txt"}, {config, "tokenizer_config.json"});
  for (const auto& expected : golden.at("cases")) ExpectCase(*tokenizer, expected);
}

INSTANTIATE_TEST_SUITE_P(Variants, TinyVocabulary,
                         testing::Values("defaults", "cased", "accents", "named", "outside"),
                         [](const auto& test) { return std::string(test.param); });

}  // namespace
}  // namespace qkv::test
