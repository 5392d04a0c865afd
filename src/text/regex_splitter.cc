#include "text/regex_splitter.h"

#include <unicode/regex.h>

#include <utility>

#include "qkv/error.h"
#include "runtime/printable.h"
#include "text/utf8.h"

namespace qkv {
namespace {

constexpr size_t kMostPatternBytes = 10'000;

// Of the engine's own clock, which counts its work: what any text may take, and what every hundred bytes add.
// Real patterns take a fiftieth of it.
constexpr int32_t kStepsOfAnyText = 200;
constexpr int32_t kBytesOfAStep = 100;

// ICU's \s lacks the vertical tab and the next-line character; the reference's is Unicode's White_Space.
std::string Translate(std::string_view pattern) {
  std::string translated;
  for (size_t at = 0; at < pattern.size(); ++at) {
    const std::string_view pair = pattern.substr(at, 2);
    if (pair == "\\s" || pair == "\\S") {
      translated += pair == "\\s" ? "\\p{White_Space}" : "\\P{White_Space}";
      ++at;
    } else if (pair.size() == 2 && pair[0] == '\\') {
      translated += pair;
      ++at;
    } else {
      translated += pattern[at];
    }
  }
  return translated;
}

// Where characters of a text start in its UTF-16 form; asked for in ascending order.
class Utf16Place {
 public:
  Utf16Place(std::string_view text, size_t first) : text_(text), at_(first) {}

  size_t ByteOf(int64_t unit) {
    while (unit_ < unit) unit_ += NextCharacter(text_, at_) > 0xFFFF ? 2 : 1;
    return at_;
  }

 private:
  std::string_view text_;
  size_t at_;
  int64_t unit_ = 0;
};

}  // namespace

struct RegexSplitter::Pattern {
  std::unique_ptr<icu::RegexPattern> compiled;
};

RegexSplitter::RegexSplitter(std::string_view pattern, RegexKeeps keeps, std::string where)
    : keeps_(keeps), where_(std::move(where)) {
  const auto fail = [&](const char* reason) {
    throw Error(ErrorCode::kFile, reason, where_, "", "'" + Printable(pattern) + "'");
  };
  if (pattern.size() > kMostPatternBytes) fail("regular expression too long");
  UErrorCode status = U_ZERO_ERROR;
  UParseError place;
  const auto text = icu::UnicodeString::fromUTF8(Translate(pattern));
  // Anchors match at lines, as in the reference.
  auto compiled = std::make_shared<Pattern>();
  compiled->compiled.reset(icu::RegexPattern::compile(text, UREGEX_MULTILINE, place, status));
  if (U_FAILURE(status)) fail("not a regular expression");
  pattern_ = std::move(compiled);
}

void RegexSplitter::Split(std::string_view text, TextRange range, std::vector<TextRange>& words) const {
  const auto size = static_cast<int32_t>(range.last - range.first);
  const auto input = icu::UnicodeString::fromUTF8(icu::StringPiece(text.data() + range.first, size));
  UErrorCode status = U_ZERO_ERROR;
  const std::unique_ptr<icu::RegexMatcher> matcher(pattern_->compiled->matcher(input, status));
  if (matcher != nullptr) matcher->setTimeLimit(kStepsOfAnyText + size / kBytesOfAStep, status);
  Utf16Place place(text, range.first);
  const auto append = [&](size_t first, size_t last) {
    if (first < last) words.push_back({first, last});
  };
  size_t done = range.first;
  while (U_SUCCESS(status) && matcher->find(status)) {
    const size_t first = place.ByteOf(matcher->start(status)), last = place.ByteOf(matcher->end(status));
    if (keeps_ != RegexKeeps::kMatches) append(done, first);
    if (keeps_ != RegexKeeps::kRest) append(first, last);
    done = last;
  }
  if (U_FAILURE(status)) throw Error(ErrorCode::kFile, "regular expression too slow on this text", where_);
  if (keeps_ != RegexKeeps::kMatches) append(done, range.last);
}

}  // namespace qkv
