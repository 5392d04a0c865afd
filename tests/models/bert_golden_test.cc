// Against transformers (eager, float32): tests/golden/models/make.py says what was run.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "models/golden.h"
#include "support/tolerance.h"

namespace qkv {
namespace {

using nlohmann::json;
using test::ExpectPicks;
using test::GoldenCases;
using test::MiniLm;

TEST(MiniLmGolden, TokensWeightsAndHiddenStatesAreTransformers) {
  const json cases = GoldenCases("minilm.json");
  ASSERT_GE(cases.size(), 12u);
  for (const json& test : cases) {
    SCOPED_TRACE(test["name"].get<std::string>());
    const Encoding text = MiniLm().tokenizer().Encode(test["text"].get<std::string>());
    ASSERT_EQ(text.ids, test["ids"].get<std::vector<int64_t>>());
    const auto tokens = static_cast<int64_t>(text.ids.size());
    std::vector<float> hidden;
    const ModelCapture capture = MiniLm().Look(text, {}, &hidden);
    ExpectPicks(capture.weights, {6, 12, tokens, tokens}, test["weights"], test::kModelWeights);
    ExpectPicks(hidden, {tokens, 384}, test["hidden"], test::kModelHidden);
    const std::vector<float> forward = MiniLm().Forward(text.ids, 1, nullptr, {});
    ExpectPicks(forward, {tokens, 384}, test["hidden"], test::kModelHidden);
  }
}

// No head is missed by the picks: the sum of a head's squared weights, each at most 1 and `tokens` rows of
// them.
TEST(MiniLmGolden, EveryHeadsWeightsAreTransformers) {
  for (const json& test : GoldenCases("minilm.json")) {
    SCOPED_TRACE(test["name"].get<std::string>());
    const Encoding text = MiniLm().tokenizer().Encode(test["text"].get<std::string>());
    const auto tokens = static_cast<int64_t>(text.ids.size());
    const ModelCapture capture = MiniLm().Look(text, {}, nullptr);
    auto weight = capture.weights.begin();
    for (int64_t head = 0; head < 6 * 12; ++head) {
      double squares = 0;
      for (int64_t i = 0; i < tokens * tokens; ++i, ++weight) squares += static_cast<double>(*weight) * *weight;
      EXPECT_NEAR(squares, test["squares"][static_cast<size_t>(head / 12)][static_cast<size_t>(head % 12)],
                  2 * test::kModelWeights * static_cast<double>(tokens));
    }
  }
}

// What the picture shows.
TEST(MiniLmGolden, ItMeansTheChicken) {
  const Encoding text =
      MiniLm().tokenizer().Encode("The chicken didn't cross the road because it was too tired");
  const auto place = [&](const char* token) {
    return std::find(text.tokens.begin(), text.tokens.end(), token) - text.tokens.begin();
  };
  const int64_t it = place("it"), chicken = place("chicken");
  const auto weight = [&](int64_t layer, int64_t head) {
    LookRequest request;
    request.layers = {layer};
    request.heads = {head};
    request.queries = {it};
    return MiniLm().Look(text, request, nullptr).weights.at(static_cast<size_t>(chicken));
  };
  EXPECT_NEAR(weight(3, 1), 0.68, 5e-3);
  EXPECT_NEAR(weight(5, 11), 0.71, 5e-3);
}

class TinyGolden : public testing::TestWithParam<json> {};

// A padded batch: sequences of 9, 4, 1 and 32 tokens.
TEST_P(TinyGolden, IsTransformers) {
  const json& test = GetParam();
  const auto model = LoadModel(test::TinyFolder(test["name"]));
  std::vector<int64_t> ids;
  for (const json& row : test["ids"]) {
    for (const json& id : row) ids.push_back(id);
  }
  const auto lengths = test["lengths"].get<std::vector<int64_t>>();
  const int64_t padded = 32, width = model->info().width;
  const std::vector<float> hidden = model->Forward(ids, 4, &lengths, {});
  ASSERT_EQ(static_cast<int64_t>(hidden.size()), 4 * padded * width);
  for (size_t b = 0; b < 4; ++b) {
    const auto expected = test["hidden"][b].get<std::vector<float>>();
    ASSERT_EQ(static_cast<int64_t>(expected.size()), lengths[b] * width);
    const auto row = hidden.begin() + static_cast<int64_t>(b) * padded * width;
    EXPECT_THAT(std::vector<float>(row, row + lengths[b] * width),
                testing::Pointwise(testing::FloatNear(static_cast<float>(test::kModelHidden)), expected));
  }
  Encoding longest;
  longest.ids.assign(ids.end() - 32, ids.end());
  const ModelCapture capture = model->Look(longest, {}, nullptr);
  ExpectPicks(capture.weights, {model->info().layers, model->info().heads, 32, 32}, test["weights"],
              test::kModelWeights);
}

INSTANTIATE_TEST_SUITE_P(Models, TinyGolden,
                         testing::ValuesIn(GoldenCases("tiny.json").get<std::vector<json>>()),
                         [](const auto& parameter) {
                           std::string name = parameter.param["name"];
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace qkv
