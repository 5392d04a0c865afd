#include "text/utf8.h"

#include <gtest/gtest.h>

#include "qkv/error.h"

namespace qkv {
namespace {

using std::string_literals::operator""s;

std::string Message(std::string_view text) {
  try {
    CheckUtf8(text, "text");
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kFile);
    return error.what();
  }
  return "valid";
}

TEST(Utf8, Valid) {
  for (const std::string& text :
       {""s, "a\0b"s, "\x7f"s, "\u0080\u07ff\u0800\ud7ff\ue000\uffff"s, "\U00010000\U0010ffff"s, "\ufeff"s})
    EXPECT_EQ(Message(text), "valid");
}

TEST(Utf8, NamesTheFirstWrongByte) {
  const std::pair<std::string, int> cases[] = {
      {"\x80", 0},
      {"ab\xbf", 2},
      {"\xc3", 0},
      {"\xc3(", 0},
      {"é\xc3", 2},
      {"\xe2\x82", 0},
      {"\xe2(\xa1", 0},
      {"\xf0\x9f\x90", 0},
      {"a\xf0\x9f\x90z", 1},
      {"\xc0\x80", 0},
      {"\xc1\xbf", 0},
      {"\xe0\x9f\xbf", 0},
      {"\xf0\x8f\xbf\xbf", 0},
      {"\xed\xa0\x80", 0},
      {"\xed\xbf\xbf", 0},
      {"\xf4\x90\x80\x80", 0},
      {"\xf5\x80\x80\x80", 0},
      {"\xfe", 0},
      {"ok\xff", 2},
  };
  for (const auto& [text, byte] : cases)
    EXPECT_EQ(Message(text), "text: invalid UTF-8 at byte " + std::to_string(byte)) << text;
}

TEST(Utf8, EveryCharacterThereAndBack) {
  std::string text;
  for (char32_t c = 0; c < 0x110000; ++c) {
    if (c < 0xD800 || c >= 0xE000) AppendUtf8(c, text);
  }
  EXPECT_EQ(Message(text), "valid");
  size_t at = 0;
  for (char32_t c = 0; c < 0x110000; ++c) {
    if (c >= 0xD800 && c < 0xE000) continue;
    const size_t first = at;
    ASSERT_EQ(NextCharacter(text, at), c);
    size_t back = at;
    ASSERT_EQ(PreviousCharacter(text, back), c);
    ASSERT_EQ(back, first);
  }
  EXPECT_EQ(at, text.size());
}

}  // namespace
}  // namespace qkv
