// A tokenizer.json whose model is WordPiece.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "qkv/tokenizer.h"
#include "text/tokenizer_json_parts.h"

namespace qkv {

// `entries` are the members of model.vocab, which `root` does not hold.
std::unique_ptr<const Tokenizer> WordPieceFromJson(const JsonNode& root, std::vector<VocabularyEntry> entries,
                                                   const std::string& where);

}  // namespace qkv
