// Text to token ids and back, exactly as the model's own tokenizer does it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "qkv/export.h"

namespace qkv {

struct Encoding {
  std::vector<int64_t> ids;         // special tokens included
  std::vector<std::string> tokens;  // the vocabulary's raw pieces, UTF-8
  std::vector<std::string> labels;  // pieces as a reader wants them: "##ing" -> "ing", "Ġroad" -> "road"; where
                                    // several share a character, the first shows it, the others "·"
  std::vector<bool> continues;  // true where a token continues the word of the token before it
  std::vector<bool> special;    // [CLS], [SEP], ..., also where the text spells them out; not unknown words
  std::vector<std::pair<int64_t, int64_t>> span;
};

class QKV_API Tokenizer {
 public:
  virtual ~Tokenizer() = default;
  // Never truncates or pads. Error{kFile} for invalid UTF-8, naming the byte.
  virtual Encoding Encode(std::string_view text) const = 0;
  // Special tokens are left out, and bytes that make up no character become U+FFFD. Error{kInvalidArgument} for
  // an id outside [0, vocab_size()).
  std::string Decode(const std::vector<int64_t>& ids) const;
  virtual int64_t vocab_size() const = 0;  // added tokens included

  // Raw pieces and ids: "<|im_end|>" and its like. Error{kInvalidArgument} for an id outside [0, vocab_size()).
  const std::string& TokenOf(int64_t id) const;
  virtual std::optional<int64_t> IdOf(std::string_view token) const = 0;
  bool IsSpecial(int64_t id) const;

 protected:
  friend class StreamingDecoder;
  enum class Place { kFirst, kLater };  // of a token among those of a decoded text, special ones not counted

  // For ids in [0, vocab_size()) only.
  virtual const std::string& PieceAt(int64_t id) const = 0;
  virtual bool SpecialAt(int64_t id) const = 0;
  virtual std::string BytesAt(int64_t id, Place place) const = 0;  // what it adds: perhaps half a character
};

// Decodes tokens as a model makes them, without ever showing half a character: bytes wait until it is whole.
// All that Add and Finish return, joined, is what Tokenizer::Decode makes of the same ids.
class QKV_API StreamingDecoder {
 public:
  explicit StreamingDecoder(const Tokenizer& tokenizer);  // which must outlive it

  // The text that this token completes, often empty. Error{kInvalidArgument} for an id outside the vocabulary.
  std::string Add(int64_t id);

  // What was held back and can no longer become a character: U+FFFD or nothing. The decoder starts afresh.
  std::string Finish();

 private:
  const Tokenizer& tokenizer_;
  bool is_first_ = true;
  std::string held_;  // the start of a character
};

// From a model directory: tokenizer.json, or vocab.txt with tokenizer_config.json.
// Error{kFile} naming the file for what is missing, damaged or of an unknown kind.
QKV_API std::unique_ptr<const Tokenizer> LoadTokenizer(const std::filesystem::path& directory);

}  // namespace qkv
