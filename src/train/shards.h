// Texts as tokens: encoded once into files that are mapped from then on.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "formats/safetensors.h"
#include "qkv/progress.h"
#include "qkv/tokenizer.h"

namespace qkv::train {

// A safetensors file with one int32 tensor, "tokens".
class TokenShard {
 public:
  // Error{kFile}: missing, damaged, another kind of file.
  explicit TokenShard(const std::filesystem::path& file);
  std::span<const int32_t> tokens() const { return tokens_; }
  const std::string& source() const { return source_; }  // as SourceOf gave it for the texts

 private:
  Safetensors file_;
  std::span<const int32_t> tokens_;
  std::string source_;
};

// What tells one set of texts, and how they are cut and encoded, from another: sizes and CRC-32s.
// Error{kFile} naming a text that cannot be read, is no UTF-8 or holds NUL bytes (naming the byte);
// kInvalidArgument: no text, or all of them empty.
std::string SourceOf(const std::vector<std::filesystem::path>& texts, const std::string& tokenizer_json,
                     double validation_share);

struct EncodedTexts {
  std::vector<int32_t> train, validation;
};

// The last `validation_share` of every text is held out: from a line's start on where one is near, else from a
// character's. Errors as SourceOf.
EncodedTexts EncodeTexts(const std::vector<std::filesystem::path>& texts, const Tokenizer& tokenizer,
                         double validation_share, const Progress& progress);

// Both shards. Error{kIo}.
void WriteShards(const EncodedTexts& texts, const std::string& source, const std::filesystem::path& train,
                 const std::filesystem::path& validation);

}  // namespace qkv::train
