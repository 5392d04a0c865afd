#include "text/wordpiece.h"

#include <algorithm>
#include <utility>

#include "text/replace.h"
#include "text/utf8.h"

namespace qkv {
namespace {

std::string ToUtf8(std::span<const Character> characters) {
  std::string text;
  for (const Character& c : characters) AppendUtf8(c.value, text);
  return text;
}

// The reference's clean-up of English, applied to each piece with the space before it.
void CleanUp(std::string& piece) {
  static constexpr std::pair<std::string_view, std::string_view> kReplacements[] = {
      {" .", "."},   {" ?", "?"},           {" !", "!"},   {" ,", ","},     {" ' ", "'"},    {" n't", "n't"},
      {" 'm", "'m"}, {" do not", " don't"}, {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"},
  };
  for (const auto& [from, to] : kReplacements) ReplaceAll(piece, from, to);
}

}  // namespace

WordPieceTokenizer::WordPieceTokenizer(WordPieceSettings settings)
    : settings_(std::move(settings)),
      tokens_(std::move(settings_.vocabulary), settings_.added_tokens),
      unknown_(tokens_.vocabulary().Find(settings_.unknown_token).value()) {
  const auto vocabulary_size = static_cast<int64_t>(tokens_.vocabulary().size());
  for (int64_t id = 0; id < vocabulary_size; ++id) {
    const std::string_view piece = tokens_[id];
    if (piece.starts_with(settings_.continuing_prefix))
      continuations_.Add(piece.substr(settings_.continuing_prefix.size()), id);
  }
  for (const AddedToken& token : settings_.added_tokens) {
    if (token.normalized) {
      const auto size = static_cast<int64_t>(token.content.size());
      normalized_.Add(ToUtf8(NormalizePart(token.content, 0, size)), token);
    } else {
      raw_.Add(token.content, token);
    }
  }
}

Encoding WordPieceTokenizer::Encode(std::string_view text) const {
  CheckUtf8(text, "text");
  Encoding encoding;
  for (const int64_t id : settings_.before) Append(id, Kind::kAround, 0, 0, encoding);
  for (const TextPart& part : raw_.Split(text)) {
    if (part.token == nullptr) {
      EncodePlain(text, part, encoding);
    } else {
      Append(part.token->id, Kind::kAddedToken, static_cast<int64_t>(part.first),
             static_cast<int64_t>(part.last), encoding);
    }
  }
  for (const int64_t id : settings_.after) Append(id, Kind::kAround, 0, 0, encoding);
  return encoding;
}

std::vector<Character> WordPieceTokenizer::NormalizePart(std::string_view text, int64_t first,
                                                         int64_t last) const {
  static constexpr BertNormalizer kNothing{
      .clean_text = false, .handle_chinese_chars = false, .strip_accents = false, .lowercase = false};
  return Normalize(settings_.normalizer.value_or(kNothing), text, first, last);
}

void WordPieceTokenizer::EncodePlain(std::string_view text, const TextPart& part, Encoding& encoding) const {
  const std::vector<Character> characters =
      NormalizePart(text, static_cast<int64_t>(part.first), static_cast<int64_t>(part.last));
  if (normalized_.empty()) return EncodeCharacters(characters, encoding);

  const std::span<const Character> all = characters;
  size_t first = 0, bytes = 0;  // where the part starts, in characters and in bytes of the normalised text
  const std::string normal = ToUtf8(all);
  for (const TextPart& inner : normalized_.Split(normal)) {
    size_t last = first;
    while (bytes < inner.last) {
      NextCharacter(normal, bytes);
      ++last;
    }
    if (inner.token == nullptr) {
      EncodeCharacters(all.subspan(first, last - first), encoding);
    } else {
      Append(inner.token->id, Kind::kAddedToken, all[first].first, all[last - 1].last, encoding);
    }
    first = last;
  }
}

void WordPieceTokenizer::EncodeCharacters(std::span<const Character> characters, Encoding& encoding) const {
  for (const std::span<const Character> word : SplitWords(characters)) EncodeWord(word, encoding);
}

void WordPieceTokenizer::EncodeWord(std::span<const Character> word, Encoding& encoding) const {
  const auto pieces = CutWord(word);
  if (!pieces) return Append(unknown_, Kind::kWordStart, word.front().first, word.back().last, encoding);
  for (const Piece& piece : *pieces) {
    const Kind kind = piece.first == 0 ? Kind::kWordStart : Kind::kWordRest;
    Append(piece.id, kind, word[piece.first].first, word[piece.last - 1].last, encoding);
  }
}

// Nothing where the word is too long or some part of it fits no piece.
std::optional<std::vector<WordPieceTokenizer::Piece>> WordPieceTokenizer::CutWord(
    std::span<const Character> word) const {
  if (word.size() > static_cast<size_t>(settings_.max_characters)) return {};
  const std::string bytes = ToUtf8(word);
  std::vector<Piece> pieces;
  for (size_t at = 0, character = 0; at < bytes.size();) {
    const PieceTable& table = at == 0 ? tokens_.vocabulary() : continuations_;
    const auto match = table.LongestPrefix(std::string_view(bytes).substr(at));
    if (!match) return {};
    const size_t end = at + match->length, first = character;
    for (; at < end; ++character) NextCharacter(bytes, at);
    pieces.push_back({match->id, first, character});
  }
  return pieces;
}

void WordPieceTokenizer::Append(int64_t id, Kind kind, int64_t first, int64_t last, Encoding& encoding) const {
  const std::string& token = tokens_[id];
  const bool continues = kind == Kind::kWordRest;
  encoding.ids.push_back(id);
  encoding.tokens.push_back(token);
  encoding.labels.push_back(continues ? token.substr(settings_.continuing_prefix.size()) : token);
  encoding.continues.push_back(continues);
  // An unknown word is no special token, though [UNK] written out in the text is.
  encoding.special.push_back(kind == Kind::kAround || (kind == Kind::kAddedToken && tokens_.IsSpecial(id)));
  encoding.span.emplace_back(first, last);
}

std::string WordPieceTokenizer::BytesAt(int64_t id, Place place) const {
  std::string piece = tokens_[id];
  if (place == Place::kLater) {
    const bool joins = settings_.decoder && piece.starts_with(settings_.decoder->prefix);
    piece = joins ? piece.substr(settings_.decoder->prefix.size()) : " " + piece;
  }
  if (settings_.decoder && settings_.decoder->cleanup) CleanUp(piece);
  return piece;
}

}  // namespace qkv
