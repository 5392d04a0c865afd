#include <gmock/gmock.h>

#include <limits>
#include <sstream>

#include "qkv/error.h"
#include "qkv/view.h"
#include "sample.h"
#include "view/width.h"

namespace qkv {
namespace {

using test::MakeCapture;
using ::testing::HasSubstr;
using ::testing::Not;

TerminalOptions FocusOn(std::vector<int64_t> focus) {
  TerminalOptions options;
  options.focus = std::move(focus);
  return options;
}

std::vector<std::string> LinesOf(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

// [CLS] cats purr [SEP]; cats gives purr 0.5.
ModelCapture Cats() {
  return MakeCapture({"[CLS]", "cats", "purr", "[SEP]"}, {1, 0, 0, 0, 0.25f, 0.25f, 0.5f, 0,  //
                                                          0, 1, 0, 0, 0, 0, 0, 1});
}

TEST(TerminalView, PlainIsWordsBarsAndHeads) {
  EXPECT_EQ(TerminalView(Cats(), FocusOn({1})),
            "cats → purr 0.50   layer 0 head 0\n"
            "  [CLS] *cats* purr [SEP]\n"
            "  ▄▄▄▄▄ ▄▄▄▄▄▄ ▆▆▆▆\n"
            "\n"
            "cats, strongest of 1 head\n"
            "  layer 0 head 0: purr 0.50  ([CLS] 0.25, itself 0.25)\n");
}

TEST(TerminalView, SaysSoWhereAHeadSeesNoOtherWord) {
  const ModelCapture alone = MakeCapture({"[CLS]", "cats", "[SEP]"}, {1, 0, 0, 0.75f, 0.25f, 0, 0, 0, 1});
  EXPECT_THAT(TerminalView(alone, FocusOn({1})), HasSubstr("layer 0 head 0: no other word  ([CLS] 0.75, itself 0.25)\n"));
  EXPECT_THAT(TerminalView(alone, {}), HasSubstr("layer 0 head 0: cats → no other word  ([CLS] 0.75, itself 0.25)\n"));
}

TEST(TerminalView, ColorPaintsThePanel) {
  TerminalOptions options = FocusOn({1});
  options.color = true;
  const std::string text = TerminalView(Cats(), options);
  const auto lines = LinesOf(text);
  ASSERT_EQ(lines.size(), 5u);
  EXPECT_EQ(lines[0], "\x1b[1mcats → purr 0.50   layer 0 head 0\x1b[0m");
  const std::string space = "\x1b[48;2;32;36;46m \x1b[0m";
  EXPECT_EQ(lines[1], " " + space +                                                                   //
                          "\x1b[48;2;158;97;24m\x1b[3m\x1b[38;2;226;228;232m[CLS]\x1b[0m" + space +   //
                          "\x1b[48;2;158;97;24m\x1b[1;4m\x1b[38;2;110;215;255mcats\x1b[0m" + space +  //
                          "\x1b[48;2;219;148;27m\x1b[38;2;16;16;16mpurr\x1b[0m" + space +             //
                          "\x1b[48;2;32;36;46m\x1b[3m\x1b[38;2;140;146;158m[SEP]\x1b[0m" + space);
  EXPECT_THAT(lines[4], HasSubstr("\x1b[48;2;219;148;27m\x1b[38;2;16;16;16mpurr 0.50\x1b[0m"));
}

TEST(TerminalView, ShowsTheChickenFirst) {
  const ModelCapture capture = test::ReadCapture(QKV_GOLDEN "/view", "chicken");
  const auto lines = LinesOf(TerminalView(capture, FocusOn({10})));
  EXPECT_EQ(lines[0], "it → chicken 0.71   layer 5 head 11");
  EXPECT_EQ(lines[1], "  [CLS] the chicken didn't cross the road because *it* was too tired [SEP]");
  EXPECT_THAT(lines[2], HasSubstr("▇▇▇▇▇▇▇"));
  EXPECT_EQ(lines[13], "  layer 5 head 11: chicken 0.71  tired 0.03  the#1 0.02  road 0.01  ([CLS] 0.13)");
  EXPECT_EQ(lines[15], "   layer 3 head 1: chicken 0.68  the#1 0.07  road 0.05  tired 0.01  ([CLS] 0.09)");
  EXPECT_EQ(lines.back(), "  fixed distance: layer 0 head 2 because 1.00, layer 1 head 8 was 0.75");
}

TEST(TerminalView, WithoutAFocusListsQueriesAndKeys) {
  const std::string text = TerminalView(Cats(), {});
  EXPECT_THAT(text, HasSubstr("What each token receives, mean of 1 head and 4 tokens\n"));
  EXPECT_THAT(text, HasSubstr("  layer 0 head 0: purr → cats 1.00\n"));
}

TEST(TerminalView, NumbersTheWordsInFocus) {
  const auto capture = MakeCapture({"it", "is", "it"}, {0, 1, 0, 0.5f, 0, 0.5f, 0, 1, 0});
  const std::string text = TerminalView(capture, FocusOn({0, 2}));
  EXPECT_THAT(text, HasSubstr("it#1 → is 1.00   layer 0 head 0\n  *it* is it\n"));
  EXPECT_THAT(text, HasSubstr("it#2 → is 1.00   layer 0 head 0\n  it is *it*\n"));
}

TEST(TerminalView, JoinsPiecesAsTheTextDoes) {
  auto capture = MakeCapture({"un", "like", "##ly", "."}, std::vector<float>(16, 0.25f));
  capture.labels = {"un", "like", "ly", "."};
  capture.continues = {false, true, true, false};
  EXPECT_THAT(TerminalView(capture, FocusOn({0})), HasSubstr("  *un*likely .\n"));
  capture.spans = {{0, 2}, {2, 6}, {6, 8}, {8, 9}};
  EXPECT_THAT(TerminalView(capture, FocusOn({0})), HasSubstr("  *un*likely.\n"));
}

TEST(TerminalView, NeverPassesControlCharactersOn) {
  const auto capture =
      MakeCapture({"\x1b[31m", "a\nb", "\u202E", "\xff", "</script>"}, std::vector<float>(25, 0.2f));
  TerminalOptions options = FocusOn({1});
  const std::string text = TerminalView(capture, options);
  EXPECT_EQ(text.find('\x1b'), text.npos);
  EXPECT_THAT(text, HasSubstr("␛[31m *a↵b* <U+202E> \uFFFD </script>"));
}

TEST(TerminalView, WrapsAtTheWidth) {
  std::vector<std::string> labels = {"你好", "👩‍👩‍👧", "שלום", std::string(90, 'w'), "cafe\u0301"};
  for (int i = 0; i < 40; ++i) labels.push_back("word" + std::to_string(i));
  const auto capture = MakeCapture(labels, std::vector<float>(labels.size() * labels.size(), 0.02f));
  for (const std::vector<int64_t>& focus : {std::vector<int64_t>{}, {1}, {3}})
    for (const int width : {10, 48, 80, 200}) {
      TerminalOptions options = FocusOn(focus);
      options.width = width;
      for (const std::string& line : LinesOf(TerminalView(capture, options)))
        EXPECT_LE(view::DisplayWidth(line), std::max(width, 48)) << line;
    }
}

TEST(TerminalView, LeavesOutPositionalHeadsWhereNoneIsOfAnotherKind) {
  std::vector<float> before(36, 0.0f);  // each word gives everything to the one before it
  for (int64_t i = 1; i < 6; ++i) before[i * 6 + i - 1] = 1;
  const std::string text = TerminalView(MakeCapture({"a", "b", "c", "d", "e", "f"}, before), FocusOn({3}));
  EXPECT_THAT(text, HasSubstr("d → c 1.00   layer 0 head 0\n"));
  EXPECT_THAT(text, HasSubstr("  fixed distance: layer 0 head 0 c 1.00\n"));
}

TEST(TerminalView, CutsVeryLongTextsVisibly) {
  const std::vector<std::string> labels(900, "w");
  const auto capture = MakeCapture(labels, std::vector<float>(labels.size() * labels.size(), 0.001f));
  const std::string text = TerminalView(capture, FocusOn({450}));
  EXPECT_THAT(text, HasSubstr(" tokens …"));
  EXPECT_LT(LinesOf(text).size(), 120u);
}

TEST(TerminalView, TakesTheStrongestKeysAlone) {
  const ModelCapture capture = test::ReadCapture(QKV_GOLDEN "/view", "chicken");
  EXPECT_EQ(TerminalView(capture, FocusOn({10})), TerminalView(test::KeepTop(capture, 15), FocusOn({10})));
  EXPECT_THAT(TerminalView(test::KeepTop(capture, 2), FocusOn({10})),
              HasSubstr("layer 5 head 11: chicken 0.71"));
}

TEST(TerminalView, LeavesOutTheFirstToken) {
  TerminalOptions options = FocusOn({1});
  options.skip_first = true;
  EXPECT_THAT(TerminalView(Cats(), options), HasSubstr("layer 0 head 0: purr 0.67  (itself 0.33)"));
}

TEST(TerminalView, TakesOneTokenNoTokenAndNaN) {
  EXPECT_EQ(TerminalView({}, {}), "");
  EXPECT_THAT(TerminalView(MakeCapture({"x"}, {1}), FocusOn({0})), HasSubstr("*x*\n  ███\n"));
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_THAT(TerminalView(MakeCapture({"x", "y"}, std::vector<float>(4, nan)), FocusOn({0})),
              Not(HasSubstr("nan")));
}

TEST(TerminalView, RefusesAFocusThatWasNotCaptured) { EXPECT_THROW(TerminalView(Cats(), FocusOn({4})), Error); }

}  // namespace
}  // namespace qkv
