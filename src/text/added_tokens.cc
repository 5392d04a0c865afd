#include "text/added_tokens.h"

#include <utility>

#include "text/unicode.h"
#include "text/utf8.h"

namespace qkv {
namespace {

bool TouchesWord(std::string_view text, size_t first, size_t last) {
  if (first > 0 && IsWordCharacter(PreviousCharacter(text, first))) return true;
  return last < text.size() && IsWordCharacter(NextCharacter(text, last));
}

size_t SkipWhitespaceBack(std::string_view text, size_t at, size_t limit) {
  for (size_t before = at; at > limit; at = before) {
    if (!IsWhitespace(PreviousCharacter(text, before))) break;
  }
  return at;
}

size_t SkipWhitespace(std::string_view text, size_t at) {
  for (size_t after = at; at < text.size(); at = after) {
    if (!IsWhitespace(NextCharacter(text, after))) break;
  }
  return at;
}

}  // namespace

AddedTokenList::AddedTokenList(const PieceTable& vocabulary)
    : vocabulary_(vocabulary), next_id_(static_cast<int64_t>(vocabulary.size())) {}

bool AddedTokenList::Add(AddedToken token) {
  if (!contents_.Add(token.content, 0)) return false;
  const auto known = vocabulary_.Find(token.content);
  token.id = known ? *known : next_id_++;
  tokens_.push_back(std::move(token));
  return true;
}

void AddedTokenFinder::Add(std::string_view form, const AddedToken& token) {
  if (form.empty() || !forms_.Add(form, static_cast<int64_t>(tokens_.size()))) return;
  tokens_.push_back(token);
  starts_[static_cast<unsigned char>(form.front())] = true;
}

std::vector<TextPart> AddedTokenFinder::Split(std::string_view text) const {
  std::vector<TextPart> parts;
  size_t done = 0;  // everything before it is in a part
  for (size_t at = 0; at < text.size();) {
    const bool may_start = starts_[static_cast<unsigned char>(text[at])];
    const auto match = may_start ? forms_.LongestPrefix(text.substr(at)) : std::nullopt;
    if (!match) {
      ++at;
      continue;
    }
    const AddedToken& token = tokens_[static_cast<size_t>(match->id)];
    size_t first = at, last = at + match->length;
    at = last;
    if (token.single_word && TouchesWord(text, first, last)) continue;
    if (token.lstrip) first = SkipWhitespaceBack(text, first, done);
    if (token.rstrip) at = last = SkipWhitespace(text, last);
    if (done < first) parts.push_back({done, first, nullptr});
    parts.push_back({first, last, &token});
    done = last;
  }
  if (done < text.size()) parts.push_back({done, text.size(), nullptr});
  return parts;
}

}  // namespace qkv
