#include "text/bpe_tokenizer.h"

#include <algorithm>
#include <utility>

#include "qkv/error.h"
#include "text/byte_alphabet.h"
#include "text/replace.h"
#include "text/token_label.h"
#include "text/utf8.h"

namespace qkv {
namespace {

constexpr size_t kMostTextBytes = size_t{1} << 30;  // so that every place in it fits 32 bits

// The byte that a token such as <0x0A> stands for.
std::optional<char> ByteOfName(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token.back() != '>') return {};
  int value = 0;
  for (const char digit : token.substr(3, 2)) {
    static constexpr std::string_view kDigits = "0123456789ABCDEF";
    const size_t place = kDigits.find(digit);
    if (place == std::string_view::npos) return {};
    value = value * 16 + static_cast<int>(place);
  }
  return static_cast<char>(value);
}

bool ReachesAcross(std::string_view piece, std::string_view mark) {
  bool seen_other = false;
  while (!piece.empty()) {
    const bool is_mark = piece.starts_with(mark);
    if (is_mark && seen_other) return true;
    seen_other = seen_other || !is_mark;
    piece.remove_prefix(is_mark ? mark.size() : 1);
  }
  return false;
}

}  // namespace

void CutAtMarks(std::string_view mark, BpeSettings& settings) {
  const Vocabulary& vocabulary = settings.vocabulary;
  // An unknown mark could become one token with what is unknown before it.
  if (mark.empty() || !vocabulary.ids.Find(mark) || settings.rules.ignore_merges) return;
  const auto& pieces = vocabulary.pieces;
  if (std::any_of(pieces.begin(), pieces.end(), [&](const auto& piece) { return ReachesAcross(piece, mark); }))
    return;
  settings.pre_tokenizer.emplace_back(MarkedWords{std::string(mark)});
}

BpeTokenizer::BpeTokenizer(BpeSettings settings)
    : settings_(std::move(settings)),
      tokens_(std::move(settings_.vocabulary), settings_.added_tokens),
      bpe_(std::move(settings_.rules), tokens_) {
  bytes_.reserve(static_cast<size_t>(tokens_.size()));
  for (int64_t id = 0; id < tokens_.size(); ++id) bytes_.push_back(DecodedBytes(tokens_[id]));
  for (const AddedToken& token : settings_.added_tokens) {
    if (token.normalized) {
      AlignedText form(token.content, {0, token.content.size()});
      Apply(settings_.normalizer, form);
      normalized_.Add(form.text(), token);
    } else {
      raw_.Add(token.content, token);
    }
  }
}

// Added tokens need not be written in the alphabet of bytes: those stand for themselves.
std::string BpeTokenizer::DecodedBytes(const std::string& token) const {
  if (bpe_.alphabet() == BpeAlphabet::kBytes) return BytesOfPiece(token).value_or(token);
  if (settings_.decoder.joins_bytes)
    if (const auto byte = ByteOfName(token)) return {*byte};
  std::string text = token;
  if (!settings_.decoder.space.empty()) ReplaceAll(text, settings_.decoder.space, " ");
  return text;
}

std::string BpeTokenizer::BytesAt(int64_t id, Place place) const {
  const std::string& bytes = bytes_[static_cast<size_t>(id)];
  if (place == Place::kLater || bpe_.alphabet() == BpeAlphabet::kBytes) return bytes;
  using enum CharacterDecoder::Start;
  switch (settings_.decoder.start) {
    case kKept: return bytes;
    case kOneSpaceDropped: return bytes.starts_with(' ') ? bytes.substr(1) : bytes;
    case kMarksDropped: break;
  }
  std::string text = tokens_[id];
  ReplaceAll(text, settings_.decoder.space, "");
  return text;
}

class BpeTokenizer::Run {
 public:
  Run(const BpeTokenizer& tokenizer, std::string_view text)
      : tokenizer_(tokenizer), original_(text), cutter_(tokenizer.bpe_) {}

  Encoding Encode();

 private:
  void EncodePlain(TextRange part);
  void EncodeWords(AlignedText text);
  void AppendPiece(const AlignedText& text, TextRange bytes, int64_t id);
  void AppendAdded(const AddedToken& token, TextRange span);
  void AppendAround(int64_t id);
  void Append(int64_t id, TextRange span);

  const BpeTokenizer& tokenizer_;
  std::string_view original_;
  BpeCutter cutter_;
  Encoding encoding_;
};

Encoding BpeTokenizer::Run::Encode() {
  for (const int64_t id : tokenizer_.settings_.before) AppendAround(id);
  for (const TextPart& part : tokenizer_.raw_.Split(original_)) {
    const TextRange range{part.first, part.last};
    part.token == nullptr ? EncodePlain(range) : AppendAdded(*part.token, range);
  }
  for (const int64_t id : tokenizer_.settings_.after) AppendAround(id);
  return std::move(encoding_);
}

void BpeTokenizer::Run::EncodePlain(TextRange part) {
  AlignedText text(original_, part);
  Apply(tokenizer_.settings_.normalizer, text);
  if (tokenizer_.normalized_.empty()) return EncodeWords(std::move(text));
  for (const TextPart& inner : tokenizer_.normalized_.Split(text.text())) {
    const TextRange range{inner.first, inner.last};
    inner.token == nullptr ? EncodeWords(text.Part(range)) : AppendAdded(*inner.token, text.Origin(range));
  }
}

void BpeTokenizer::Run::EncodeWords(AlignedText text) {
  for (const TextRange& word : SplitWords(tokenizer_.settings_.pre_tokenizer, text)) {
    const std::string_view bytes = text.text().substr(word.first, word.last - word.first);
    for (const BpePiece& piece : cutter_.Cut(bytes))
      AppendPiece(text, {word.first + piece.first, word.first + piece.last}, piece.id);
  }
}

void BpeTokenizer::Run::AppendPiece(const AlignedText& text, TextRange bytes, int64_t id) {
  const bool characters = tokenizer_.bpe_.alphabet() == BpeAlphabet::kCharacters;
  Append(id, TrimmedRange(original_, text.Origin(bytes)));
  encoding_.labels.push_back(
      LabelOf(text.text(), bytes, characters ? tokenizer_.settings_.decoder.space : std::string_view()));
  encoding_.continues.push_back(ContinuesWord(text.text(), bytes.first));
  encoding_.special.push_back(false);
}

void BpeTokenizer::Run::AppendAdded(const AddedToken& token, TextRange span) {
  Append(token.id, span);
  encoding_.labels.push_back(token.content);
  encoding_.continues.push_back(false);
  encoding_.special.push_back(token.special);
}

void BpeTokenizer::Run::AppendAround(int64_t id) {
  Append(id, {0, 0});
  encoding_.labels.push_back(tokenizer_.tokens_[id]);
  encoding_.continues.push_back(false);
  encoding_.special.push_back(true);
}

void BpeTokenizer::Run::Append(int64_t id, TextRange span) {
  encoding_.ids.push_back(id);
  encoding_.tokens.push_back(tokenizer_.tokens_[id]);
  encoding_.span.emplace_back(span.first, span.last);
}

Encoding BpeTokenizer::Encode(std::string_view text) const {
  CheckUtf8(text, "text");
  if (text.size() > kMostTextBytes) {
    throw Error(ErrorCode::kInvalidArgument, "too long", "text",
                "at most " + std::to_string(kMostTextBytes) + " bytes", std::to_string(text.size()));
  }
  return Run(*this, text).Encode();
}

}  // namespace qkv
