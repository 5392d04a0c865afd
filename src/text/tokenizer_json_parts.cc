#include "text/tokenizer_json_parts.h"

#include <algorithm>

#include "qkv/error.h"
#include "runtime/printable.h"

namespace qkv {
namespace {

// "single": [CLS], the text, [SEP]; each special token stands for the ids that the template lists for it.
Frame ReadTemplate(const JsonNode& node, int64_t ids) {
  Frame frame;
  const JsonNode single = node.At("single");
  bool seen_text = false;
  for (const JsonNode& item : single.Items()) {
    if (const auto sequence = item.Find("Sequence")) {
      sequence->At("id").ExpectOnly("A");
      if (std::exchange(seen_text, true)) sequence->Fail("the text twice", "once");
      continue;
    }
    const std::string& name = item.At("SpecialToken").At("id").String();
    auto& side = seen_text ? frame.after : frame.before;
    for (const JsonNode& id : node.At("special_tokens").At(name).At("ids").Items())
      side.push_back(id.Integer(0, ids - 1));
  }
  if (!seen_text) single.Fail("without the text", "Sequence A once");
  return frame;
}

// The older form: "cls": ["[CLS]", 101], "sep": ["[SEP]", 102].
Frame ReadPair(const JsonNode& node, int64_t ids) {
  const auto read = [&](const char* key) {
    const JsonNode pair = node.At(key);
    const std::vector<JsonNode> items = pair.Items();
    if (items.size() != 2) pair.Fail("wrong length", "a token and its id", std::to_string(items.size()));
    return items[1].Integer(0, ids - 1);
  };
  return {{read("cls")}, {read("sep")}};
}

}  // namespace

Vocabulary OrderById(std::vector<VocabularyEntry> entries, const std::string& where) {
  const auto fail = [&](const char* reason, const VocabularyEntry& entry) {
    throw Error(ErrorCode::kFile, reason, where + ": model.vocab." + Printable(entry.first),
                std::to_string(entries.size()) + " ids from 0, each once", std::to_string(entry.second));
  };
  std::vector<VocabularyEntry*> by_id(entries.size());
  for (VocabularyEntry& entry : entries) {
    const auto id = static_cast<size_t>(entry.second);
    if (id >= entries.size()) fail("id out of range", entry);
    if (by_id[id] != nullptr) fail("id of another piece", entry);
    by_id[id] = &entry;
  }
  Vocabulary vocabulary;
  vocabulary.pieces.reserve(entries.size());
  vocabulary.ids.Reserve(entries.size());
  for (const VocabularyEntry* entry : by_id) {
    if (!vocabulary.Add(entry->first))
      throw Error(ErrorCode::kFile, "duplicate piece", where + ": model.vocab", "", Quoted(entry->first));
  }
  return vocabulary;
}

std::vector<AddedToken> ReadAddedTokens(const JsonNode& root, const Vocabulary& vocabulary) {
  AddedTokenList list(vocabulary.ids);
  const auto added = root.Find("added_tokens");
  if (!added) return {};
  for (const JsonNode& item : added->Items()) {
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
  return list.tokens();
}

int64_t CountIds(const Vocabulary& vocabulary, const std::vector<AddedToken>& added) {
  auto count = static_cast<int64_t>(vocabulary.pieces.size());
  for (const AddedToken& token : added) count = std::max(count, token.id + 1);
  return count;
}

Frame ReadPostProcessor(const std::optional<JsonNode>& node, int64_t ids) {
  if (!node) return {};
  const JsonNode type = node->At("type");
  const std::string& name = type.String();
  if (name == "TemplateProcessing") return ReadTemplate(*node, ids);
  if (name == "BertProcessing" || name == "RobertaProcessing") return ReadPair(*node, ids);
  if (name == "ByteLevel") return {};
  if (name != "Sequence")
    type.Fail("unsupported", "TemplateProcessing, BertProcessing, RobertaProcessing, ByteLevel or Sequence",
              Printable(name));
  Frame frame;
  for (const JsonNode& item : node->At("processors").Items()) {
    const Frame inner = ReadPostProcessor(item, ids);
    frame.before.insert(frame.before.begin(), inner.before.begin(), inner.before.end());
    frame.after.insert(frame.after.end(), inner.after.begin(), inner.after.end());
  }
  return frame;
}

}  // namespace qkv
