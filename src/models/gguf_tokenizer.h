// The tokenizer that a GGUF file carries in its metadata.
#pragma once

#include <memory>

#include "formats/gguf.h"
#include "qkv/tokenizer.h"

namespace qkv {

// Error{kFile} naming the file and the key `tokenizer.ggml.*`.
std::unique_ptr<const Tokenizer> LoadGgufTokenizer(const Gguf& file);

}  // namespace qkv
