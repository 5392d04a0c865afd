#include "cli/token_choice.h"

#include <fmt/format.h>
#include <unicode/unistr.h>

#include <algorithm>
#include <numeric>
#include <optional>

#include "cli/arguments.h"
#include "cli/exit_status.h"
#include "qkv/error.h"
#include "runtime/printable.h"

namespace qkv::cli {
namespace {

constexpr size_t kWordsListed = 12;
constexpr size_t kCloseEdits = 2;
constexpr size_t kPrintedBytes = 60;  // of one word

using Fold = std::string (*)(const std::string&);

std::string AsIs(const std::string& text) { return text; }

std::string FoldCase(const std::string& text) {
  std::string folded;
  icu::UnicodeString::fromUTF8(text).foldCase().toUTF8String(folded);
  return folded;
}

std::string Trim(const std::string& text) {
  const size_t first = text.find_first_not_of(" \t\r\n"), last = text.find_last_not_of(" \t\r\n");
  return first == std::string::npos ? "" : text.substr(first, last - first + 1);
}

// The text's own spelling of tokens [first, last); some tokenizers count the space before a word to it.
std::string Spelling(const Encoding& encoding, const std::string& text, int64_t first, int64_t last) {
  const int64_t begin = encoding.span[first].first, end = encoding.span[last - 1].second;
  return begin < end ? Trim(text.substr(begin, end - begin)) : "";
}

bool StartsWord(const Encoding& encoding, int64_t token) {
  return token == static_cast<int64_t>(encoding.ids.size()) || !encoding.continues[token];
}

// Runs of whole words that spell `wanted`.
std::vector<TokenRun> MatchWords(const Encoding& encoding, const std::string& text, const std::string& wanted,
                                 Fold fold) {
  const int64_t tokens = static_cast<int64_t>(encoding.ids.size());
  const std::string key = fold(Trim(wanted));
  // Folding may change a length, but not beyond threefold; longer runs cannot fit.
  const size_t longest = 3 * key.size() + 3;
  std::vector<TokenRun> runs;
  for (int64_t first = 0; first < tokens; ++first) {
    // Special tokens stand for nothing in the text: their span is empty.
    if (!StartsWord(encoding, first) || encoding.span[first].first >= encoding.span[first].second) continue;
    for (int64_t last = first + 1; last <= tokens; ++last) {
      if (!StartsWord(encoding, last)) continue;
      const std::string spelling = Spelling(encoding, text, first, last);
      if (spelling.empty() || spelling.size() > longest) break;
      if (fold(spelling) != key) continue;
      runs.push_back({first, last});
      break;
    }
  }
  return runs;
}

std::vector<TokenRun> MatchPieces(const std::vector<std::string>& pieces, const std::string& wanted,
                                  Fold fold) {
  std::vector<TokenRun> runs;
  const std::string key = fold(wanted);
  for (int64_t token = 0; token < static_cast<int64_t>(pieces.size()); ++token) {
    if (fold(pieces[token]) == key) runs.push_back({token, token + 1});
  }
  return runs;
}

// Insertions, deletions and replacements of bytes that turn one word into the other.
size_t EditDistance(const std::string& a, const std::string& b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), 0);
  for (size_t i = 0; i < a.size(); ++i) {
    size_t diagonal = row[0]++;
    for (size_t j = 0; j < b.size(); ++j) {
      const size_t replaced = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, row[j] + 1, diagonal + 1});
    }
  }
  return row.back();
}

std::vector<std::string> DistinctWords(const Encoding& encoding, const std::string& text) {
  std::vector<std::string> words;
  const int64_t tokens = static_cast<int64_t>(encoding.ids.size());
  for (int64_t first = 0, last = 1; first < tokens; first = last++) {
    while (!StartsWord(encoding, last)) ++last;
    const std::string word = Spelling(encoding, text, first, last);
    if (!word.empty() && std::find(words.begin(), words.end(), word) == words.end()) words.push_back(word);
  }
  return words;
}

std::string Listed(const std::vector<std::string>& words) {
  std::string listed;
  for (size_t word = 0; word < std::min(words.size(), kWordsListed); ++word) {
    if (word > 0) listed += ' ';
    listed += Printable(words[word], kPrintedBytes);
  }
  if (words.size() > kWordsListed) listed += fmt::format(" ... ({} words)", words.size());
  return listed;
}

// " (did you mean "chicken"?)", or nothing where no word is close.
std::string Suggestion(const std::vector<std::string>& words, const std::string& wanted) {
  const auto key = [](const std::string& word) { return FoldCase(word.substr(0, kPrintedBytes)); };
  const std::string wanted_key = key(wanted);
  const std::string* nearest = nullptr;
  size_t fewest = std::min(kCloseEdits, wanted_key.size() / 2) + 1;
  for (const std::string& word : words) {
    const size_t edits = EditDistance(key(word), wanted_key);
    if (edits >= fewest) continue;
    fewest = edits;
    nearest = &word;
  }
  return nearest == nullptr ? "" : fmt::format(" (did you mean {}?)", Quote(*nearest));
}

[[noreturn]] void FailUnknown(const Encoding& encoding, const std::string& text, const std::string& wanted,
                              const std::string& option) {
  const std::vector<std::string> words = DistinctWords(encoding, text);
  throw Error(ErrorCode::kInvalidArgument, "no such word or piece in the text" + Suggestion(words, wanted),
              option, "an index or one of: " + Listed(words), Quote(wanted));
}

bool IsNumber(const std::string& text) {
  const size_t digits = text.starts_with('-') ? 1 : 0;
  return text.size() > digits && text.find_first_not_of("0123456789", digits) == std::string::npos;
}

TokenRun ChooseIndex(const Encoding& encoding, const std::string& wanted, const std::string& option) {
  const int64_t tokens = static_cast<int64_t>(encoding.ids.size());
  const std::optional<int64_t> index = ParseWhole(wanted);
  if (!index || *index >= tokens) {
    throw Error(ErrorCode::kInvalidArgument, "no token with that index", option,
                fmt::format("0 to {} (={} is the word)", tokens - 1, wanted.substr(0, 20)), Quote(wanted));
  }
  return {*index, *index + 1};
}

}  // namespace

std::vector<TokenRun> ChooseTokens(const Encoding& encoding, const std::string& text,
                                   const std::string& wanted, const std::string& option) {
  if (IsNumber(wanted)) return {ChooseIndex(encoding, wanted, option)};
  const std::string word = wanted.size() > 1 && wanted.starts_with('=') ? wanted.substr(1) : wanted;
  for (const Fold fold : {AsIs, FoldCase}) {
    if (auto runs = MatchWords(encoding, text, word, fold); !runs.empty()) return runs;
  }
  for (const Fold fold : {AsIs, FoldCase}) {
    for (const auto* pieces : {&encoding.tokens, &encoding.labels}) {
      if (auto runs = MatchPieces(*pieces, word, fold); !runs.empty()) return runs;
    }
  }
  FailUnknown(encoding, text, wanted, option);
}

}  // namespace qkv::cli
