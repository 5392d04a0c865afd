#include "text/bert_text.h"

#include <algorithm>
#include <string>

#include "text/unicode.h"
#include "text/utf8.h"

namespace qkv {
namespace {

constexpr char32_t kFirstDecomposing = 0xC0;  // no character below it decomposes or combines

// One character of the text through the first two steps, onto the end of `out`.
void AppendCleaned(const BertNormalizer& normalizer, Character c, std::vector<Character>& out) {
  if (normalizer.clean_text) {
    if (c.value == 0 || c.value == 0xFFFD || IsControl(c.value)) return;
    if (IsWhitespace(c.value)) c.value = ' ';
  }
  if (normalizer.handle_chinese_chars && IsChinese(c.value)) {
    const Character space{' ', c.first, c.last};
    out.insert(out.end(), {space, c, space});
  } else {
    out.push_back(c);
  }
}

struct Part {
  char32_t value;
  int combining_class;
  bool starts;  // the first part of a character
};

// Combining marks in a row, sorted by their class, equal ones in their old order.
void OrderMarks(std::vector<Part>& parts) {
  const auto combines = [](const Part& part) { return part.combining_class != 0; };
  for (auto first = parts.begin(); first != parts.end();) {
    first = std::find_if(first, parts.end(), combines);
    const auto last = std::find_if_not(first, parts.end(), combines);
    std::stable_sort(first, last,
                     [](const Part& a, const Part& b) { return a.combining_class < b.combining_class; });
    first = last;
  }
}

// Normal form D without nonspacing marks. Where sorting moved a mark, the reference counts origins by place:
// the n-th start of a character belongs to the n-th character of the text.
std::vector<Character> StripAccents(const std::vector<Character>& characters) {
  std::vector<Part> parts;
  parts.reserve(characters.size());
  std::u32string decomposed;
  for (const Character& c : characters) {
    decomposed.clear();
    AppendDecomposed(c.value, decomposed);
    for (size_t i = 0; i < decomposed.size(); ++i)
      parts.push_back({decomposed[i], CombiningClass(decomposed[i]), i == 0});
  }
  OrderMarks(parts);
  std::vector<Character> stripped;
  stripped.reserve(characters.size());
  size_t started = 0;
  for (const Part& part : parts) {
    if (part.starts) ++started;
    const Character& origin = characters[started - 1];
    if (!IsNonspacingMark(part.value)) stripped.push_back({part.value, origin.first, origin.last});
  }
  return stripped;
}

std::vector<Character> Lowercase(const std::vector<Character>& characters) {
  std::vector<Character> lower;
  lower.reserve(characters.size());
  std::u32string values;
  for (const Character& c : characters) {
    values.clear();
    AppendLower(c.value, values);
    for (const char32_t value : values) lower.push_back({value, c.first, c.last});
  }
  return lower;
}

}  // namespace

std::vector<Character> Normalize(const BertNormalizer& normalizer, std::string_view text, int64_t first,
                                 int64_t last) {
  std::vector<Character> characters;
  characters.reserve(static_cast<size_t>(last - first));
  for (size_t at = static_cast<size_t>(first); at < static_cast<size_t>(last);) {
    const int64_t start = static_cast<int64_t>(at);
    const char32_t value = NextCharacter(text, at);
    AppendCleaned(normalizer, {value, start, static_cast<int64_t>(at)}, characters);
  }
  const auto may_decompose = [](const Character& c) { return c.value >= kFirstDecomposing; };
  if (normalizer.strip_accents && std::any_of(characters.begin(), characters.end(), may_decompose))
    characters = StripAccents(characters);
  if (normalizer.lowercase) characters = Lowercase(characters);
  return characters;
}

std::vector<std::span<const Character>> SplitWords(std::span<const Character> characters) {
  std::vector<std::span<const Character>> words;
  size_t first = 0;
  const auto end_word = [&](size_t last) {
    if (first < last) words.push_back(characters.subspan(first, last - first));
    first = last;
  };
  for (size_t i = 0; i < characters.size(); ++i) {
    if (IsWhitespace(characters[i].value)) {
      end_word(i);
      first = i + 1;
    } else if (IsBertPunctuation(characters[i].value)) {
      end_word(i);
      end_word(i + 1);
    }
  }
  end_word(characters.size());
  return words;
}

}  // namespace qkv
