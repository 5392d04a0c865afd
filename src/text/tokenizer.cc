#include "qkv/tokenizer.h"

#include <unicode/utf8.h>

#include <utility>

#include "qkv/error.h"

#pragma GCC diagnostic ignored "-Wconversion"  // in ICU's macros

namespace qkv {
namespace {

constexpr std::string_view kNoCharacter = "\uFFFD";

void CheckId(const Tokenizer& tokenizer, int64_t id, const std::string& where) {
  if (id >= 0 && id < tokenizer.vocab_size()) return;
  throw Error(ErrorCode::kInvalidArgument, "no such token", where,
              "0 to " + std::to_string(tokenizer.vocab_size() - 1), std::to_string(id));
}

// Where the character that is cut off at the end starts; the end where none is.
size_t StartOfUnfinished(const std::string& bytes) {
  const auto size = static_cast<int32_t>(bytes.size());
  int32_t start = size;
  U8_TRUNCATE_IF_INCOMPLETE(bytes.data(), 0, start);
  return static_cast<size_t>(start);
}

// Bytes that make up no character become U+FFFD, one for each that was begun or cannot begin any.
std::string ToValidUtf8(std::string_view bytes) {
  std::string text;
  const size_t size = bytes.size();
  for (size_t at = 0; at < size;) {
    const size_t first = at;
    UChar32 character;
    U8_NEXT(bytes.data(), at, size, character);
    text += character < 0 ? kNoCharacter : bytes.substr(first, at - first);
  }
  return text;
}

}  // namespace

std::string Tokenizer::Decode(const std::vector<int64_t>& ids) const {
  for (size_t i = 0; i < ids.size(); ++i) CheckId(*this, ids[i], "ids[" + std::to_string(i) + "]");
  StreamingDecoder decoder(*this);
  std::string text;
  for (const int64_t id : ids) text += decoder.Add(id);
  return text + decoder.Finish();
}

const std::string& Tokenizer::TokenOf(int64_t id) const {
  CheckId(*this, id, "id");
  return PieceAt(id);
}

bool Tokenizer::IsSpecial(int64_t id) const {
  CheckId(*this, id, "id");
  return SpecialAt(id);
}

StreamingDecoder::StreamingDecoder(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {}

std::string StreamingDecoder::Add(int64_t id) {
  CheckId(tokenizer_, id, "id");
  if (tokenizer_.SpecialAt(id)) return {};
  const auto place = std::exchange(is_first_, false) ? Tokenizer::Place::kFirst : Tokenizer::Place::kLater;
  held_ += tokenizer_.BytesAt(id, place);
  const size_t whole = StartOfUnfinished(held_);
  std::string text = ToValidUtf8(std::string_view(held_).substr(0, whole));
  held_.erase(0, whole);
  return text;
}

std::string StreamingDecoder::Finish() {
  is_first_ = true;
  return ToValidUtf8(std::exchange(held_, {}));
}

}  // namespace qkv
