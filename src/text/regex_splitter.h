// Splits text by a regular expression that no hand-written splitter knows, on ICU's engine.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "text/word_splitter.h"

namespace qkv {

enum class RegexKeeps { kAll, kMatches, kRest };

class RegexSplitter {
 public:
  // A pattern as Oniguruma reads it, the reference's engine. Error{kFile} naming `where` if it is none.
  RegexSplitter(std::string_view pattern, RegexKeeps keeps, std::string where);

  // Appends the words of text[range], empty ones left out. Error{kFile} where the pattern takes far too long or
  // too much memory on this text.
  void Split(std::string_view text, TextRange range, std::vector<TextRange>& words) const;

 private:
  struct Pattern;  // keeps ICU out of this header

  std::shared_ptr<const Pattern> pattern_;
  RegexKeeps keeps_;
  std::string where_;
};

}  // namespace qkv
