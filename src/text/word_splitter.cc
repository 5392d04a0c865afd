#include "text/word_splitter.h"

#include <array>
#include <iterator>

#include "text/unicode.h"
#include "text/utf8.h"

namespace qkv {
namespace {

enum class Kind : uint8_t { kLetter, kNumber, kSpace, kOther, kEnd };

constexpr auto kAsciiKinds = [] {
  std::array<Kind, 128> kinds{};
  for (int c = 0; c < 128; ++c) {
    const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    const bool space = c == ' ' || (c >= '\t' && c <= '\r');
    kinds[static_cast<size_t>(c)] = letter                 ? Kind::kLetter
                                    : c >= '0' && c <= '9' ? Kind::kNumber
                                    : space                ? Kind::kSpace
                                                           : Kind::kOther;
  }
  return kinds;
}();

Kind KindOf(char32_t c) {
  if (IsLetter(c)) return Kind::kLetter;
  if (IsNumber(c)) return Kind::kNumber;
  return IsWhitespace(c) ? Kind::kSpace : Kind::kOther;
}

bool IsLineEnd(char c) { return c == '\r' || c == '\n'; }

// A text seen as kinds of characters. Positions are bytes.
class Reader {
 public:
  explicit Reader(std::string_view text) : text_(text) {}

  size_t size() const { return text_.size(); }
  char operator[](size_t at) const { return text_[at]; }
  bool Has(size_t at, char c) const { return at < text_.size() && text_[at] == c; }

  // The kind of the character at `at`; moves `at` past it.
  Kind Take(size_t& at) const {
    if (at >= text_.size()) return Kind::kEnd;
    const auto byte = static_cast<unsigned char>(text_[at]);
    if (byte < 0x80) return kAsciiKinds[(++at, byte)];
    return KindOf(NextCharacter(text_, at));
  }
  Kind At(size_t at) const { return Take(at); }

  // Where the run of this kind ends that starts at `at`.
  size_t Skip(size_t at, Kind kind) const {
    for (size_t after = at; Take(after) == kind;) at = after;
    return at;
  }
  size_t SkipLineEnds(size_t at) const {
    while (at < text_.size() && IsLineEnd(text_[at])) ++at;
    return at;
  }

  // \s+(?!\S)|\s+: whitespace but for its last character where something follows.
  size_t EndOfWhitespace(size_t at) const {
    const size_t end = Skip(at, Kind::kSpace);
    if (end == text_.size()) return end;
    size_t last = end;
    PreviousCharacter(text_, last);
    return last > at ? last : end;
  }

  std::string_view From(size_t at) const { return text_.substr(at); }

 private:
  std::string_view text_;
};

enum class Case { kExact, kIgnored };

// The length of 's, 't, 're, 've, 'm, 'll or 'd at a text's start, 0 for none of them.
size_t ContractionLength(std::string_view text, Case which) {
  static constexpr std::string_view kEndings[] = {"s", "t", "re", "ve", "m", "ll", "d"};
  static constexpr std::string_view kLongS = "\u017F";  // a small s to whom case is nothing
  if (!text.starts_with('\'')) return 0;
  const std::string_view rest = text.substr(1);
  const auto equal = [&](char a, char b) {
    return a == b || (which == Case::kIgnored && a >= 'A' && a <= 'Z' && a - 'A' + 'a' == b);
  };
  for (const std::string_view ending : kEndings) {
    if (rest.size() < ending.size()) continue;
    if (equal(rest[0], ending[0]) && (ending.size() == 1 || equal(rest[1], ending[1])))
      return 1 + ending.size();
  }
  return which == Case::kIgnored && rest.starts_with(kLongS) ? 1 + kLongS.size() : 0;
}

size_t EndOfGpt2Word(const Reader& text, size_t at) {
  if (const size_t length = ContractionLength(text.From(at), Case::kExact)) return at + length;
  const size_t start = text[at] == ' ' ? at + 1 : at;
  const Kind kind = text.At(start);
  if (kind == Kind::kSpace || kind == Kind::kEnd) return text.EndOfWhitespace(at);
  return text.Skip(start, kind);
}

// \s*[\r\n]+ and the rest of the pattern, at whitespace.
size_t EndOfLinesOrWhitespace(const Reader& text, size_t at) {
  size_t line_end = text.Skip(at, Kind::kSpace);
  while (line_end > at && !IsLineEnd(text[line_end - 1])) --line_end;
  return line_end > at ? line_end : text.EndOfWhitespace(at);
}

size_t EndOfGpt4Word(const Reader& text, size_t at, int64_t most_digits) {
  if (const size_t length = ContractionLength(text.From(at), Case::kIgnored)) return at + length;
  size_t after = at;
  const Kind kind = text.Take(after);
  if (kind == Kind::kLetter) return text.Skip(after, Kind::kLetter);
  if (kind == Kind::kNumber) {
    size_t end = after;
    for (int64_t digits = 1; digits < most_digits && text.Take(after) == Kind::kNumber; ++digits) end = after;
    return end;
  }
  if (!IsLineEnd(text[at]) && text.At(after) == Kind::kLetter) return text.Skip(after, Kind::kLetter);
  const size_t start = text[at] == ' ' ? at + 1 : at;
  if (text.At(start) == Kind::kOther) return text.SkipLineEnds(text.Skip(start, Kind::kOther));
  return EndOfLinesOrWhitespace(text, at);
}

template <class EndOfWord>
void Split(std::string_view text, TextRange range, std::vector<TextRange>& words, EndOfWord end_of_word) {
  const Reader reader(text.substr(0, range.last));
  for (size_t at = range.first; at < range.last;) {
    const size_t end = end_of_word(reader, at);
    words.push_back({at, end});
    at = end;
  }
}

}  // namespace

void SplitGpt2Words(std::string_view text, TextRange range, std::vector<TextRange>& words) {
  Split(text, range, words, EndOfGpt2Word);
}

void SplitGpt4Words(std::string_view text, TextRange range, int64_t most_digits,
                    std::vector<TextRange>& words) {
  Split(text, range, words,
        [&](const Reader& reader, size_t at) { return EndOfGpt4Word(reader, at, most_digits); });
}

void SplitDigits(std::string_view text, TextRange range, DigitWords digits, std::vector<TextRange>& words) {
  const auto is_digit = [&](size_t& at) { return IsRustNumeric(NextCharacter(text, at)); };
  for (size_t at = range.first; at < range.last;) {
    const size_t first = at;
    const bool digit = is_digit(at);
    const bool whole_run = !digit || digits == DigitWords::kRuns;
    for (size_t after = at; whole_run && at < range.last && is_digit(after) == digit;) at = after;
    words.push_back({first, at});
  }
}

}  // namespace qkv
