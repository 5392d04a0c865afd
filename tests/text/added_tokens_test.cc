#include "text/added_tokens.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace qkv {
namespace {

using testing::ElementsAre;

// "text|" for plain parts, "<text>|" for tokens.
std::string Parts(const std::vector<AddedToken>& tokens, std::string_view text) {
  AddedTokenFinder finder;
  for (const AddedToken& token : tokens) finder.Add(token.content, token);
  std::string parts;
  for (const TextPart& part : finder.Split(text)) {
    const std::string inner(text.substr(part.first, part.last - part.first));
    parts += (part.token ? "<" + inner + ">" : inner) + "|";
  }
  return parts;
}

TEST(AddedTokenFinder, PlainTextIsOnePart) {
  EXPECT_EQ(Parts({}, "abc"), "abc|");
  EXPECT_EQ(Parts({}, ""), "");
  EXPECT_TRUE(AddedTokenFinder().empty());
}

TEST(AddedTokenFinder, LeftmostThenLongest) {
  const std::vector<AddedToken> tokens = {{.content = "ab"}, {.content = "abcd"}, {.content = "bcde"}};
  EXPECT_EQ(Parts(tokens, "abcde"), "<abcd>|e|");
  EXPECT_EQ(Parts(tokens, "xabcxbcdeab"), "x|<ab>|cx|<bcde>|<ab>|");
}

TEST(AddedTokenFinder, StripsWhitespaceOfAnyKind) {
  EXPECT_EQ(Parts({{.content = "M", .lstrip = true}}, "a \u3000\tM b"), "a|< \u3000\tM>| b|");
  EXPECT_EQ(Parts({{.content = "M", .rstrip = true}}, "a M \u3000\tb"), "a |<M \u3000\t>|b|");
  EXPECT_EQ(Parts({{.content = "M", .lstrip = true, .rstrip = true}}, " M  M "), "< M  >|<M >|");
}

TEST(AddedTokenFinder, SingleWordsTouchNoWord) {
  const std::vector<AddedToken> tokens = {{.content = "M", .single_word = true}};
  EXPECT_EQ(Parts(tokens, "M, M-M M"), "<M>|, |<M>|-|<M>| |<M>|");
  EXPECT_EQ(Parts(tokens, "aM Mb éM M\u0301 M_"), "aM Mb éM M\u0301 M_|");
}

TEST(AddedTokenFinder, EmptyFormsNeverMatch) {
  AddedTokenFinder finder;
  finder.Add("", {.content = "x"});
  EXPECT_TRUE(finder.empty());
}

TEST(AddedTokenList, KeepsIdsOfTheVocabularyAndGoesOnFromItsEnd) {
  PieceTable vocabulary;
  for (const char* piece : {"a", "[X]", "b"}) vocabulary.Add(piece, static_cast<int64_t>(vocabulary.size()));
  AddedTokenList list(vocabulary);
  EXPECT_TRUE(list.Add({.content = "new"}));
  EXPECT_TRUE(list.Add({.content = "[X]"}));
  EXPECT_TRUE(list.Add({.content = "newer"}));
  EXPECT_FALSE(list.Add({.content = "new", .special = true}));
  std::vector<int64_t> ids;
  for (const AddedToken& token : list.tokens()) ids.push_back(token.id);
  EXPECT_THAT(ids, ElementsAre(3, 1, 4));
}

}  // namespace
}  // namespace qkv
