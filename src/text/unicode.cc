#include "text/unicode.h"

#include <unicode/normalizer2.h>
#include <unicode/uchar.h>

#include <algorithm>
#include <iterator>
#include <span>

#include "qkv/error.h"

namespace qkv {
namespace {

constexpr int kCategoriesVersion = 8;     // of Unicode, in the reference's tables of general categories
constexpr int kRegexVersion = 16;         // in the classes of its regular expressions
constexpr int kNormalizationVersion = 9;  // in its tables of decompositions and combining classes

UChar32 Icu(char32_t c) { return static_cast<UChar32>(c); }

bool KnownBy(int version, char32_t c) {
  UVersionInfo age;
  u_charAge(Icu(c), age);
  return age[0] != 0 && age[0] <= version;
}

bool HasCategory(char32_t c, uint32_t mask) {
  return (U_GET_GC_MASK(Icu(c)) & mask) != 0 && KnownBy(kCategoriesVersion, c);
}

void CheckIcu(UErrorCode status) {
  if (U_FAILURE(status)) throw Error(ErrorCode::kInternal, u_errorName(status), "ICU");
}

const icu::Normalizer2& Nfd() {
  UErrorCode status = U_ZERO_ERROR;
  const icu::Normalizer2* nfd = icu::Normalizer2::getNFDInstance(status);
  CheckIcu(status);
  return *nfd;
}

const icu::Normalizer2& Nfc() {
  UErrorCode status = U_ZERO_ERROR;
  const icu::Normalizer2* nfc = icu::Normalizer2::getNFCInstance(status);
  CheckIcu(status);
  return *nfc;
}

// Lower case that came after Unicode 15, for an ICU that does not know it: [first, last] -> first + shift.
struct LowerRange {
  char32_t first, last;
  int32_t shift;
};
constexpr LowerRange kLaterLower[] = {
    {0x1C89, 0x1C89, 1},      {0xA7CB, 0xA7CB, 0x264 - 0xA7CB},
    {0xA7CC, 0xA7CC, 1},      {0xA7CE, 0xA7CE, 1},
    {0xA7D2, 0xA7D2, 1},      {0xA7D4, 0xA7D4, 1},
    {0xA7DA, 0xA7DA, 1},      {0xA7DC, 0xA7DC, 0x19B - 0xA7DC},
    {0x10D50, 0x10D65, 0x20}, {0x16EA0, 0x16EB8, 0x1B},
};

// Letters and numbers that came after Unicode 15, for the same reason.
struct CharacterRange {
  char32_t first, last;
};
constexpr CharacterRange kLaterLetters[] = {
    {0x1C89, 0x1C8A},   {0xA7CB, 0xA7CD},   {0xA7DA, 0xA7DC},   {0x105C0, 0x105F3}, {0x10D4A, 0x10D65},
    {0x10D6F, 0x10D85}, {0x10EC2, 0x10EC4}, {0x11380, 0x11389}, {0x1138B, 0x1138B}, {0x1138E, 0x1138E},
    {0x11390, 0x113B5}, {0x113B7, 0x113B7}, {0x113D1, 0x113D1}, {0x113D3, 0x113D3}, {0x11BC0, 0x11BE0},
    {0x13460, 0x143FA}, {0x16100, 0x1611D}, {0x16D40, 0x16D6C}, {0x18CFF, 0x18CFF}, {0x1E5D0, 0x1E5ED},
    {0x1E5F0, 0x1E5F0}, {0x2EBF0, 0x2EE5D},
};
constexpr CharacterRange kLaterNumbers[] = {
    {0x10D40, 0x10D49}, {0x116D0, 0x116E3}, {0x11BF0, 0x11BF9}, {0x16130, 0x16139},
    {0x16D70, 0x16D79}, {0x1CCF0, 0x1CCF9}, {0x1E5F1, 0x1E5FA},
};
constexpr CharacterRange kLatestNumbers[] = {{0x11DE0, 0x11DE9}, {0x16FF4, 0x16FF6}};

bool IsIn(std::span<const CharacterRange> ranges, char32_t c) {
  return std::any_of(ranges.begin(), ranges.end(),
                     [c](const CharacterRange& range) { return c >= range.first && c <= range.last; });
}

// Of Unicode 16 or before, where ICU may be younger.
bool HasRegexCategory(char32_t c, uint32_t mask, std::span<const CharacterRange> later) {
  if ((U_GET_GC_MASK(Icu(c)) & mask) != 0) return KnownBy(kRegexVersion, c);
  return u_charType(Icu(c)) == U_UNASSIGNED && IsIn(later, c);
}

}  // namespace

bool IsWhitespace(char32_t c) { return u_isUWhiteSpace(Icu(c)) != 0; }

bool IsControl(char32_t c) {
  if (c == '\t' || c == '\n' || c == '\r') return false;
  return HasCategory(c, U_GC_CC_MASK | U_GC_CF_MASK | U_GC_CO_MASK);
}

bool IsNonspacingMark(char32_t c) {
  switch (c) {
    case 0x1734: return true;  // now Mc
    case 0x1885:
    case 0x1886:
    case 0xA9BD:
    case 0x111C9: return false;  // became Mn later
    default: return HasCategory(c, U_GC_MN_MASK);
  }
}

bool IsBertPunctuation(char32_t c) {
  if (c < 0x80) return c > ' ' && c != 0x7F && !u_isalnum(Icu(c));
  if (c == 0x166D || c == 0x111C9) return true;  // now So, Mn
  return HasCategory(c, U_GC_P_MASK);
}

bool IsChinese(char32_t c) {
  return (c >= 0x4E00 && c <= 0x9FFF) || (c >= 0x3400 && c <= 0x4DBF) || (c >= 0x20000 && c <= 0x2A6DF) ||
         (c >= 0x2A700 && c <= 0x2B81F) || (c >= 0x2B920 && c <= 0x2CEAF) || (c >= 0xF900 && c <= 0xFAFF) ||
         (c >= 0x2F800 && c <= 0x2FA1F);
}

bool IsWordCharacter(char32_t c) {
  return (U_GET_GC_MASK(Icu(c)) & (U_GC_M_MASK | U_GC_ND_MASK | U_GC_PC_MASK)) != 0 ||
         u_hasBinaryProperty(Icu(c), UCHAR_ALPHABETIC) || u_hasBinaryProperty(Icu(c), UCHAR_JOIN_CONTROL);
}

bool ExtendsCharacter(char32_t c) { return u_hasBinaryProperty(Icu(c), UCHAR_GRAPHEME_EXTEND) != 0; }

bool IsLetter(char32_t c) { return HasRegexCategory(c, U_GC_L_MASK, kLaterLetters); }

bool IsNumber(char32_t c) { return HasRegexCategory(c, U_GC_N_MASK, kLaterNumbers); }

bool IsRustNumeric(char32_t c) { return IsNumber(c) || IsIn(kLatestNumbers, c); }

void AppendLower(char32_t c, std::u32string& text) {
  if (c == 0x130) {
    text += U"i\u0307";
    return;
  }
  const auto later = std::find_if(std::begin(kLaterLower), std::end(kLaterLower),
                                  [c](const LowerRange& range) { return c >= range.first && c <= range.last; });
  if (later != std::end(kLaterLower)) {
    text += static_cast<char32_t>(static_cast<int32_t>(c) + later->shift);
  } else {
    text += static_cast<char32_t>(u_tolower(Icu(c)));
  }
}

void AppendDecomposed(char32_t c, std::u32string& text) {
  icu::UnicodeString parts;
  if (!Nfd().getDecomposition(Icu(c), parts) || !KnownBy(kNormalizationVersion, c)) {
    text += c;
    return;
  }
  for (int32_t i = 0; i < parts.length(); i = parts.moveIndex32(i, 1))
    text += static_cast<char32_t>(parts.char32At(i));
}

char32_t ComposePair(char32_t first, char32_t second) {
  const UChar32 composed = Nfc().composePair(Icu(first), Icu(second));
  if (composed < 0) return 0;
  const auto c = static_cast<char32_t>(composed);
  return KnownBy(kNormalizationVersion, c) ? c : 0;
}

bool IsNfc(std::string_view text) {
  UErrorCode status = U_ZERO_ERROR;
  const auto size = static_cast<int32_t>(text.size());
  const bool is_nfc = Nfc().isNormalizedUTF8(icu::StringPiece(text.data(), size), status) != 0;
  CheckIcu(status);
  return is_nfc;
}

int CombiningClass(char32_t c) {
  const int value = u_getCombiningClass(Icu(c));
  return value != 0 && KnownBy(kNormalizationVersion, c) ? value : 0;
}

}  // namespace qkv
