// What the readers of tokenizer.json for each kind of model share.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "text/added_tokens.h"
#include "text/json_node.h"
#include "text/vocabulary.h"

namespace qkv {

using VocabularyEntry = std::pair<std::string, int64_t>;  // a piece and its id

// Ids must be 0, 1, 2, ... in any order, and no two pieces equal.
Vocabulary OrderById(std::vector<VocabularyEntry> entries, const std::string& where);

// The "added_tokens" of the file, with the ids that they get; stated ids must be the same.
std::vector<AddedToken> ReadAddedTokens(const JsonNode& root, const Vocabulary& vocabulary);

// How many ids the vocabulary and the added tokens have together.
int64_t CountIds(const Vocabulary& vocabulary, const std::vector<AddedToken>& added);

// The ids of the special tokens around a text.
struct Frame {
  std::vector<int64_t> before, after;
};

// The "post_processor" of the file: TemplateProcessing, BertProcessing or RobertaProcessing, ByteLevel (which
// adds nothing), a Sequence of them, or none. Ids must be below `ids`.
Frame ReadPostProcessor(const std::optional<JsonNode>& node, int64_t ids);

}  // namespace qkv
