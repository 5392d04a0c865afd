// Cuts a text into the words within which a tokenizer merges; names as in tokenizer.json.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "text/aligned_text.h"
#include "text/regex_splitter.h"
#include "text/word_splitter.h"

namespace qkv {

struct Gpt2Words {};  // kGpt2Pattern
struct Gpt4Words {    // kLlama3Pattern, kQwen2Pattern
  int64_t most_digits;
};
struct LeadingSpace {};  // ByteLevel's add_prefix_space: a space before each word that does not start with one

// A visible character in place of spaces, before the text, and where words are cut.
struct Metaspace {
  enum class Prepend { kNever, kFirst, kAlways };  // kFirst: where the whole text starts
  enum class Words { kWhole, kCut };

  std::string replacement = "\u2581";
  Prepend prepend = Prepend::kAlways;
  Words words = Words::kCut;
};

struct MarkedWords {  // a mark, or a row of them, starts a word
  std::string mark;
};

using PreTokenizer = std::vector<  // one after the other
    std::variant<Gpt2Words, Gpt4Words, DigitWords, RegexSplitter, LeadingSpace, Metaspace, MarkedWords>>;

// The words of the text, which some steps rewrite.
std::vector<TextRange> SplitWords(const PreTokenizer& pre_tokenizer, AlignedText& text);

}  // namespace qkv
