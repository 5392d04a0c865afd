// What BERT does to a text before it looks words up: `BertNormalizer` and `BertPreTokenizer`.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace qkv {

// A character that remembers where it came from: bytes [first, last) of the original text.
struct Character {
  char32_t value;
  int64_t first, last;
};

// What the normalizer does, in this order; names as in tokenizer.json.
struct BertNormalizer {
  bool clean_text = true;            // drops NUL, U+FFFD and control characters; any whitespace becomes ' '
  bool handle_chinese_chars = true;  // a space on both sides of a Chinese character
  bool strip_accents = true;         // normal form D without nonspacing marks
  bool lowercase = true;
};

// The normalised characters of text[first, last); the text is checked UTF-8.
std::vector<Character> Normalize(const BertNormalizer& normalizer, std::string_view text, int64_t first,
                                 int64_t last);

// Splits at whitespace, which is dropped, and around each punctuation character.
std::vector<std::span<const Character>> SplitWords(std::span<const Character> characters);

}  // namespace qkv
