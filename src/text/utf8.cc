#include "text/utf8.h"

#include <unicode/utf8.h>

#include "qkv/error.h"

#pragma GCC diagnostic ignored "-Wconversion"  // in ICU's macros

namespace qkv {

void CheckUtf8(std::string_view text, const std::string& where) {
  const size_t size = text.size();
  for (size_t at = 0; at < size;) {
    const size_t first = at;
    UChar32 character;
    U8_NEXT(text.data(), at, size, character);
    if (character < 0) throw Error(ErrorCode::kFile, "invalid UTF-8 at byte " + std::to_string(first), where);
  }
}

char32_t NextCharacter(std::string_view text, size_t& at) {
  UChar32 character;
  U8_NEXT_UNSAFE(text.data(), at, character);
  return static_cast<char32_t>(character);
}

char32_t PreviousCharacter(std::string_view text, size_t& at) {
  do --at;
  while (U8_IS_TRAIL(text[at]));
  size_t next = at;
  return NextCharacter(text, next);
}

void AppendUtf8(char32_t character, std::string& text) {
  char bytes[U8_MAX_LENGTH];
  size_t size = 0;
  U8_APPEND_UNSAFE(bytes, size, character);
  text.append(bytes, size);
}

}  // namespace qkv
