#include "view/rows.h"

#include <gmock/gmock.h>

#include <cmath>
#include <limits>

#include "qkv/error.h"
#include "sample.h"
#include "view/color.h"

namespace qkv::view {
namespace {

using test::KeepTop;
using test::MakeCapture;
using ::testing::ElementsAre;
using ::testing::FloatNear;
using ::testing::Pointwise;

ModelCapture Three() {
  return MakeCapture({"[CLS]", "a", "b"}, {0.5f, 0.3f, 0.2f,  //
                                           0.6f, 0.1f, 0.3f,  //
                                           0.2f, 0.4f, 0.4f});
}

TEST(Rows, ReadsWholeAndTopRowsAlike) {
  const ModelCapture whole = Three(), top = KeepTop(whole, 5);
  for (int64_t query = 0; query < 3; ++query)
    EXPECT_EQ(Rows(whole, {}).Read({0, 0, query}), Rows(top, {}).Read({0, 0, query}));
}

TEST(Rows, SkipsTheFirstTokenAndScalesTheRest) {
  const ModelCapture whole = Three(), top = KeepTop(whole, 2);
  ViewOptions options;
  options.skip_first = true;
  EXPECT_THAT(Rows(whole, options).Read({0, 0, 1}), Pointwise(FloatNear(1e-6f), {0.0f, 0.25f, 0.75f}));
  EXPECT_THAT(Rows(top, options).Read({0, 0, 1}), Pointwise(FloatNear(1e-6f), {0.0f, 0.0f, 0.75f}));
}

TEST(Rows, TakesNaNAsNothingAndARowOfTheFirstTokenAloneAsEmpty) {
  ModelCapture capture = Three();
  capture.weights[4] = std::numeric_limits<float>::quiet_NaN();
  capture.weights[6] = 1;
  ViewOptions options;
  options.skip_first = true;
  EXPECT_THAT(Rows(capture, {}).Read({0, 0, 1}), ElementsAre(0.6f, 0.0f, 0.3f));
  for (const float weight : Rows(capture, options).Read({0, 0, 2})) EXPECT_EQ(weight, 0);
}

TEST(Rows, RefusesArraysThatDoNotFit) {
  ModelCapture capture = Three();
  capture.weights.pop_back();
  EXPECT_THROW(Rows(capture, {}), Error);
  capture = Three();
  capture.special.pop_back();
  EXPECT_THROW(Rows(capture, {}), Error);
  capture = KeepTop(Three(), 2);
  capture.top_keys[1] = 3;
  EXPECT_THROW(Rows(capture, {}), Error);
  capture = Three();
  capture.query_ids[0] = 9;
  EXPECT_THROW(Rows(capture, {}), Error);
}

TEST(Rows, RefusesAFocusThatWasNotCaptured) {
  ViewOptions options;
  options.focus = {7};
  const ModelCapture capture = Three();
  EXPECT_THROW(Rows(capture, options), Error);
}

TEST(Peak, PassesOverSpecialTokensTheQueryAndACausalModelsFirst) {
  ModelCapture capture = Three();
  EXPECT_EQ(Rows(capture, {}).PeakOf({0, 0, 1}).key, 2);
  EXPECT_EQ(Rows(capture, {}).PeakOf({0, 0, 2}).key, 1);
  capture.special = {false, false, false};
  EXPECT_EQ(Rows(capture, {}).PeakOf({0, 0, 1}).key, 0);
  capture.causal = true;
  EXPECT_EQ(Rows(capture, {}).PeakOf({0, 0, 1}).key, 2);
}

TEST(StrongestHeads, FindsTheChickenAndPutsPositionalHeadsLast) {
  const ModelCapture capture = test::ReadCapture(QKV_GOLDEN "/view", "chicken");
  const Rows rows(capture, {});
  const std::vector<Peak> peaks = StrongestHeads(rows, {10});
  ASSERT_EQ(peaks.size(), 72u);
  EXPECT_EQ(HeadName(capture, peaks[0].place), "layer 5 head 11");
  EXPECT_EQ(capture.labels[peaks[0].key], "chicken");
  EXPECT_EQ(HeadName(capture, peaks[1].place), "layer 2 head 1");
  EXPECT_EQ(HeadName(capture, peaks[2].place), "layer 3 head 1");
  EXPECT_EQ(HeadName(capture, peaks[70].place), "layer 0 head 2");  // the word before, whatever it is
  EXPECT_TRUE(IsPositional(peaks[70]));
  EXPECT_TRUE(IsPositional(peaks[71]));
}

TEST(TokenTexts, NumbersRepeatedWordsAndMarksPieces) {
  ModelCapture capture = MakeCapture({"it", "un", "like", "it", " ", ""}, std::vector<float>(36, 0.1f));
  capture.continues[2] = true;
  const std::vector<TokenText> texts = TokenTexts(capture);
  EXPECT_EQ(texts[0].name, "it#1");
  EXPECT_EQ(texts[0].label, "it");
  EXPECT_EQ(texts[2].name, "…like");
  EXPECT_TRUE(texts[2].joined);
  EXPECT_EQ(texts[3].name, "it#2");
  EXPECT_EQ(texts[4].label, "␣");
  EXPECT_EQ(texts[5].label, "␣");
}

TEST(TokensToShow, KeepsTheFocusTheHeaviestAndTheirNeighbours) {
  std::vector<float> weight(500, 0.0f);
  weight[400] = 1;
  const std::vector<int64_t> shown = TokensToShow(weight, 20, 40);
  ASSERT_EQ(shown.size(), 40u);
  EXPECT_TRUE(std::is_sorted(shown.begin(), shown.end()));
  for (const int64_t token : {20, 19, 21, 400, 399, 401}) EXPECT_THAT(shown, ::testing::Contains(token));
  EXPECT_EQ(TokensToShow({0.1f, 0.2f}, -1, 40), (std::vector<int64_t>{0, 1}));
}

TEST(Ramps, GetDarkerOrLighterAllTheWay) {
  const auto light = [](Rgb c) { return 0.299 * c.r + 0.587 * c.g + 0.114 * c.b; };
  for (int step = 1; step <= 20; ++step) {
    const auto before = static_cast<float>(step - 1) / 20, now = static_cast<float>(step) / 20;
    EXPECT_LT(light(ColorAt(kPaperRamp, now)), light(ColorAt(kPaperRamp, before)));
    EXPECT_GT(light(ColorAt(kNightRamp, now)), light(ColorAt(kNightRamp, before)));
  }
}

}  // namespace
}  // namespace qkv::view
