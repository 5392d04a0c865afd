#include "text/vocab_txt.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <utility>

#include "qkv/error.h"
#include "runtime/json.h"
#include "runtime/printable.h"
#include "text/json_node.h"
#include "text/utf8.h"
#include "text/wordpiece.h"

namespace qkv {
namespace {

constexpr size_t kMostBytes = size_t{64} << 20;

// Lines end with LF, CR LF or CR, as Python reads them; the last one may lack its end.
std::string_view TakeLine(std::string_view& text) {
  const size_t end = std::min(text.find_first_of("\r\n"), text.size());
  const std::string_view line = text.substr(0, end);
  text.remove_prefix(end);
  if (!text.empty()) text.remove_prefix(text.starts_with("\r\n") ? 2 : 1);
  return line;
}

Vocabulary ReadVocabulary(const NamedText& file) {
  if (file.text.size() > kMostBytes) {
    throw Error(ErrorCode::kFile, "too large for a vocabulary", file.where,
                "at most " + std::to_string(kMostBytes) + " bytes", std::to_string(file.text.size()));
  }
  CheckUtf8(file.text, file.where);
  Vocabulary vocabulary;
  for (std::string_view rest = file.text; !rest.empty();) {
    const std::string_view line = TakeLine(rest);
    if (!vocabulary.Add(std::string(line))) {
      throw Error(ErrorCode::kFile, "duplicate piece",
                  file.where + ": line " + std::to_string(vocabulary.pieces.size() + 1), "", Quoted(line));
    }
  }
  if (vocabulary.pieces.empty()) throw Error(ErrorCode::kFile, "empty", file.where);
  return vocabulary;
}

bool BoolOr(const JsonNode& config, std::string_view key, bool otherwise) {
  const auto node = config.Find(key);
  return node ? node->Bool() : otherwise;
}

// Other classes of tokenizers with a vocab.txt split text in their own ways (BertJapaneseTokenizer by MeCab).
void CheckClass(const JsonNode& config) {
  static constexpr std::array<std::string_view, 4> kBertLike = {"BertTokenizer", "DistilBertTokenizer",
                                                                "ElectraTokenizer", "MobileBertTokenizer"};
  const auto node = config.Find("tokenizer_class");
  if (!node) return;
  std::string_view name = node->String();
  if (name.ends_with("Fast")) name.remove_suffix(4);
  if (std::find(kBertLike.begin(), kBertLike.end(), name) == kBertLike.end())
    node->Fail("unsupported", "BertTokenizer or one like it", Printable(node->String()));
}

// Either a string or an object with the content and how to match it. Absent: BERT's; null: none.
std::optional<AddedToken> ReadSpecialToken(const JsonNode& config, std::string_view key,
                                           std::string_view otherwise) {
  if (!config.Object().contains(std::string(key)))
    return AddedToken{.content = std::string(otherwise), .special = true};
  const auto node = config.Find(key);
  if (!node) return {};
  if (node->is_string()) return AddedToken{.content = node->String(), .special = true};
  return AddedToken{.content = node->At("content").String(),
                    .single_word = BoolOr(*node, "single_word", false),
                    .lstrip = BoolOr(*node, "lstrip", false),
                    .rstrip = BoolOr(*node, "rstrip", false),
                    .normalized = BoolOr(*node, "normalized", false),
                    .special = true};
}

// The id of a special token that every text needs.
int64_t Required(const std::optional<AddedToken>& token, std::string_view key, const Vocabulary& vocabulary,
                 const NamedText& file) {
  const auto id = token ? vocabulary.ids.Find(token->content) : std::nullopt;
  if (!id) {
    const std::string piece = token ? Quoted(token->content) : "null";
    throw Error(ErrorCode::kFile, "holds no " + std::string(key), file.where, piece);
  }
  return *id;
}

void ReadSpecialTokens(const JsonNode& config, const NamedText& file, WordPieceSettings& settings) {
  const auto unknown = ReadSpecialToken(config, "unk_token", "[UNK]");
  const auto separator = ReadSpecialToken(config, "sep_token", "[SEP]");
  const auto classifier = ReadSpecialToken(config, "cls_token", "[CLS]");
  Required(unknown, "unk_token", settings.vocabulary, file);
  settings.unknown_token = unknown->content;
  settings.before = {Required(classifier, "cls_token", settings.vocabulary, file)};
  settings.after = {Required(separator, "sep_token", settings.vocabulary, file)};

  AddedTokenList list(settings.vocabulary.ids);
  const auto padding = ReadSpecialToken(config, "pad_token", "[PAD]");
  const auto mask = ReadSpecialToken(config, "mask_token", "[MASK]");
  for (const auto& token : {unknown, separator, padding, classifier, mask}) {
    if (token && !token->content.empty()) list.Add(*token);
  }
  settings.added_tokens = list.tokens();
}

}  // namespace

std::unique_ptr<const Tokenizer> TokenizerFromVocabulary(const NamedText& vocabulary, const NamedText& config) {
  const nlohmann::json json = ParseJson(config.text, config.where);
  const JsonNode root(json, config.where);
  CheckClass(root);
  WordPieceSettings settings;
  settings.vocabulary = ReadVocabulary(vocabulary);
  ReadSpecialTokens(root, vocabulary, settings);
  BertNormalizer normalizer;
  normalizer.lowercase = BoolOr(root, "do_lower_case", true);
  normalizer.strip_accents = BoolOr(root, "strip_accents", normalizer.lowercase);
  normalizer.handle_chinese_chars = BoolOr(root, "tokenize_chinese_chars", true);
  settings.normalizer = normalizer;
  settings.decoder = WordPieceDecoder{};
  return std::make_unique<WordPieceTokenizer>(std::move(settings));
}

}  // namespace qkv
