// Properties of characters as the reference tokenizers see them: Hugging Face's `tokenizers`, whose tables are
// older than ICU's. A character that is younger than a table counts there as unassigned, so each rule asks ICU
// for the character's age too; the few characters that changed class since are listed. Every code point is
// tested against the reference (tests/text/unicode_test.cc).
#pragma once

#include <string>

namespace qkv {

bool IsWhitespace(char32_t c);       // Unicode's White_Space
bool IsControl(char32_t c);          // Cc, Cf, Co of Unicode 8, but for tab, line feed, carriage return
bool IsNonspacingMark(char32_t c);   // Mn of Unicode 8
bool IsBertPunctuation(char32_t c);  // every ASCII sign that is no letter or digit ('$' too), P* of Unicode 8
bool IsChinese(char32_t c);          // BERT's blocks of CJK ideographs; not kana, not hangul
bool IsWordCharacter(char32_t c);    // \w of regular expressions: letters, marks, digits, connectors

// Appends the lower case of one character without regard to its neighbours, so a final capital sigma gives the
// plain small one. U+0130 gives two characters.
void AppendLower(char32_t c, std::u32string& text);

// Appends the canonical decomposition (Unicode 9), the character itself where it has none.
void AppendDecomposed(char32_t c, std::u32string& text);

// By which combining marks are ordered in normal form D (Unicode 9); 0 for what does not combine.
int CombiningClass(char32_t c);

}  // namespace qkv
