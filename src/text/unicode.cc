#include "text/unicode.h"

#include <unicode/normalizer2.h>
#include <unicode/uchar.h>

#include <algorithm>
#include <iterator>

#include "qkv/error.h"

namespace qkv {
namespace {

constexpr int kCategoriesVersion = 8;     // of Unicode, in the reference's tables of general categories
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

const icu::Normalizer2& Nfd() {
  UErrorCode status = U_ZERO_ERROR;
  const icu::Normalizer2* nfd = icu::Normalizer2::getNFDInstance(status);
  if (U_FAILURE(status)) throw Error(ErrorCode::kInternal, u_errorName(status), "ICU");
  return *nfd;
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

int CombiningClass(char32_t c) {
  const int value = u_getCombiningClass(Icu(c));
  return value != 0 && KnownBy(kNormalizationVersion, c) ? value : 0;
}

}  // namespace qkv
