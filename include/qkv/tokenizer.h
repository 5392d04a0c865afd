// Text to token ids and back, exactly as the model's own tokenizer does it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "qkv/export.h"

namespace qkv {

struct Encoding {
  std::vector<int64_t> ids;          // special tokens included
  std::vector<std::string> tokens;   // the vocabulary's raw pieces, UTF-8
  std::vector<std::string> labels;   // pieces as a reader wants them: "##ing" -> "ing"
  std::vector<bool> continues;       // true where a token continues the word of the token before it
  std::vector<bool> special;         // [CLS], [SEP], ..., also where the text spells them out; not unknown words
  std::vector<std::pair<int64_t, int64_t>> span;  // bytes [first, last) of the text; {0, 0} for what is not in it
};

class QKV_API Tokenizer {
 public:
  virtual ~Tokenizer() = default;
  // Never truncates or pads. Error{kFile} for invalid UTF-8, naming the byte.
  virtual Encoding Encode(std::string_view text) const = 0;
  // Special tokens are left out. Error{kInvalidArgument} for an id outside [0, vocab_size()).
  virtual std::string Decode(const std::vector<int64_t>& ids) const = 0;
  virtual int64_t vocab_size() const = 0;  // added tokens included
};

// From a model directory: tokenizer.json, or vocab.txt with tokenizer_config.json.
// Error{kFile} naming the file for what is missing, damaged or of an unknown kind.
QKV_API std::unique_ptr<const Tokenizer> LoadTokenizer(const std::filesystem::path& directory);

}  // namespace qkv
