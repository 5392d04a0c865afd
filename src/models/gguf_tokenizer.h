// The tokenizer that a GGUF file carries in its metadata.
#pragma once

#include <memory>
#include <string>

#include "formats/gguf_metadata.h"
#include "qkv/tokenizer.h"

namespace qkv {

// `where` names the file. Error{kFile} naming it and the key `tokenizer.ggml.*`.
std::unique_ptr<const Tokenizer> LoadGgufTokenizer(const GgufMetadata& metadata, const std::string& where);

}  // namespace qkv
