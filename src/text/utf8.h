// UTF-8: checked once at the border, then read and written without checks.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace qkv {

// Error{kFile} naming `where` and the first byte that is wrong: a stray or missing continuation byte, an
// overlong form, a surrogate, a value beyond U+10FFFF.
void CheckUtf8(std::string_view text, const std::string& where);

// The character of a checked text that starts at byte `at`; moves `at` past it.
char32_t NextCharacter(std::string_view text, size_t& at);

// The character of a checked text that ends before byte `at` > 0; moves `at` to its start.
char32_t PreviousCharacter(std::string_view text, size_t& at);

void AppendUtf8(char32_t character, std::string& text);

}  // namespace qkv
