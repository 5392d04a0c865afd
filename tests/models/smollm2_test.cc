// SmolLM2 from its GGUF file against transformers on the same file, dequantised to float32
// (tests/golden/models/make_causal.py). Skipped where the model is not installed: `make models` gets it.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
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

bool Installed() {
  const auto models = KnownModels();
  return std::any_of(models.begin(), models.end(),
                     [](const KnownModel& model) { return model.name == "smollm2" && model.installed; });
}

class SmolLm2 : public testing::Test {
 protected:
  void SetUp() override {
    if (!Installed()) GTEST_SKIP() << "smollm2 is not installed";
  }
  static const Model& Exact() {
    static const auto model = LoadModel("smollm2", {DType::kF32});
    return *model;
  }
  static const Model& Usual() {
    static const auto model = LoadModel("smollm2");
    return *model;
  }
};

std::vector<int64_t> Ids(const json& test) { return test["ids"].get<std::vector<int64_t>>(); }

std::vector<float> Logits(const Model& model, const json& test) { return StartSession(model)->ReadAll(Ids(test)); }

TEST_F(SmolLm2, TokensAndLogitsAreTransformers) {
  for (const json& test : GoldenCases("smollm2.json")) {
    SCOPED_TRACE(test["name"].get<std::string>());
    EXPECT_EQ(Exact().tokenizer().Encode(test["text"].get<std::string>()).ids, Ids(test));
    ExpectPicks(Logits(Exact(), test), {static_cast<int64_t>(test["ids"].size()), 49152}, test["logits"],
                test::kSmolLm2Logits);
  }
}

TEST_F(SmolLm2, WeightsAreTransformers) {
  for (const json& test : GoldenCases("smollm2.json")) {
    SCOPED_TRACE(test["name"].get<std::string>());
    const Encoding text = Exact().tokenizer().Encode(test["text"].get<std::string>());
    const auto tokens = static_cast<int64_t>(text.ids.size());
    const ModelCapture capture = Exact().Look(text, {}, nullptr);
    ExpectPicks(capture.weights, {30, 9, tokens, tokens}, test["weights"], test::kSmolLm2Weights);
    auto weight = capture.weights.begin();
    for (int64_t head = 0; head < 30 * 9; ++head) {
      double squares = 0;
      for (int64_t i = 0; i < tokens * tokens; ++i, ++weight) squares += static_cast<double>(*weight) * *weight;
      EXPECT_NEAR(squares, test["squares"][static_cast<size_t>(head / 9)][static_cast<size_t>(head % 9)],
                  2 * test::kSmolLm2Weights * static_cast<double>(tokens));
    }
  }
}

TEST_F(SmolLm2, GreedyContinuationsAreTransformers) {
  for (const json& test : GoldenCases("smollm2.json")) {
    SCOPED_TRACE(test["name"].get<std::string>());
    const auto session = StartSession(Exact());
    std::vector<int64_t> next = Ids(test), got;
    while (got.size() < test["greedy"].size()) {
      next = {ChooseToken(session->Read(next), {}, {}, 0)};
      got.push_back(next.front());
    }
    EXPECT_EQ(got, test["greedy"].get<std::vector<int64_t>>());
  }
}

double LogSum(const float* logits, int64_t count) {
  const double most = *std::max_element(logits, logits + count);
  double sum = 0;
  for (int64_t i = 0; i < count; ++i) sum += std::exp(static_cast<double>(logits[i]) - most);
  return most + std::log(sum);
}

// Kullback-Leibler divergence of the second softmax from the first.
double Divergence(const float* exact, const float* other, int64_t count) {
  const double exact_sum = LogSum(exact, count), other_sum = LogSum(other, count);
  double divergence = 0;
  for (int64_t i = 0; i < count; ++i) {
    const double log_p = static_cast<double>(exact[i]) - exact_sum, log_q = static_cast<double>(other[i]) - other_sum;
    divergence += std::exp(log_p) * (log_p - log_q);
  }
  return divergence;
}

// How far a faster way of multiplying is from float32, over all texts: read at once, and token by token.
void ExpectClose(const std::vector<std::vector<float>>& exact, const std::vector<std::vector<float>>& other) {
  constexpr int64_t kVocabulary = 49152;
  double divergence = 0;
  int64_t same = 0, tokens = 0;
  for (size_t text = 0; text < exact.size(); ++text) {
    for (size_t at = 0; at < exact[text].size(); at += kVocabulary, ++tokens) {
      const float *p = exact[text].data() + at, *q = other[text].data() + at;
      divergence += Divergence(p, q, kVocabulary);
      same += std::max_element(p, p + kVocabulary) - p == std::max_element(q, q + kVocabulary) - q;
    }
  }
  EXPECT_GE(tokens, 300);
  EXPECT_LE(divergence / static_cast<double>(tokens), 0.01);
  EXPECT_GE(static_cast<double>(same), 0.95 * static_cast<double>(tokens));
  testing::Test::RecordProperty("divergence", std::to_string(divergence / static_cast<double>(tokens)));
  testing::Test::RecordProperty("same first choice", std::to_string(static_cast<double>(same) / static_cast<double>(tokens)));
}

std::vector<std::vector<float>> AllLogits(const Model& model, int64_t at_once) {
  std::vector<std::vector<float>> all;
  for (const json& test : GoldenCases("smollm2.json")) {
    const std::vector<int64_t> ids = Ids(test);
    const auto session = StartSession(model);
    std::vector<float>& logits = all.emplace_back();
    for (size_t first = 0; first < ids.size(); first += static_cast<size_t>(at_once)) {
      const size_t count = std::min(ids.size() - first, static_cast<size_t>(at_once));
      const auto chunk = session->ReadAll(std::span(ids).subspan(first, count));
      logits.insert(logits.end(), chunk.begin(), chunk.end());
    }
  }
  return all;
}

TEST_F(SmolLm2, PromptsAndDecodingAreCloseToFloat32) {
  const auto exact = AllLogits(Exact(), 4096);
  ExpectClose(exact, AllLogits(Usual(), 4096));  // bfloat16
  ExpectClose(exact, AllLogits(Usual(), 8));     // the file's own blocks
}

// What the pictures in docs/causal.md show.
TEST_F(SmolLm2, ItMeansTheChickenAndTheKeysAre) {
  const auto weight = [](const Model& model, const char* sentence, int64_t layer, int64_t head, int64_t key) {
    const Encoding text = model.tokenizer().Encode(sentence);
    LookRequest request;
    request.layers = {layer};
    request.heads = {head};
    request.queries = {static_cast<int64_t>(text.ids.size()) - 1};
    return model.Look(text, request, nullptr).weights.at(static_cast<size_t>(key));
  };
  for (const Model* model : {&Exact(), &Usual()}) {
    EXPECT_NEAR(weight(*model, "The chicken didn’t cross the road because it", 13, 8, 1), 0.85, 0.01);
    EXPECT_NEAR(weight(*model, "The keys to the cabinet are", 9, 7, 1), 0.59, 0.01);
  }
}

}  // namespace
}  // namespace qkv
