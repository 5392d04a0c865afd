// Tokenizers of byte-pair encoding: added tokens, normalizer, words, merges.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "qkv/tokenizer.h"
#include "text/added_tokens.h"
#include "text/bpe.h"
#include "text/normalizer.h"
#include "text/pre_tokenizer.h"

namespace qkv {

// How tokens of characters (BpeAlphabet) become text again.
struct CharacterDecoder {
  enum class Start { kKept, kOneSpaceDropped, kMarksDropped };  // of the first token

  std::string space;  // stands for a space in pieces; empty: nothing does
  Start start = Start::kKept;
  bool joins_bytes = false;  // <0x0A> and its like stand for the byte
};

// Everything that tokenizer.json says, or the metadata of a GGUF file.
struct BpeSettings {
  Vocabulary vocabulary;
  BpeRules rules;
  std::vector<AddedToken> added_tokens;  // ids as AddedTokenList gives them
  Normalizer normalizer;
  PreTokenizer pre_tokenizer;
  std::vector<int64_t> before, after;  // ids of the special tokens around a text
  CharacterDecoder decoder;
};

// Where no piece reaches across the start of a mark for spaces, words may be cut there without any change to
// the tokens, and then they are: short words are soon known.
void CutAtMarks(std::string_view mark, BpeSettings& settings);

class BpeTokenizer final : public Tokenizer {
 public:
  explicit BpeTokenizer(BpeSettings settings);

  Encoding Encode(std::string_view text) const override;
  int64_t vocab_size() const override { return tokens_.size(); }
  std::optional<int64_t> IdOf(std::string_view token) const override { return tokens_.Find(token); }

 protected:
  const std::string& PieceAt(int64_t id) const override { return tokens_[id]; }
  bool SpecialAt(int64_t id) const override { return tokens_.IsSpecial(id); }
  std::string BytesAt(int64_t id, Place place) const override;

 private:
  class Run;  // the encoding of one text

  std::string DecodedBytes(const std::string& token) const;

  BpeSettings settings_;  // without vocabulary and rules
  TokenList tokens_;
  Bpe bpe_;
  std::vector<std::string> bytes_;     // by id: what the token decodes to
  AddedTokenFinder raw_, normalized_;  // looked for in the text as it is, and in its normalised form
};

}  // namespace qkv
