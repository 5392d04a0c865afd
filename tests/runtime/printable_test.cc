#include "runtime/printable.h"

#include <gtest/gtest.h>

#include <string>

namespace qkv {
namespace {

using std::string_literals::operator""s;

TEST(Printable, KeepsText) {
  EXPECT_EQ(Printable(""), "");
  EXPECT_EQ(Printable("encoder.layer.0.attention"), "encoder.layer.0.attention");
  EXPECT_EQ(Printable("é 雞 🐔 \u0301"), "é 雞 🐔 \u0301");
}

TEST(Printable, EscapesControlCharacters) {
  EXPECT_EQ(Printable("a\nb\tc\rd"), "a\\nb\\tc\\rd");
  EXPECT_EQ(Printable("\x1b[31m\0\x7f"s), "\\x1b[31m\\x00\\x7f");
  EXPECT_EQ(Printable("\u0085\u2028\u202e\u2066"), "\\x85\\u2028\\u202e\\u2066");
  EXPECT_EQ(Printable("\\n"), "\\\\n");
}

TEST(Printable, EscapesWhatIsNotUtf8) {
  EXPECT_EQ(Printable("a\xff"), "a\\xff");
  EXPECT_EQ(Printable("\xc0\x80"), "\\xc0\\x80");                    // overlong
  EXPECT_EQ(Printable("\xe0\x80\x80"), "\\xe0\\x80\\x80");           // overlong
  EXPECT_EQ(Printable("\xed\xa0\x80"), "\\xed\\xa0\\x80");           // surrogate
  EXPECT_EQ(Printable("\xf4\x90\x80\x80"), "\\xf4\\x90\\x80\\x80");  // past U+10FFFF
  EXPECT_EQ(Printable("\xe9\x9b"), "\\xe9\\x9b");                    // cut
}

TEST(Printable, CutsLongText) {
  EXPECT_EQ(Printable("abcdef", 6), "abcdef");
  EXPECT_EQ(Printable("abcdefg", 6), "abcdef…");
  EXPECT_EQ(Printable("ab雞雞", 6), "ab雞…");  // never inside a character
  EXPECT_EQ(Printable("abc\n\n\n", 6), "abc\\n…");
}

}  // namespace
}  // namespace qkv
