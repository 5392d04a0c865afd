// Every code point, against what the reference does with it.
#include "text/unicode.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <map>

#include "text/golden.h"

namespace qkv::test {
namespace {

constexpr char32_t kEnd = 0x110000;
bool IsSurrogate(char32_t c) { return c >= 0xD800 && c < 0xE000; }

std::string Name(char32_t c) {
  char name[16];
  std::snprintf(name, sizeof name, "U+%04X", static_cast<unsigned>(c));
  return name;
}

std::vector<bool> Members(const nlohmann::json& ranges) {
  std::vector<bool> members(kEnd);
  for (const auto& range : ranges) {
    for (char32_t c = range[0]; c <= range[1].get<char32_t>(); ++c) members[c] = true;
  }
  return members;
}

template <class Rule>
void ExpectMembers(const char* name, Rule rule, const char* file = "characters.json") {
  const std::vector<bool> expected = Members(ReadGolden(file).at(name));
  for (char32_t c = 0; c < kEnd; ++c) {
    if (IsSurrogate(c)) continue;
    EXPECT_EQ(rule(c), expected[c]) << name << ' ' << Name(c);
  }
}

template <class Append>
void ExpectMapping(const char* name, Append append) {
  std::map<char32_t, std::u32string> expected;
  const auto golden = ReadGolden("characters.json");
  for (const auto& row : golden.at(name)) {
    for (const auto& c : row[1]) expected[row[0].get<char32_t>()] += c.get<char32_t>();
  }
  EXPECT_GT(expected.size(), 1000u);
  for (char32_t c = 0; c < kEnd; ++c) {
    if (IsSurrogate(c)) continue;
    std::u32string got;
    append(c, got);
    const auto changed = expected.find(c);
    EXPECT_EQ(got, changed == expected.end() ? std::u32string(1, c) : changed->second)
        << name << ' ' << Name(c);
  }
}

TEST(Unicode, ClassesOfRegularExpressions) {
  ExpectMembers("letters", IsLetter, "classes.json");
  ExpectMembers("numbers", IsNumber, "classes.json");
  ExpectMembers("whitespace", IsWhitespace, "classes.json");
  ExpectMembers("digits", IsRustNumeric, "classes.json");
}

TEST(Unicode, Whitespace) { ExpectMembers("whitespace", IsWhitespace); }
TEST(Unicode, Punctuation) { ExpectMembers("punctuation", IsBertPunctuation); }
TEST(Unicode, Chinese) { ExpectMembers("chinese", IsChinese); }

TEST(Unicode, Dropped) {
  ExpectMembers("dropped", [](char32_t c) { return c == 0 || c == 0xFFFD || IsControl(c); });
}

TEST(Unicode, NonspacingMarks) {
  // Four marks decompose into marks: they vanish too, without being looked at themselves.
  ExpectMembers("marks", [](char32_t c) {
    std::u32string parts;
    AppendDecomposed(c, parts);
    return std::all_of(parts.begin(), parts.end(), IsNonspacingMark);
  });
}

TEST(Unicode, CombiningClasses) {
  ExpectMembers("combining", [](char32_t c) {
    std::u32string parts;
    AppendDecomposed(c, parts);
    return parts[0] == c && CombiningClass(c) != 0;
  });
  EXPECT_EQ(CombiningClass(0x301), 230);
  EXPECT_EQ(CombiningClass(0x323), 220);
  EXPECT_EQ(CombiningClass(0x1D165), 216);
}

TEST(Unicode, LowerCase) { ExpectMapping("lower", AppendLower); }

TEST(Unicode, Decomposition) {
  // Hangul syllables are left out of the golden file: they decompose by a formula.
  ExpectMapping("decomposed", [](char32_t c, std::u32string& text) {
    if (c < 0xAC00 || c > 0xD7A3) return AppendDecomposed(c, text);
    std::u32string parts;
    AppendDecomposed(c, parts);
    const char32_t index = c - 0xAC00, tail = index % 28;
    std::u32string expected = {0x1100 + index / 588, 0x1161 + index % 588 / 28};
    if (tail != 0) expected += 0x11A7 + tail;
    EXPECT_EQ(parts, expected) << Name(c);
    text += c;
  });
}

TEST(Unicode, WordCharacters) {
  for (const char32_t c : {U'a', U'Z', U'0', U'_', U'é', U'中', U'\u0301', U'\u200d', U'٣', U'ª', U'Ⅷ'})
    EXPECT_TRUE(IsWordCharacter(c)) << Name(c);
  for (const char32_t c : {U' ', U'-', U'.', U'[', U'€', U'½', U'\u00a0', U'\u200b', U'🐔'})
    EXPECT_FALSE(IsWordCharacter(c)) << Name(c);
}

}  // namespace
}  // namespace qkv::test
