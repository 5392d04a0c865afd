#include "text/wordpiece_json.h"

#include <utility>

#include "text/wordpiece.h"

namespace qkv {
namespace {

// Bounds the work that a damaged file can ask for; real files say 100 or 200.
constexpr int64_t kMostCharactersOfWord = 4096;

void ReadModel(const JsonNode& model, std::vector<VocabularyEntry> entries, const std::string& where,
               WordPieceSettings& settings) {
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

}  // namespace

std::unique_ptr<const Tokenizer> WordPieceFromJson(const JsonNode& root, std::vector<VocabularyEntry> entries,
                                                   const std::string& where) {
  WordPieceSettings settings;
  ReadModel(root.At("model"), std::move(entries), where, settings);
  settings.normalizer = ReadNormalizer(root.Find("normalizer"));
  root.At("pre_tokenizer").At("type").ExpectOnly("BertPreTokenizer");
  settings.added_tokens = ReadAddedTokens(root, settings.vocabulary);
  Frame frame =
      ReadPostProcessor(root.Find("post_processor"), CountIds(settings.vocabulary, settings.added_tokens));
  settings.before = std::move(frame.before);
  settings.after = std::move(frame.after);
  settings.decoder = ReadDecoder(root.Find("decoder"));
  return std::make_unique<WordPieceTokenizer>(std::move(settings));
}

}  // namespace qkv
