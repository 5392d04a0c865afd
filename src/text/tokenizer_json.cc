#include "text/tokenizer_json.h"

#include <utility>
#include <vector>

#include "runtime/json.h"
#include "runtime/printable.h"
#include "text/bpe_json.h"
#include "text/json_node.h"
#include "text/wordpiece_json.h"

namespace qkv {

std::unique_ptr<const Tokenizer> TokenizerFromJson(std::string_view text, const std::string& where) {
  std::vector<VocabularyEntry> entries;
  const auto take = [&](std::string& piece, int64_t id) { entries.emplace_back(std::move(piece), id); };
  const nlohmann::json json = ParseJson(text, where, JsonVocabulary{"model", "vocab", take});
  const JsonNode root(json, where), type = root.At("model").At("type");
  if (type.String() == "WordPiece") return WordPieceFromJson(root, std::move(entries), where);
  if (type.String() == "BPE") return BpeFromJson(root, std::move(entries), where);
  type.Fail("unsupported", "WordPiece or BPE", Printable(type.String()));
}

}  // namespace qkv
