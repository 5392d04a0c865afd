#include "text/token_list.h"

#include <utility>

namespace qkv {

TokenList::TokenList(Vocabulary vocabulary, const std::vector<AddedToken>& added)
    : tokens_(std::move(vocabulary.pieces)), vocabulary_(std::move(vocabulary.ids)) {
  for (const AddedToken& token : added) {
    if (token.id == size()) tokens_.push_back(token.content);
    added_.Add(token.content, token.id);
  }
  special_.resize(tokens_.size());
  for (const AddedToken& token : added) special_[static_cast<size_t>(token.id)] = token.special;
}

std::optional<int64_t> TokenList::Find(std::string_view token) const {
  const auto id = vocabulary_.Find(token);
  return id ? id : added_.Find(token);
}

}  // namespace qkv
