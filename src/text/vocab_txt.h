// A BERT vocabulary as vocab.txt, one piece a line, with the settings of tokenizer_config.json.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "qkv/tokenizer.h"

namespace qkv {

struct NamedText {
  std::string_view text;
  std::string where;  // its file
};

// Settings that the config leaves out are BERT's. Error{kFile} naming the file and the line or key.
std::unique_ptr<const Tokenizer> TokenizerFromVocabulary(const NamedText& vocabulary, const NamedText& config);

}  // namespace qkv
