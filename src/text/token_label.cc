#include "text/token_label.h"

#include "text/replace.h"
#include "text/unicode.h"
#include "text/utf8.h"

namespace qkv {
namespace {

bool StartsCharacter(std::string_view text, size_t at) {
  return at >= text.size() || (static_cast<unsigned char>(text[at]) & 0xC0) != 0x80;
}

}  // namespace

TextRange TrimmedRange(std::string_view text, TextRange bytes) {
  while (!StartsCharacter(text, bytes.first)) --bytes.first;
  while (!StartsCharacter(text, bytes.last)) ++bytes.last;
  TextRange trimmed = bytes;
  for (size_t after = trimmed.first; trimmed.first < trimmed.last; trimmed.first = after)
    if (!IsWhitespace(NextCharacter(text, after))) break;
  for (size_t before = trimmed.last; trimmed.first < trimmed.last; trimmed.last = before)
    if (!IsWhitespace(PreviousCharacter(text, before))) break;
  return trimmed.first < trimmed.last ? trimmed : bytes;
}

std::string LabelOf(std::string_view text, TextRange bytes, std::string_view space) {
  while (bytes.first < bytes.last && !StartsCharacter(text, bytes.first)) ++bytes.first;
  if (bytes.first == bytes.last) return std::string(kRestOfCharacter);
  while (!StartsCharacter(text, bytes.last)) ++bytes.last;
  std::string label(text.substr(bytes.first, bytes.last - bytes.first));
  if (!space.empty()) ReplaceAll(label, space, " ");
  const TextRange trimmed = TrimmedRange(label, {0, label.size()});
  return label.substr(trimmed.first, trimmed.last - trimmed.first);
}

bool ContinuesWord(std::string_view text, size_t first) {
  if (first == 0 || first >= text.size()) return false;
  if (!StartsCharacter(text, first)) return true;
  size_t before = first, after = first;
  const char32_t next = NextCharacter(text, after), previous = PreviousCharacter(text, before);
  if (ExtendsCharacter(next)) return !IsWhitespace(previous);
  return IsWordCharacter(previous) && IsWordCharacter(next);
}

}  // namespace qkv
