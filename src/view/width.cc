#include "view/width.h"

#include <fmt/format.h>
#include <unicode/uchar.h>
#include <unicode/utf8.h>

#include <cstdint>

namespace qkv::view {
namespace {

constexpr UChar32 kZeroWidthNonJoiner = 0x200C, kJoiner = 0x200D, kEmojiSelector = 0xFE0F;
constexpr std::string_view kEllipsis = "\u2026";

bool IsTag(UChar32 c) { return c >= 0xE0020 && c <= 0xE007F; }  // spell the flags of regions, after U+1F3F4

bool IsRegional(UChar32 c) { return u_hasBinaryProperty(c, UCHAR_REGIONAL_INDICATOR); }

bool IsPictograph(UChar32 c) { return u_hasBinaryProperty(c, UCHAR_EXTENDED_PICTOGRAPHIC); }

UChar32 Next(std::string_view text, int32_t& at) {
  UChar32 c = 0;
  U8_NEXT_OR_FFFD(reinterpret_cast<const uint8_t*>(text.data()), at, static_cast<int32_t>(text.size()), c);
  return c;
}

// A character on its own; sequences are Columns' business.
int WidthOf(UChar32 c) {
  const auto bit = U_MASK(u_charType(c));
  if (bit & (U_GC_MN_MASK | U_GC_ME_MASK | U_GC_CF_MASK)) return 0;
  if (c >= 0x1160 && c <= 0x11FF) return 0;  // Hangul vowels and finals join the syllable before them
  if (IsRegional(c)) return 1;               // two of them make one flag of two columns
  const int wide = u_getIntPropertyValue(c, UCHAR_EAST_ASIAN_WIDTH);
  return wide == U_EA_WIDE || wide == U_EA_FULLWIDTH ? 2 : 1;
}

// Counts columns character by character, remembering what may join the next one.
class Columns {
 public:
  int Add(UChar32 c) {
    const int width = Joined(c) ? 0 : c == kEmojiSelector ? Raise() : WidthOf(c);
    after_joiner_ = c == kJoiner;
    if (width > 0) previous_ = width, pictograph_ = IsPictograph(c);
    return width;
  }

 private:
  bool Joined(UChar32 c) const {
    if (after_joiner_ && pictograph_ && IsPictograph(c)) return true;
    return u_hasBinaryProperty(c, UCHAR_EMOJI_MODIFIER) && pictograph_;
  }
  // The selector asks for the wide, coloured form of a character that is narrow by itself.
  int Raise() {
    const int more = pictograph_ && previous_ == 1 ? 1 : 0;
    previous_ += more;
    return more;
  }

  int previous_ = 0;
  bool after_joiner_ = false, pictograph_ = false;
};

bool Acts(UChar32 c, bool after_pictograph) {
  if (c == kJoiner || c == kZeroWidthNonJoiner) return false;
  if (IsTag(c)) return !after_pictograph;
  if (U_IS_UNICODE_NONCHAR(c)) return true;  // Cairo takes them for invalid UTF-8
  return U_MASK(u_charType(c)) & (U_GC_CF_MASK | U_GC_CC_MASK | U_GC_ZL_MASK | U_GC_ZP_MASK | U_GC_CS_MASK);
}

void AppendSymbol(std::string& out, UChar32 c) {
  if (c == '\n')
    c = 0x21B5;  // an arrow, which fonts have, unlike the symbols
  else if (c < 0x20)
    c += 0x2400;
  else if (c == 0x7F)
    c = 0x2421;
  else
    return static_cast<void>(out += fmt::format("<U+{:04X}>", c));
  char bytes[U8_MAX_LENGTH];
  int32_t size = 0;
  U8_APPEND_UNSAFE(bytes, size, c);
  out.append(bytes, size);
}

}  // namespace

int DisplayWidth(std::string_view text) {
  Columns columns;
  int width = 0;
  for (int32_t at = 0; at < static_cast<int32_t>(text.size());) width += columns.Add(Next(text, at));
  return width;
}

std::string Visible(std::string_view text) {
  std::string out;
  bool after_pictograph = false;
  for (int32_t at = 0; at < static_cast<int32_t>(text.size());) {
    const int32_t begin = at;
    const UChar32 c = Next(text, at);
    if (Acts(c, after_pictograph))
      AppendSymbol(out, c);
    else if (c == 0xFFFD)
      out += "\uFFFD";
    else
      out += text.substr(begin, at - begin);
    if (!IsTag(c)) after_pictograph = IsPictograph(c);
  }
  return out;
}

std::string Clipped(std::string_view text, int characters) {
  int32_t at = 0;
  for (int i = 0; i < characters && at < static_cast<int32_t>(text.size()); ++i) Next(text, at);
  const std::string_view kept = text.substr(0, at);
  return std::string(kept).append(kept.size() < text.size() ? kEllipsis : "");
}

std::string FitWidth(std::string_view text, int columns) {
  if (DisplayWidth(text) <= columns) return std::string(text);
  Columns counter;
  int width = 0;
  int32_t at = 0, end = 0;
  while (at < static_cast<int32_t>(text.size())) {
    width += counter.Add(Next(text, at));
    if (width > columns - 1) break;
    end = at;
  }
  return columns < 1 ? std::string() : std::string(text.substr(0, end)).append(kEllipsis);
}

}  // namespace qkv::view
