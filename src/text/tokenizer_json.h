// Reads tokenizer.json, the file of Hugging Face's `tokenizers`. Truncation and padding that it holds are the
// caller's business there and are not read.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "qkv/tokenizer.h"

namespace qkv {

// Error{kFile} naming `where` (the file) and the key: damaged, contradicting itself, or a component that is not
// supported.
std::unique_ptr<const Tokenizer> TokenizerFromJson(std::string_view text, const std::string& where);

}  // namespace qkv
