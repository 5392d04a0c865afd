#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "qkv/view.h"
#include "view/excerpt.h"
#include "view/explain_words.h"
#include "view/formula.h"
#include "view/width.h"

namespace qkv {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using view::Table;

ExplainedTensor Tensor(const char* symbol, Shape shape, Axis columns) {
  ExplainedTensor tensor{symbol, shape, columns, {}};
  tensor.values.resize(static_cast<size_t>(shape.elements()));
  for (size_t i = 0; i < tensor.values.size(); ++i) tensor.values[i] = static_cast<float>(i % 97) / 100;
  return tensor;
}

// One causal head of width 4 with every step that there is; its numbers mean nothing.
Explanation MakeExplanation(std::vector<std::string> tokens, int64_t token) {
  const auto n = static_cast<int64_t>(tokens.size());
  const auto pairs = [&](const char* symbol) { return Tensor(symbol, Shape{1, n, n}, Axis::kTokens); };
  const auto rows = [&](const char* symbol) { return Tensor(symbol, Shape{1, n, 4}, Axis::kChannels); };
  Explanation e;
  e.model = "a-model";
  e.layer = 2;
  e.tokens = std::move(tokens);
  e.token = token;
  e.d_in = 6, e.d_out = 4, e.d_k = 4, e.d_v = 4;
  e.causal = true;
  e.scale = 0.5f;
  e.dropout_p = 0.5f;
  e.steps = {{StepKind::kInput, {Tensor("X", Shape{1, n, 6}, Axis::kChannels)}},
             {StepKind::kProject,
              {Tensor("W_Q", Shape{6, 4}, Axis::kChannels), Tensor("b_Q", Shape{4}, Axis::kChannels), rows("Q"),
               rows("K"), rows("V")}},
             {StepKind::kScores, {pairs("S")}},
             {StepKind::kScale, {pairs("S'")}},
             {StepKind::kMask, {pairs("M")}},
             {StepKind::kSoftmax, {pairs("A")}},
             {StepKind::kSaturation, {pairs("U")}},
             {StepKind::kOtherOrder, {pairs("F"), pairs("R"), pairs("P")}},
             {StepKind::kDropout, {pairs("A'")}},
             {StepKind::kSum, {rows("Z"), rows("Z'")}}};
  return e;
}

std::vector<std::string> Numbered(int64_t count) {
  std::vector<std::string> tokens;
  for (int64_t i = 0; i < count; ++i) tokens.push_back("t" + std::to_string(i));
  return tokens;
}

TEST(Formula, IsTextAndMathMLFromOneSource) {
  const view::Formula f = view::Symbol("S'") + view::Sign("=") +
                          view::Fraction(view::Letter("S"), view::Root(view::Sub(view::Letter("d"), "k")));
  EXPECT_EQ(f.text, "S\u2032 = S / \u221ad_k");
  EXPECT_THAT(f.mathml, HasSubstr("<mfrac><mrow><mi>S</mi></mrow><mrow><msqrt><msub>"));
  EXPECT_EQ(view::Symbol("W_Q").text, "W_Q");
  EXPECT_EQ(view::Transpose(view::Letter("K")).text, "K\u1d40");
  EXPECT_EQ(view::SquareOf("h", "il").text, "h\u00b2_il");
  EXPECT_THAT(view::SquareOf("h", "il").mathml,  // a letter by itself, which stands slanted
              HasSubstr("<mi>h</mi><mrow><mi>i</mi><mi>l</mi></mrow><mn>2</mn>"));
}

TEST(Formula, ALineOfTextHasParenthesesWhereMathMLHasABar) {
  const auto letter = view::Letter;
  const view::Formula difference = letter("h") + view::Sign("\u2212") + letter("m");
  EXPECT_EQ((view::Fraction(difference, letter("s")) + view::Times() + letter("g")).text, "(h \u2212 m) / s \u00b7 g");
  EXPECT_EQ(view::Fraction(letter("a"), difference).text, "a / (h \u2212 m)");
  EXPECT_EQ(view::Fraction(letter("a"), view::Call("exp", difference)).text, "a / exp(h \u2212 m)");
  EXPECT_EQ(view::Fraction(letter("a"), view::Root(view::Fraction(letter("1"), letter("d")))).text,
            "a / \u221a(1 / d)");
  EXPECT_THAT(view::Fraction(difference, letter("s")).mathml, Not(HasSubstr("(")));
}

TEST(Number, HasTheDecimalsOfItsSize) {
  EXPECT_EQ(view::Number(0.12345f), "0.123");
  EXPECT_EQ(view::Number(-0.12345f), "\u22120.123");
  EXPECT_EQ(view::Number(-0.0001f), "0.000");
  EXPECT_EQ(view::Number(-24.594f), "\u221224.59");
  EXPECT_EQ(view::Number(240.06f), "240.1");
  EXPECT_EQ(view::Number(1, 240), "1.0");
  EXPECT_EQ(view::Number(2.5e7f), "2.5e+07");
  EXPECT_EQ(view::Number(-HUGE_VALF), "\u2212\u221e");
}

std::vector<std::string> RowNames(const Table& table) {
  std::vector<std::string> names;
  for (const Table::Row& row : table.rows) names.push_back(row.gap ? "..." : row.name);
  return names;
}

TEST(Excerpt, KeepsTheMarkedRowAndTheEnds) {
  const Explanation e = MakeExplanation(Numbered(40), 20);
  const view::TableLimits limits{5, 4, 2, 3, 6};
  const std::vector<Table> tables = view::TablesOf(e, e.steps[2], limits);
  ASSERT_EQ(tables.size(), 1u);
  EXPECT_THAT(RowNames(tables[0]), ElementsAre("t0", "t1", "t2", "...", "t20", "...", "t39"));
  EXPECT_TRUE(tables[0].rows[4].marked);
  ASSERT_EQ(tables[0].rows[4].values.size(), 6u);
  EXPECT_EQ(tables[0].rows[4].values[0], view::At(e.steps[2].tensors[0], 0, 20, 0));
  EXPECT_EQ(tables[0].rows[4].values.back(), view::At(e.steps[2].tensors[0], 0, 20, 39));
  EXPECT_THAT(RowNames(view::TablesOf(e, e.steps[1], limits)[0]), ElementsAre("0", "...", "5"));
}

TEST(Excerpt, ShowsAllWhereGapsWouldTakeTheRoom) {
  const Explanation e = MakeExplanation(Numbered(7), 6);
  EXPECT_THAT(RowNames(view::TablesOf(e, e.steps[2], {5, 4, 2, 3, 6})[0]),
              ElementsAre("t0", "t1", "t2", "t3", "t4", "t5", "t6"));
}

TEST(Excerpt, ComparesTheMarkedRows) {
  const Explanation e = MakeExplanation(Numbered(4), 3);
  const std::vector<Table> tables = view::TablesOf(e, e.steps[7], {5, 4, 2, 3, 6});
  ASSERT_EQ(tables.size(), 1u);
  EXPECT_THAT(RowNames(tables[0]),
              ElementsAre("mask, softmax", "softmax of all", "masked, \u00f7 sum", "masked, softmax"));
  EXPECT_TRUE(tables[0].shaded);
}

TEST(ExplanationViews, ShowTextLiterally) {
  const Explanation e = MakeExplanation({"<script>alert(1)</script>", "&amp;", "\x1b[31mred", "\u202eabc"}, 2);
  const std::string text = "<script>alert(1)</script> & \x1b[31mred";
  const std::string page = ExplanationPage(e, text);
  EXPECT_THAT(page, Not(HasSubstr("<script")));
  EXPECT_THAT(page, HasSubstr("&lt;script&gt;alert(1)"));
  EXPECT_THAT(page, HasSubstr("&amp;amp;"));
  EXPECT_THAT(page, HasSubstr("default-src 'none'"));
  TerminalOptions options;
  options.text = text;
  const std::string shown = TerminalExplanation(e, options);
  for (const std::string* view : {&page, &shown}) {
    EXPECT_THAT(*view, Not(HasSubstr("\x1b")));
    EXPECT_THAT(*view, Not(HasSubstr("\u202e")));
    EXPECT_THAT(*view, Not(HasSubstr("{{")));
  }
}

TEST(ExplanationViews, FitTheTerminal) {
  const Explanation e =
      MakeExplanation({"\u8bcd\u8bed\u8bcd\u8bed\u8bcd\u8bed\u8bcd\u8bed", "b", std::string(200, 'x'), "d"}, 0);
  for (const int width : {10, 48, 80, 133}) {
    TerminalOptions options;
    options.text = std::string(500, 'y');
    options.width = width;
    const std::string shown = TerminalExplanation(e, options);
    for (size_t first = 0; first < shown.size();) {
      const size_t last = shown.find('\n', first);
      EXPECT_LE(view::DisplayWidth(shown.substr(first, last - first)), std::max(48, width));
      first = last + 1;
    }
  }
}

// The same as a decoder's: normalised, its heads' keys shared and turned, a scale of its own and a window.
Explanation MakeDecoder(ExplainedNorm norm, ExplainedPairs pairs) {
  Explanation e = MakeExplanation(Numbered(6), 5);
  const auto rows = [](const char* symbol, int64_t width) {
    return Tensor(symbol, Shape{1, 6, width}, Axis::kChannels);
  };
  e.norm = norm, e.pairs = pairs;
  e.heads = 4, e.kv_heads = 2, e.head = 3;
  e.window = 3;
  e.scale = 0.25f;
  e.steps[0].tensors = {rows("H", 6)};
  ExplainedStep normalise{StepKind::kNorm, {Tensor("g", Shape{6}, Axis::kChannels), rows("X", 6)}};
  if (norm == ExplainedNorm::kLayer) normalise.tensors.push_back(Tensor("b", Shape{6}, Axis::kChannels));
  e.steps.insert(e.steps.begin() + 1, normalise);
  e.steps.insert(e.steps.begin() + 3,
                 {StepKind::kTurn, {rows("cos", 2), rows("sin", 2), rows("Q'", 4), rows("K'", 4)}});
  return e;
}

TEST(ExplanationViews, DecodersStepsSayWhatTheyDo) {
  TerminalOptions options;
  options.width = 400;
  const Explanation rms = MakeDecoder(ExplainedNorm::kRms, ExplainedPairs::kHalf);
  const std::string shown = TerminalExplanation(rms, options);
  for (const char* part : {"root mean square", "Turn by position", "(a, b) = (n, n+2)", "K′ᵀ",
                           "those of head 1 of 2, which 2 heads of queries share", "c = 0.25 instead of 1/√d_k",
                           "Causal mask with a window", "sees 3 of 6 tokens", "i−3 < j ≤ i"}) {
    EXPECT_THAT(shown, HasSubstr(part));
  }
  const std::string layer =
      TerminalExplanation(MakeDecoder(ExplainedNorm::kLayer, ExplainedPairs::kAdjacent), options);
  EXPECT_THAT(layer, HasSubstr("its mean μ is taken"));
  EXPECT_THAT(layer, HasSubstr("(a, b) = (2n, 2n+1)"));
}

TEST(ExplanationViews, EveryStepSaysWhatItDoes) {
  const Explanation e = MakeExplanation(Numbered(5), 4);
  for (const ExplainedStep& step : e.steps) {
    const view::StepWords words = view::WordsOf(e, step);
    EXPECT_FALSE(words.title.empty());
    EXPECT_FALSE(words.formulas.empty()) << words.title;
    EXPECT_THAT(words.shapes, HasSubstr("(1, 5, "));
    EXPECT_FALSE(words.why.empty()) << words.title;
  }
  EXPECT_EQ(ExplanationPage(e, "text"), ExplanationPage(e, "text"));
}

}  // namespace
}  // namespace qkv
