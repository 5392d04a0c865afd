// Tokens that are found in the text before anything else happens to it: [SEP] and its like, and those that
// someone added to a vocabulary.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "text/piece_table.h"

namespace qkv {

// As in tokenizer.json's `added_tokens`.
struct AddedToken {
  std::string content;
  int64_t id = 0;
  bool single_word = false;  // only where no word character touches it
  bool lstrip = false;       // takes the whitespace before it along
  bool rstrip = false;       // and after it
  bool normalized = false;   // looked for in the normalised text, in its own normalised form
  bool special = false;      // left out when decoding
};

// The added tokens of a vocabulary, in order. A token that the vocabulary has keeps its id there; the others
// get the ids after the vocabulary's.
class AddedTokenList {
 public:
  explicit AddedTokenList(const PieceTable& vocabulary);  // which must outlive the list

  // Sets the token's id. False, and nothing changed, where a token of this content is in the list.
  bool Add(AddedToken token);

  const std::vector<AddedToken>& tokens() const { return tokens_; }

 private:
  const PieceTable& vocabulary_;
  PieceTable contents_;
  int64_t next_id_;
  std::vector<AddedToken> tokens_;
};

// A stretch of text, bytes [first, last): an added token, or what lies between two.
struct TextPart {
  size_t first, last;
  const AddedToken* token;  // null for plain text
};

// Finds tokens in text: at each place the longest, then on from its end.
class AddedTokenFinder {
 public:
  // Looks for `form` as the token; the first of two equal forms counts, an empty one never matches.
  void Add(std::string_view form, const AddedToken& token);

  bool empty() const { return tokens_.empty(); }

  // Parts that cover the whole text, in order; the text is checked UTF-8.
  std::vector<TextPart> Split(std::string_view text) const;

 private:
  PieceTable forms_;  // ids are indexes into tokens_
  std::vector<AddedToken> tokens_;
  std::array<bool, 256> starts_{};  // by a form's first byte
};

}  // namespace qkv
