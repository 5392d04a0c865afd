#include "text/piece_table.h"

#include <gtest/gtest.h>

namespace qkv {
namespace {

TEST(PieceTable, EmptyFindsNothing) {
  const PieceTable table;
  EXPECT_FALSE(table.Find("a"));
  EXPECT_FALSE(table.LongestPrefix("abc"));
  EXPECT_EQ(table.size(), 0u);
}

TEST(PieceTable, KeepsTheFirstOfEqualPieces) {
  PieceTable table;
  EXPECT_TRUE(table.Add("a", 7));
  EXPECT_FALSE(table.Add("a", 8));
  EXPECT_EQ(table.Find("a"), 7);
  EXPECT_EQ(table.size(), 1u);
}

TEST(PieceTable, FindsAllAsItGrows) {
  PieceTable table;
  table.Reserve(10);
  for (int i = 0; i < 5000; ++i) ASSERT_TRUE(table.Add("piece" + std::to_string(i), i));
  for (int i = 0; i < 5000; ++i) ASSERT_EQ(table.Find("piece" + std::to_string(i)), i);
  EXPECT_FALSE(table.Find("piece5000"));
  EXPECT_FALSE(table.Find("piece"));
}

TEST(PieceTable, LongestPrefix) {
  PieceTable table;
  for (const char* piece : {"a", "ab", "abcd", "é", "中文", ""})
    table.Add(piece, static_cast<int64_t>(table.size()));
  const auto expect = [&](std::string_view text, size_t length, int64_t id) {
    const auto match = table.LongestPrefix(text);
    ASSERT_TRUE(match) << text;
    EXPECT_EQ(match->length, length) << text;
    EXPECT_EQ(match->id, id) << text;
  };
  expect("a", 1, 0);
  expect("abc", 2, 1);
  expect("abcde", 4, 2);
  expect("éa", 2, 3);
  expect("中文字", 6, 4);
  EXPECT_FALSE(table.LongestPrefix("中"));
  EXPECT_FALSE(table.LongestPrefix("b"));
  EXPECT_FALSE(table.LongestPrefix(""));  // the empty piece is found by name only
  EXPECT_EQ(table.Find(""), 5);
}

TEST(PieceTable, MatchesEndWhereCharactersEnd) {
  PieceTable table;
  table.Add("\xc3", 0);  // half of an é
  EXPECT_FALSE(table.LongestPrefix("é"));
}

TEST(PieceTable, ZeroBytesArePartOfAPiece) {
  PieceTable table;
  table.Add(std::string_view("a\0b", 3), 1);
  EXPECT_FALSE(table.Find("a"));
  EXPECT_EQ(table.Find(std::string_view("a\0b", 3)), 1);
}

}  // namespace
}  // namespace qkv
