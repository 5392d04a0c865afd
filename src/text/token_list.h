// All tokens of a tokenizer by id: its vocabulary's pieces and the tokens that were added.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/added_tokens.h"
#include "text/vocabulary.h"

namespace qkv {

class TokenList {
 public:
  // Ids of the added tokens are as AddedTokenList gives them.
  TokenList(Vocabulary vocabulary, const std::vector<AddedToken>& added);

  int64_t size() const { return static_cast<int64_t>(tokens_.size()); }
  const std::string& operator[](int64_t id) const { return tokens_[static_cast<size_t>(id)]; }
  bool IsSpecial(int64_t id) const { return special_[static_cast<size_t>(id)]; }
  std::optional<int64_t> Find(std::string_view token) const;

  const PieceTable& vocabulary() const { return vocabulary_; }  // without the added tokens

 private:
  std::vector<std::string> tokens_;
  std::vector<bool> special_;
  PieceTable vocabulary_, added_;
};

}  // namespace qkv
