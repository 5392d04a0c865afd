// The splitters written by hand against a regular expression engine with the patterns that they stand for.
#include "text/word_splitter.h"

#include <gtest/gtest.h>
#include <unicode/uchar.h>

#include <functional>

#include "qkv/error.h"
#include "text/golden.h"
#include "text/regex_splitter.h"
#include "text/unicode.h"
#include "text/utf8.h"

namespace qkv::test {
namespace {

using Words = std::vector<std::string>;

Words Cut(const std::string& text, const std::vector<TextRange>& ranges) {
  Words words;
  for (const TextRange& range : ranges) words.push_back(text.substr(range.first, range.last - range.first));
  return words;
}

// Letters and numbers of Unicode 16 that this ICU does not know yet.
bool IsYoung(const std::string& text) {
  for (size_t at = 0; at < text.size();) {
    const char32_t c = NextCharacter(text, at);
    if ((IsLetter(c) || IsNumber(c)) && u_charType(static_cast<UChar32>(c)) == U_UNASSIGNED) return true;
  }
  return false;
}

template <class Split>
void ExpectSameWords(std::string_view pattern, Split split) {
  const RegexSplitter regex(pattern, RegexKeeps::kAll, "pattern");
  for (const std::string text : ReadGolden("bpe_texts.json")) {
    if (IsYoung(text)) continue;
    std::vector<TextRange> words, expected;
    split(text, TextRange{0, text.size()}, words);
    regex.Split(text, {0, text.size()}, expected);
    EXPECT_EQ(Cut(text, words), Cut(text, expected));
  }
}

TEST(WordSplitter, Gpt2) { ExpectSameWords(kGpt2Pattern, SplitGpt2Words); }

TEST(WordSplitter, Llama3AndQwen2) {
  for (const auto& [pattern, digits] : {std::pair(kLlama3Pattern, 3), std::pair(kQwen2Pattern, 1)}) {
    ExpectSameWords(pattern, [digits = digits](const std::string& text, TextRange range, auto& words) {
      SplitGpt4Words(text, range, digits, words);
    });
  }
}

TEST(WordSplitter, RangesAreTextsOfTheirOwn) {
  const std::string text = "ab  cd";
  std::vector<TextRange> words;
  SplitGpt2Words(text, {1, 4}, words);  // the second space ends it: nothing follows
  EXPECT_EQ(Cut(text, words), (Words{"b", "  "}));
}

TEST(WordSplitter, Digits) {
  const std::string text = "a12\u0663\u00bd b";
  std::vector<TextRange> each, runs;
  SplitDigits(text, {0, text.size()}, DigitWords::kEachDigit, each);
  SplitDigits(text, {0, text.size()}, DigitWords::kRuns, runs);
  EXPECT_EQ(Cut(text, each), (Words{"a", "1", "2", "\u0663", "\u00bd", " b"}));
  EXPECT_EQ(Cut(text, runs), (Words{"a", "12\u0663\u00bd", " b"}));
}

std::string Message(const std::function<void()>& act) {
  try {
    act();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kFile);
    return error.what();
  }
  return "no error";
}

TEST(RegexSplitter, WhatIsNoPatternIsNamed) {
  const auto compile = [](const std::string& pattern) {
    return Message([&] { RegexSplitter(pattern, RegexKeeps::kAll, "t.json: pattern"); });
  };
  EXPECT_EQ(compile("(a"), "t.json: pattern: not a regular expression, got '(a'");
  EXPECT_EQ(compile("a\\"), "t.json: pattern: not a regular expression, got 'a\\\\'");
  EXPECT_EQ(compile(std::string(20'000, 'a')).substr(0, 48),
            "t.json: pattern: regular expression too long, go");
}

TEST(RegexSplitter, EndlessWorkIsStopped) {
  const std::string text(40'000, 'a');
  for (const char* pattern : {"(a+)+b", "(\\p{L}|x)+y"}) {
    const RegexSplitter regex(pattern, RegexKeeps::kAll, "t.json: pattern");
    std::vector<TextRange> words;
    EXPECT_EQ(Message([&] {
                regex.Split(text, {0, text.size()}, words);
              }),
              "t.json: pattern: regular expression too slow on this text");
  }
}

}  // namespace
}  // namespace qkv::test
