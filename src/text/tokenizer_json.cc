#include "text/tokenizer_json.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "qkv/error.h"
#include "runtime/json.h"
#include "runtime/printable.h"
#include "text/added_tokens.h"
#include "text/json_node.h"
#include "text/wordpiece.h"

namespace qkv {
namespace {

// Bounds the work that a damaged file can ask for; real files say 100 or 200.
constexpr int64_t kMostCharactersOfWord = 4096;

using Entry = std::pair<std::string, int64_t>;  // a piece and its id

// Ids must be 0, 1, 2, ... in any order.
Vocabulary OrderById(std::vector<Entry> entries, const std::string& where) {
  const auto fail = [&](const char* reason, const Entry& entry) {
    throw Error(ErrorCode::kFile, reason, where + ": model.vocab." + Printable(entry.first),
                std::to_string(entries.size()) + " ids from 0, each once", std::to_string(entry.second));
  };
  std::vector<Entry*> by_id(entries.size());
  for (Entry& entry : entries) {
    const auto id = static_cast<size_t>(entry.second);
    if (id >= entries.size()) fail("id out of range", entry);
    if (by_id[id] != nullptr) fail("id of another piece", entry);
    by_id[id] = &entry;
  }
  Vocabulary vocabulary;
  vocabulary.pieces.reserve(entries.size());
  vocabulary.ids.Reserve(entries.size());
  for (const Entry* entry : by_id) {
    if (!vocabulary.Add(entry->first))
      throw Error(ErrorCode::kFile, "duplicate piece", where + ": model.vocab", "", Quoted(entry->first));
  }
  return vocabulary;
}

void ReadModel(const JsonNode& model, std::vector<Entry> entries, const std::string& where,
               WordPieceSettings& settings) {
  model.At("type").ExpectOnly("WordPiece");
  settings.continuing_prefix = model.At("continuing_subword_prefix").String();
  settings.max_characters = model.At("max_input_chars_per_word").Integer(1, kMostCharactersOfWord);

  model.At("vocab").Object();
  settings.vocabulary = OrderById(std::move(entries), where);

  const JsonNode unknown = model.At("unk_token");
  settings.unknown_token = unknown.String();
  if (!settings.vocabulary.ids.Find(settings.unknown_token))
    unknown.Fail("not in the vocabulary", "", Quoted(settings.unknown_token));
}

std::optional<BertNormalizer> ReadNormalizer(const std::optional<JsonNode>& node) {
  if (!node) return {};
  node->At("type").ExpectOnly("BertNormalizer");
  BertNormalizer normalizer;
  normalizer.clean_text = node->At("clean_text").Bool();
  normalizer.handle_chinese_chars = node->At("handle_chinese_chars").Bool();
  normalizer.lowercase = node->At("lowercase").Bool();
  const auto strip_accents = node->Find("strip_accents");
  normalizer.strip_accents = strip_accents ? strip_accents->Bool() : normalizer.lowercase;
  return normalizer;
}

std::optional<WordPieceDecoder> ReadDecoder(const std::optional<JsonNode>& node) {
  if (!node) return {};
  node->At("type").ExpectOnly("WordPiece");
  return WordPieceDecoder{.prefix = node->At("prefix").String(), .cleanup = node->At("cleanup").Bool()};
}

void ReadAddedTokens(const std::vector<JsonNode>& items, WordPieceSettings& settings) {
  AddedTokenList list(settings.vocabulary.ids);
  for (const JsonNode& item : items) {
    const JsonNode content = item.At("content"), id = item.At("id");
    AddedToken token{.content = content.String(),
                     .single_word = item.At("single_word").Bool(),
                     .lstrip = item.At("lstrip").Bool(),
                     .rstrip = item.At("rstrip").Bool(),
                     .normalized = item.At("normalized").Bool(),
                     .special = item.At("special").Bool()};
    if (token.content.empty()) content.Fail("empty");
    if (!list.Add(std::move(token))) content.Fail("duplicate", "", Quoted(content.String()));
    const int64_t expected = list.tokens().back().id;
    const int64_t stated = id.Integer(0, INT32_MAX);
    if (stated != expected)
      id.Fail("contradicts the vocabulary", std::to_string(expected), std::to_string(stated));
  }
  settings.added_tokens = list.tokens();
}

int64_t CountIds(const WordPieceSettings& settings) {
  auto count = static_cast<int64_t>(settings.vocabulary.pieces.size());
  for (const AddedToken& token : settings.added_tokens) count = std::max(count, token.id + 1);
  return count;
}

// "single": [CLS], the text, [SEP]; each special token stands for the ids that the template lists for it.
void ReadTemplate(const JsonNode& node, WordPieceSettings& settings) {
  const int64_t most = CountIds(settings) - 1;
  const JsonNode single = node.At("single");
  bool seen_text = false;
  for (const JsonNode& item : single.Items()) {
    if (const auto sequence = item.Find("Sequence")) {
      sequence->At("id").ExpectOnly("A");
      if (std::exchange(seen_text, true)) sequence->Fail("the text twice", "once");
      continue;
    }
    const std::string& name = item.At("SpecialToken").At("id").String();
    auto& ids = seen_text ? settings.after : settings.before;
    for (const JsonNode& id : node.At("special_tokens").At(name).At("ids").Items())
      ids.push_back(id.Integer(0, most));
  }
  if (!seen_text) single.Fail("without the text", "Sequence A once");
}

// The older form: "cls": ["[CLS]", 101], "sep": ["[SEP]", 102].
void ReadBertProcessing(const JsonNode& node, WordPieceSettings& settings) {
  const auto read = [&](const char* key) {
    const JsonNode pair = node.At(key);
    const std::vector<JsonNode> items = pair.Items();
    if (items.size() != 2) pair.Fail("wrong length", "a token and its id", std::to_string(items.size()));
    return items[1].Integer(0, CountIds(settings) - 1);
  };
  settings.before = {read("cls")};
  settings.after = {read("sep")};
}

void ReadPostProcessor(const std::optional<JsonNode>& node, WordPieceSettings& settings) {
  if (!node) return;
  const JsonNode type = node->At("type");
  if (type.String() == "BertProcessing") return ReadBertProcessing(*node, settings);
  type.ExpectOnly("TemplateProcessing");
  ReadTemplate(*node, settings);
}

}  // namespace

std::unique_ptr<const Tokenizer> TokenizerFromJson(std::string_view text, const std::string& where) {
  std::vector<Entry> entries;
  const auto take = [&](std::string& piece, int64_t id) { entries.emplace_back(std::move(piece), id); };
  const nlohmann::json json = ParseJson(text, where, JsonVocabulary{"model", "vocab", take});
  const JsonNode root(json, where);
  WordPieceSettings settings;
  ReadModel(root.At("model"), std::move(entries), where, settings);
  settings.normalizer = ReadNormalizer(root.Find("normalizer"));
  root.At("pre_tokenizer").At("type").ExpectOnly("BertPreTokenizer");
  if (const auto added = root.Find("added_tokens")) ReadAddedTokens(added->Items(), settings);
  ReadPostProcessor(root.Find("post_processor"), settings);
  settings.decoder = ReadDecoder(root.Find("decoder"));
  return std::make_unique<WordPieceTokenizer>(std::move(settings));
}

}  // namespace qkv
