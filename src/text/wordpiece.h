// WordPiece: each word is cut into the longest pieces of a vocabulary, from the left.
// Wu et al. 2016, https://arxiv.org/abs/1609.08144; as BERT uses it, Devlin et al. 2018.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "qkv/tokenizer.h"
#include "text/added_tokens.h"
#include "text/bert_text.h"
#include "text/piece_table.h"
#include "text/token_list.h"

namespace qkv {

// How pieces become text again; names as in tokenizer.json.
struct WordPieceDecoder {
  std::string prefix = "##";
  bool cleanup = true;  // " ." becomes ".", " 's" becomes "'s", ...
};

// Everything that tokenizer.json, or vocab.txt with its config, says.
struct WordPieceSettings {
  Vocabulary vocabulary;
  std::string unknown_token = "[UNK]";  // in the vocabulary
  std::string continuing_prefix = "##";
  int64_t max_characters = 100;          // a longer word is unknown
  std::vector<AddedToken> added_tokens;  // ids as AddedTokenList gives them
  std::optional<BertNormalizer> normalizer;
  std::vector<int64_t> before, after;       // ids of the special tokens around a text
  std::optional<WordPieceDecoder> decoder;  // without one, pieces are joined with spaces
};

class WordPieceTokenizer final : public Tokenizer {
 public:
  explicit WordPieceTokenizer(WordPieceSettings settings);

  Encoding Encode(std::string_view text) const override;
  int64_t vocab_size() const override { return tokens_.size(); }
  std::optional<int64_t> IdOf(std::string_view token) const override { return tokens_.Find(token); }

 protected:
  const std::string& PieceAt(int64_t id) const override { return tokens_[id]; }
  bool SpecialAt(int64_t id) const override { return tokens_.IsSpecial(id); }
  std::string BytesAt(int64_t id, Place place) const override;

 private:
  enum class Kind { kWordStart, kWordRest, kAddedToken, kAround };

  struct Piece {
    int64_t id;
    size_t first, last;  // characters of the word
  };

  std::vector<Character> NormalizePart(std::string_view text, int64_t first, int64_t last) const;
  void EncodePlain(std::string_view text, const TextPart& part, Encoding& encoding) const;
  void EncodeCharacters(std::span<const Character> characters, Encoding& encoding) const;
  void EncodeWord(std::span<const Character> word, Encoding& encoding) const;
  std::optional<std::vector<Piece>> CutWord(std::span<const Character> word) const;
  void Append(int64_t id, Kind kind, int64_t first, int64_t last, Encoding& encoding) const;

  WordPieceSettings settings_;
  TokenList tokens_;
  PieceTable continuations_;  // the pieces with the prefix, without it
  int64_t unknown_;
  AddedTokenFinder raw_, normalized_;  // looked for in the text as it is, and in its normalised form
};

}  // namespace qkv
