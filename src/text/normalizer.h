// What BPE tokenizers do to a text before they cut it; names as in tokenizer.json.
#pragma once

#include <string>
#include <variant>
#include <vector>

#include "text/aligned_text.h"

namespace qkv {

struct ComposeNfc {};  // Unicode's normal form C
struct PrependText {   // to a text that is not empty
  std::string piece;
};
struct ReplaceText {
  std::string from, to;  // `from` is not empty
};

using Normalizer = std::vector<std::variant<ComposeNfc, PrependText, ReplaceText>>;  // one after the other

void Apply(const Normalizer& normalizer, AlignedText& text);

}  // namespace qkv
