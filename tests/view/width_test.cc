#include "view/width.h"

#include <gtest/gtest.h>

namespace qkv::view {
namespace {

TEST(DisplayWidth, CountsColumns) {
  EXPECT_EQ(DisplayWidth(""), 0);
  EXPECT_EQ(DisplayWidth("chicken"), 7);
  EXPECT_EQ(DisplayWidth("你好"), 4);
  EXPECT_EQ(DisplayWidth("ＡＢ"), 4);        // full-width letters
  EXPECT_EQ(DisplayWidth("cafe\u0301"), 4);  // a combining accent
  EXPECT_EQ(DisplayWidth("שלום"), 4);
  EXPECT_EQ(DisplayWidth("\u1112\u1161\u11AB"), 2);  // Hangul in parts
}

TEST(DisplayWidth, TakesEmojiSequencesAsOne) {
  EXPECT_EQ(DisplayWidth("😀"), 2);
  EXPECT_EQ(DisplayWidth("👩‍👩‍👧"), 2);
  EXPECT_EQ(DisplayWidth("👍🏽"), 2);
  EXPECT_EQ(DisplayWidth("\u2764"), 1);
  EXPECT_EQ(DisplayWidth("\u2764\uFE0F"), 2);
  EXPECT_EQ(DisplayWidth("🇨🇳"), 2);
  EXPECT_EQ(DisplayWidth("🇨🇳🇩🇪"), 4);
  EXPECT_EQ(DisplayWidth("😀😀"), 4);
}

TEST(Visible, LeavesTextAlone) {
  for (const char* text :
       {"", "a<b&c\"'", "你好", "👩‍👩‍👧", "שלום", "cafe\u0301", "\u2764\uFE0F", "می\u200Cخواهم"})
    EXPECT_EQ(Visible(text), text);
}

TEST(Visible, ShowsWhatWouldAct) {
  EXPECT_EQ(Visible("\x1b[31mred"), "␛[31mred");
  EXPECT_EQ(Visible("a\nb\tc\r"), "a↵b␉c␍");
  EXPECT_EQ(Visible(std::string_view("\0", 1)), "␀");
  EXPECT_EQ(Visible("\x7f"), "␡");
  EXPECT_EQ(Visible("\u009B31m"), "<U+009B>31m");  // the one-character form of ESC [
  EXPECT_EQ(Visible("\u202Eabc"), "<U+202E>abc");
  EXPECT_EQ(Visible("\u2028"), "<U+2028>");
  EXPECT_EQ(Visible("a\u200Bb"), "a<U+200B>b");
  EXPECT_EQ(Visible("a\U000E0041"), "a<U+E0041>");               // hidden tag characters
  EXPECT_EQ(Visible("\U0010FFFF\uFDD0"), "<U+10FFFF><U+FDD0>");  // what Unicode gives to nobody
}

TEST(Visible, ReplacesInvalidUtf8) {
  EXPECT_EQ(Visible("a\xFFz"), "a\uFFFDz");
  EXPECT_EQ(Visible("\xE4\xBD"), "\uFFFD");
  EXPECT_EQ(Visible("\xED\xA0\x80").find('\xED'), std::string::npos);  // a surrogate
}

TEST(Clipped, KeepsWholeCharacters) {
  EXPECT_EQ(Clipped("chicken", 7), "chicken");
  EXPECT_EQ(Clipped("chicken", 3), "chi…");
  EXPECT_EQ(Clipped("你好世界", 2), "你好…");
  EXPECT_EQ(Clipped("a\xFF\xFF", 2), "a\xFF…");
  EXPECT_EQ(Clipped("", 0), "");
}

TEST(FitWidth, CutsBetweenCharacters) {
  EXPECT_EQ(FitWidth("chicken", 7), "chicken");
  EXPECT_EQ(FitWidth("chicken", 6), "chick…");
  EXPECT_EQ(FitWidth("你好世界", 6), "你好…");
  EXPECT_EQ(FitWidth("你好", 1), "…");
  EXPECT_EQ(FitWidth("你好", 0), "");
}

}  // namespace
}  // namespace qkv::view
