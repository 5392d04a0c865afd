#include "text/normalizer.h"

#include <algorithm>
#include <string_view>

#include "text/unicode.h"
#include "text/utf8.h"

namespace qkv {
namespace {

// A character with the bytes that it was made from.
struct Composed {
  char32_t value;
  int combining_class;
  size_t first, last;
};

void AppendParts(char32_t c, size_t first, size_t last, std::vector<Composed>& parts) {
  std::u32string decomposed;
  AppendDecomposed(c, decomposed);
  for (const char32_t part : decomposed) parts.push_back({part, CombiningClass(part), first, last});
}

// Combining marks in a row, sorted by their class, equal ones in their old order. What changed places belongs
// to all the bytes of its row.
void OrderMarks(std::vector<Composed>& parts) {
  const auto combines = [](const Composed& part) { return part.combining_class != 0; };
  const auto lower = [](const Composed& a, const Composed& b) { return a.combining_class < b.combining_class; };
  for (auto first = parts.begin(); first != parts.end();) {
    first = std::find_if(first, parts.end(), combines);
    const auto last = std::find_if_not(first, parts.end(), combines);
    if (!std::is_sorted(first, last, lower)) {
      const size_t begin = first->first, end = (last - 1)->last;
      std::stable_sort(first, last, lower);
      for (auto part = first; part != last; ++part) part->first = begin, part->last = end;
    }
    first = last;
  }
}

// Joins each mark to the last starter before it where nothing of its class or above stands between.
std::vector<Composed> Compose(const std::vector<Composed>& parts) {
  std::vector<Composed> composed;
  composed.reserve(parts.size());
  size_t starter = parts.size();  // its place in `composed`; none yet
  for (const Composed& part : parts) {
    const bool has_starter = starter < composed.size();
    const bool next_to_it = has_starter && starter + 1 == composed.size();
    const bool open = next_to_it || (has_starter && composed.back().combining_class < part.combining_class);
    const char32_t joined = open ? ComposePair(composed[starter].value, part.value) : 0;
    if (joined != 0) {
      composed[starter].value = joined;
      composed[starter].last = std::max(composed[starter].last, part.last);
      continue;
    }
    if (part.combining_class == 0) starter = composed.size();
    composed.push_back(part);
  }
  return composed;
}

void ApplyStep(const ComposeNfc&, AlignedText& text) {
  const std::string_view old = text.text();
  if (IsNfc(old)) return;
  std::vector<Composed> parts;
  parts.reserve(old.size());
  for (size_t at = 0; at < old.size();) {
    const size_t first = at;
    const char32_t c = NextCharacter(old, at);
    AppendParts(c, first, at, parts);
  }
  OrderMarks(parts);
  TextRewriter rewriter(text);
  for (const Composed& c : Compose(parts)) {
    std::string piece;
    AppendUtf8(c.value, piece);
    rewriter.Write({c.first, c.last}, piece);
  }
  rewriter.Finish();
}

void ApplyStep(const PrependText& prepend, AlignedText& text) {
  if (text.size() == 0) return;
  TextRewriter rewriter(text);
  rewriter.Insert(prepend.piece);
  rewriter.Finish();
}

void ApplyStep(const ReplaceText& replace, AlignedText& text) {
  const std::string_view old = text.text();
  if (old.find(replace.from) == std::string_view::npos) return;
  TextRewriter rewriter(text);
  for (size_t at = 0; (at = old.find(replace.from, at)) != std::string_view::npos; at += replace.from.size()) {
    rewriter.KeepUntil(at);
    rewriter.Write({at, at + replace.from.size()}, replace.to);
  }
  rewriter.Finish();
}

}  // namespace

void Apply(const Normalizer& normalizer, AlignedText& text) {
  for (const auto& step : normalizer) std::visit([&](const auto& what) { ApplyStep(what, text); }, step);
}

}  // namespace qkv
