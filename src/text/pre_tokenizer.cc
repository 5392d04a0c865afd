#include "text/pre_tokenizer.h"

#include <string_view>
#include <utility>

namespace qkv {
namespace {

using Words = std::vector<TextRange>;

template <class Split>
Words SplitEach(const Words& words, Split split) {
  Words split_words;
  split_words.reserve(words.size());
  for (const TextRange& word : words) split(word, split_words);
  return split_words;
}

Words ApplyStep(const Gpt2Words&, const Words& words, AlignedText& text) {
  return SplitEach(words, [&](TextRange word, Words& out) { SplitGpt2Words(text.text(), word, out); });
}

Words ApplyStep(const Gpt4Words& step, const Words& words, AlignedText& text) {
  return SplitEach(
      words, [&](TextRange word, Words& out) { SplitGpt4Words(text.text(), word, step.most_digits, out); });
}

Words ApplyStep(const DigitWords& step, const Words& words, AlignedText& text) {
  return SplitEach(words, [&](TextRange word, Words& out) { SplitDigits(text.text(), word, step, out); });
}

Words ApplyStep(const RegexSplitter& step, const Words& words, AlignedText& text) {
  return SplitEach(words, [&](TextRange word, Words& out) { step.Split(text.text(), word, out); });
}

Words ApplyStep(const LeadingSpace&, const Words& words, AlignedText& text) {
  const std::string_view old = text.text();
  TextRewriter rewriter(text);
  Words moved = SplitEach(words, [&](TextRange word, Words& out) {
    rewriter.KeepUntil(word.first);
    const size_t first = rewriter.position();
    if (old[word.first] != ' ') rewriter.Insert(" ");
    rewriter.KeepUntil(word.last);
    out.push_back({first, rewriter.position()});
  });
  rewriter.Finish();
  return moved;
}

// One word with marks for its spaces, cut at each mark if so wanted.
void RewriteWord(const Metaspace& step, std::string_view old, TextRange word, TextRewriter& rewriter,
                 Words& out) {
  size_t first = rewriter.position();
  const auto end_word = [&] {
    if (first < rewriter.position()) out.push_back({first, rewriter.position()});
    first = rewriter.position();
  };
  for (size_t at = word.first; at < word.last;) {
    const bool space = old[at] == ' ';
    const bool mark = space || old.substr(at).starts_with(step.replacement);
    const size_t last = space ? at + 1 : mark ? at + step.replacement.size() : at + 1;
    rewriter.KeepUntil(at);
    if (mark && step.words == Metaspace::Words::kCut) end_word();
    if (space) rewriter.Write({at, last}, step.replacement);
    at = last;
  }
  rewriter.KeepUntil(word.last);
  end_word();
}

Words ApplyStep(const Metaspace& step, const Words& words, AlignedText& text) {
  const std::string_view old = text.text();
  TextRewriter rewriter(text);
  Words rewritten = SplitEach(words, [&](TextRange word, Words& out) {
    const bool marked = old[word.first] == ' ' || old.substr(word.first).starts_with(step.replacement);
    const bool wanted = step.prepend == Metaspace::Prepend::kAlways ||
                        (step.prepend == Metaspace::Prepend::kFirst && text.Origin(word).first == 0);
    rewriter.KeepUntil(word.first);
    const size_t first = rewriter.position();
    if (wanted && !marked) rewriter.Insert(step.replacement);
    const size_t words_before = out.size();
    RewriteWord(step, old, word, rewriter, out);
    if (out.size() > words_before) out[words_before].first = first;  // with the mark before it
  });
  rewriter.Finish();
  return rewritten;
}

Words ApplyStep(const MarkedWords& step, const Words& words, AlignedText& text) {
  const std::string_view all = text.text();
  return SplitEach(words, [&](TextRange word, Words& out) {
    const std::string_view bytes = all.substr(0, word.last);
    size_t first = word.first, after = word.first;  // `after` the last mark seen
    for (size_t at = first; (at = bytes.find(step.mark, at)) != std::string_view::npos;
         at += step.mark.size()) {
      if (at > after) out.push_back({std::exchange(first, at), at});
      after = at + step.mark.size();
    }
    out.push_back({first, word.last});
  });
}

}  // namespace

std::vector<TextRange> SplitWords(const PreTokenizer& pre_tokenizer, AlignedText& text) {
  Words words;
  if (text.size() > 0) words.push_back({0, text.size()});
  for (const auto& step : pre_tokenizer)
    words = std::visit([&](const auto& what) { return ApplyStep(what, words, text); }, step);
  return words;
}

}  // namespace qkv
