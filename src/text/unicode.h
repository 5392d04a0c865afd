// Properties of characters as the reference tokenizers see them: Hugging Face's `tokenizers`, whose tables are
// older than ICU's. A character that is younger than a table counts there as unassigned, so each rule asks ICU
// for the character's age too; the few characters that changed class since are listed. Every code point is
// tested against the reference (tests/text/unicode_test.cc).
#pragma once

#include <string>
#include <string_view>

namespace qkv {

bool IsWhitespace(char32_t c);       // Unicode's White_Space
bool IsControl(char32_t c);          // Cc, Cf, Co of Unicode 8, but for tab, line feed, carriage return
bool IsNonspacingMark(char32_t c);   // Mn of Unicode 8
bool IsBertPunctuation(char32_t c);  // every ASCII sign that is no letter or digit ('$' too), P* of Unicode 8
bool IsChinese(char32_t c);          // BERT's blocks of CJK ideographs; not kana, not hangul
bool IsWordCharacter(char32_t c);    // \w of regular expressions: letters, marks, digits, connectors

// Belongs to the character before it: marks and the signs that join emoji.
bool ExtendsCharacter(char32_t c);

// Classes of the regular expressions in tokenizers, by Unicode 16.
bool IsLetter(char32_t c);       // \p{L}
bool IsNumber(char32_t c);       // \p{N}
bool IsRustNumeric(char32_t c);  // what the pre-tokenizer `Digits` takes for a digit: N* of Unicode 17

// Appends the lower case of one character without regard to its neighbours, so a final capital sigma gives the
// plain small one. U+0130 gives two characters.
void AppendLower(char32_t c, std::u32string& text);

// Appends the canonical decomposition (Unicode 9), the character itself where it has none.
void AppendDecomposed(char32_t c, std::u32string& text);

// The character that these two compose to in normal form C (Unicode 9), 0 where they stay two.
char32_t ComposePair(char32_t first, char32_t second);

// Whether checked UTF-8 is in normal form C.
bool IsNfc(std::string_view text);

// By which combining marks are ordered in normal form D (Unicode 9); 0 for what does not combine.
int CombiningClass(char32_t c);

}  // namespace qkv
