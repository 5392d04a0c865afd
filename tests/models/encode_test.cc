// Sentence embeddings against sentence-transformers: tests/golden/models/make_sentences.py says what was run.
#include "qkv/encode.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "models/golden.h"
#include "qkv/error.h"
#include "support/tolerance.h"

namespace qkv {
namespace {

using test::MiniLm;

TEST(EncodeSentences, IsSentenceTransformers) {
  std::vector<std::string> texts;
  std::vector<float> expected;
  for (const auto& test : test::GoldenCases("sentences.json")) {
    texts.push_back(test["text"]);
    for (const auto& value : test["vector"]) expected.push_back(value);
  }
  ASSERT_GE(texts.size(), 7u);
  EXPECT_THAT(EncodeSentences(MiniLm(), texts),
              testing::Pointwise(testing::FloatNear(static_cast<float>(test::kSentence)), expected));
}

TEST(EncodeSentences, RefusesCausalModelsAndNoTokens) {
  const auto causal = LoadModel(test::TinyFolder("causal/llama"));
  EXPECT_THROW(EncodeSentences(*causal, {"a road"}), Error);
  SentenceOptions options;
  options.max_tokens = 0;
  EXPECT_THROW(EncodeSentences(MiniLm(), {"a road"}, options), Error);
  EXPECT_TRUE(EncodeSentences(MiniLm(), {}).empty());
}

TEST(CosineSimilarity, IsTheAnglesCosine) {
  EXPECT_DOUBLE_EQ(CosineSimilarity(std::vector<float>{3, 0}, std::vector<float>{1, 1}), std::sqrt(0.5));
  EXPECT_EQ(CosineSimilarity(std::vector<float>{0, 0}, std::vector<float>{1, 1}), 0);
}

// The last layer is what Forward gives, and the word's own vector comes first.
TEST(Layers, EndWhereForwardDoes) {
  for (const char* name : {"causal/llama", "causal/gpt2", "tiny-plain"}) {
    SCOPED_TRACE(name);
    const auto model = LoadModel(test::TinyFolder(name));
    const std::vector<int64_t> ids{7, 9, 7, 12};
    const std::vector<float> states = model->Layers(ids), last = model->Forward(ids, 1);
    const auto size = static_cast<int64_t>(last.size()), width = model->info().width;
    ASSERT_EQ(static_cast<int64_t>(states.size()), size * (model->info().layers + 1));
    EXPECT_TRUE(std::equal(last.begin(), last.end(), states.end() - size));
    const bool rotary = model->info().architecture == "llama";
    EXPECT_EQ(std::equal(states.begin(), states.begin() + width, states.begin() + 2 * width), rotary);
  }
}

}  // namespace
}  // namespace qkv
