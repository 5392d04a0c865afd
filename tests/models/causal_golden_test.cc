// Causal models of every family against transformers (eager, float32): tests/golden/models/make_causal.py says what
// was run.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "models/golden.h"
#include "qkv/generate.h"
#include "support/tolerance.h"

namespace qkv {
namespace {

using nlohmann::json;
using test::ExpectPicks;
using test::GoldenCases;

std::string CausalPath(const json& test) { return test::TinyFolder("causal/" + test["name"].get<std::string>()); }

std::vector<float> AllLogits(const Model& model, const std::vector<int64_t>& ids) {
  SessionOptions options;
  options.most_tokens = model.info().max_tokens;
  if (model.info().architecture != "gpt2") options.most_tokens = 64;
  return StartSession(model, options)->ReadAll(ids);
}

std::vector<std::string> Names() {
  std::vector<std::string> names;
  for (const json& test : GoldenCases("causal.json")) names.push_back(test["name"]);
  return names;
}

class CausalGolden : public testing::TestWithParam<std::string> {
 protected:
  static const json& Case() {
    static const json cases = GoldenCases("causal.json");
    return *std::find_if(cases.begin(), cases.end(), [](const json& test) { return test["name"] == GetParam(); });
  }
};

TEST_P(CausalGolden, LogitsAreTransformers) {
  const json& test = Case();
  const auto model = LoadModel(CausalPath(test), {DType::kF32});
  const auto ids = test["ids"].get<std::vector<int64_t>>();
  ExpectPicks(AllLogits(*model, ids), {static_cast<int64_t>(ids.size()), model->info().vocab}, test["logits"],
              test::kModelLogits);
}

TEST_P(CausalGolden, WeightsAreTransformers) {
  const json& test = Case();
  const auto model = LoadModel(CausalPath(test), {DType::kF32});
  Encoding text;
  text.ids = test["ids"].get<std::vector<int64_t>>();
  const auto tokens = static_cast<int64_t>(text.ids.size());
  LookRequest request;
  request.length = LengthRule::kAny;
  const ModelCapture capture = model->Look(text, request, nullptr);
  EXPECT_TRUE(capture.causal);
  ExpectPicks(capture.weights, {model->info().layers, model->info().heads, tokens, tokens}, test["weights"],
              test::kModelWeights);
}

TEST_P(CausalGolden, GreedyContinuationIsTransformers) {
  const json& test = Case();
  const auto model = LoadModel(CausalPath(test), {DType::kF32});
  const auto ids = test["ids"].get<std::vector<int64_t>>();
  const auto expected = test["greedy"].get<std::vector<int64_t>>();
  SessionOptions options;
  options.most_tokens = 64;
  const auto session = StartSession(*model, options);
  std::vector<int64_t> next(ids.begin(), ids.begin() + 12), got;
  while (got.size() < expected.size()) {
    const auto logits = session->Read(next);
    next = {std::max_element(logits.begin(), logits.end()) - logits.begin()};
    got.push_back(next.front());
  }
  EXPECT_EQ(got, expected);
}

INSTANTIATE_TEST_SUITE_P(Models, CausalGolden,
                         testing::ValuesIn(Names()), [](const auto& parameter) {
                           std::string name = parameter.param;
                           std::replace_if(
                               name.begin(), name.end(), [](char c) { return c == '-' || c == '.'; }, '_');
                           return name;
                         });

}  // namespace
}  // namespace qkv
