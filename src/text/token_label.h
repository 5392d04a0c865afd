// What a reader wants to see of a token that stands for some bytes of a text.
#pragma once

#include <string>
#include <string_view>

#include "text/word_splitter.h"

namespace qkv {

// Stands in the label of a token that only finishes a character which a token before it has begun.
inline constexpr std::string_view kRestOfCharacter = "\u00B7";

// The characters that begin in these bytes, whole, without the whitespace around them (all of it where there
// is nothing else). `space`: a character that stands for a space there; empty for none.
std::string LabelOf(std::string_view text, TextRange bytes, std::string_view space);

// Whether the bytes go on with the word that the bytes before them belong to: within a character, between two
// characters of words, or before a mark that belongs to what it follows.
bool ContinuesWord(std::string_view text, size_t first);

// The range without the whitespace at its ends, widened to whole characters; all of it where it is nothing but
// whitespace.
TextRange TrimmedRange(std::string_view text, TextRange bytes);

}  // namespace qkv
