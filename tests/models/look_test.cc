#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "models/golden.h"
#include "qkv/error.h"

namespace qkv {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr int64_t kLayers = 3, kHeads = 2, kTokens = 7;

const Model& Tiny() {
  static const std::unique_ptr<const Model> model = LoadModel(test::TinyFolder("tiny-headed"));
  return *model;
}

const Encoding& Text() {
  static const Encoding text = Tiny().tokenizer().Encode("The chicken was too tired");
  return text;
}

const ModelCapture& Whole() {
  static const ModelCapture capture = Tiny().Look(Text(), {}, nullptr);
  return capture;
}

float WholeWeight(int64_t layer, int64_t head, int64_t query, int64_t key) {
  return Whole().weights[static_cast<size_t>(((layer * kHeads + head) * kTokens + query) * kTokens + key)];
}

TEST(Look, HoldsTheTextAndAllWeightsUnlessAskedOtherwise) {
  EXPECT_THAT(Whole().tokens, ElementsAre("[CLS]", "the", "chicken", "was", "too", "tired", "[SEP]"));
  EXPECT_EQ(Whole().ids, Text().ids);
  EXPECT_EQ(Whole().labels, Text().labels);
  EXPECT_EQ(Whole().special, Text().special);
  EXPECT_EQ(Whole().continues, Text().continues);
  EXPECT_EQ(Whole().spans, Text().span);
  EXPECT_EQ(Whole().model, test::TinyFolder("tiny-headed"));
  EXPECT_EQ(Whole().layers, kLayers);
  EXPECT_EQ(Whole().heads, kHeads);
  EXPECT_THAT(Whole().layer_ids, ElementsAre(0, 1, 2));
  EXPECT_THAT(Whole().head_ids, ElementsAre(0, 1));
  EXPECT_THAT(Whole().query_ids, ElementsAre(0, 1, 2, 3, 4, 5, 6));
  ASSERT_EQ(Whole().weights.size(), static_cast<size_t>(kLayers * kHeads * kTokens * kTokens));
  for (size_t row = 0; row < Whole().weights.size(); row += kTokens) {
    double sum = 0;
    for (size_t j = 0; j < kTokens; ++j) sum += Whole().weights[row + j];
    EXPECT_NEAR(sum, 1, 1e-6);
  }
}

TEST(Look, KeepsWhatIsChosenInAscendingOrder) {
  LookRequest request;
  request.layers = {2, 0, 2};
  request.heads = {1};
  request.queries = {5, 3};
  const ModelCapture capture = Tiny().Look(Text(), request, nullptr);
  EXPECT_THAT(capture.layer_ids, ElementsAre(0, 2));
  EXPECT_THAT(capture.head_ids, ElementsAre(1));
  EXPECT_THAT(capture.query_ids, ElementsAre(3, 5));
  ASSERT_EQ(capture.weights.size(), static_cast<size_t>(2 * 1 * 2 * kTokens));
  size_t i = 0;
  for (int64_t layer : {0, 2}) {
    for (int64_t query : {3, 5}) {
      for (int64_t key = 0; key < kTokens; ++key)
        EXPECT_EQ(capture.weights[i++], WholeWeight(layer, 1, query, key));
    }
  }
}

TEST(Look, StrongestKeysComeFirst) {
  constexpr int64_t kTop = 3;
  LookRequest request;
  request.top_k = kTop;
  request.layers = {1};
  request.queries = {2, 6};
  const ModelCapture capture = Tiny().Look(Text(), request, nullptr);
  EXPECT_TRUE(capture.weights.empty());
  EXPECT_EQ(capture.top_k, kTop);
  ASSERT_EQ(capture.top_keys.size(), static_cast<size_t>(kHeads * 2 * kTop));
  ASSERT_EQ(capture.top_weights.size(), capture.top_keys.size());
  size_t i = 0;
  for (int64_t head = 0; head < kHeads; ++head) {
    for (int64_t query : {2, 6}) {
      std::vector<std::pair<float, int64_t>> row;
      for (int64_t key = 0; key < kTokens; ++key) row.emplace_back(-WholeWeight(1, head, query, key), key);
      std::sort(row.begin(), row.end());
      for (size_t n = 0; n < kTop; ++n, ++i) {
        EXPECT_EQ(capture.top_keys[i], row[n].second);
        EXPECT_EQ(capture.top_weights[i], -row[n].first);
      }
    }
  }
}

TEST(Look, MoreKeysThanTokensArePadded) {
  LookRequest request;
  request.top_k = kTokens + 2;
  request.layers = {0};
  request.heads = {0};
  request.queries = {0};
  const ModelCapture capture = Tiny().Look(Text(), request, nullptr);
  ASSERT_EQ(capture.top_keys.size(), static_cast<size_t>(kTokens + 2));
  EXPECT_GE(capture.top_keys[kTokens - 1], 0);
  EXPECT_EQ(capture.top_keys[kTokens], -1);
  EXPECT_EQ(capture.top_weights[kTokens + 1], 0);
}

// Choosing heads takes another way through attention than all of them; what comes out of the model stays.
TEST(Look, TheChoiceDoesNotChangeTheHiddenStates) {
  const std::vector<float> expected = Tiny().Forward(Text().ids, 1, nullptr, {});
  std::vector<float> all, one;
  Tiny().Look(Text(), {}, &all);
  LookRequest request;
  request.layers = {0};
  request.heads = {1};
  Tiny().Look(Text(), request, &one);
  EXPECT_EQ(all, expected);
  EXPECT_EQ(one, expected);
}

TEST(Look, StopsAfterTheLastLayerThatIsWanted) {
  LookRequest request;
  request.layers = {0, 1};
  std::vector<std::pair<int64_t, int64_t>> calls;
  request.progress = [&](int64_t done, int64_t total) {
    calls.emplace_back(done, total);
    return true;
  };
  Tiny().Look(Text(), request, nullptr);
  EXPECT_THAT(calls, ElementsAre(std::pair(1, 2), std::pair(2, 2)));
  calls.clear();
  std::vector<float> hidden;
  Tiny().Look(Text(), request, &hidden);
  EXPECT_THAT(calls, ElementsAre(std::pair(1, 3), std::pair(2, 3), std::pair(3, 3)));
}

TEST(Look, RefusesWhatIsNotThere) {
  const auto look = [](const std::function<void(LookRequest&)>& change) -> std::string {
    LookRequest request;
    change(request);
    try {
      Tiny().Look(Text(), request, nullptr);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
      return error.what();
    }
    return "no error";
  };
  EXPECT_THAT(look([](auto& r) { r.layers = {3}; }),
              testing::AllOf(HasSubstr("layer"), HasSubstr("0 to 2"), HasSubstr("3")));
  EXPECT_THAT(look([](auto& r) { r.heads = {-1}; }), testing::AllOf(HasSubstr("head"), HasSubstr("0 to 1")));
  EXPECT_THAT(look([](auto& r) { r.queries = {7}; }), testing::AllOf(HasSubstr("query"), HasSubstr("0 to 6")));
  EXPECT_THAT(look([](auto& r) { r.top_k = -1; }), HasSubstr("top_k"));
  EXPECT_THROW(Tiny().Look(Encoding(), {}, nullptr), Error);
}

TEST(Look, CanBeCancelled) {
  LookRequest request;
  request.progress = [](int64_t, int64_t) { return false; };
  try {
    Tiny().Look(Text(), request, nullptr);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kCancelled);
  }
}

}  // namespace
}  // namespace qkv
