// Tokenizers as GGUF files describe them, keys `tokenizer.ggml.*`. Where the file leaves something open, the
// model's own tokenizer decides: Qwen 2 composes characters (NFC), Llama 3 takes whole words of its vocabulary
// as they are.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "qkv/tokenizer.h"

namespace qkv {

// What the metadata says. Tokens, types and scores are by id; types and scores may be empty.
struct GgmlVocabulary {
  std::string where;  // the file, for errors
  std::string model;  // tokenizer.ggml.model: "gpt2" (byte-level) or "llama" (SentencePiece's kind)
  std::string pre;    // tokenizer.ggml.pre, for gpt2: "gpt-2", "llama-bpe", "smollm" or "qwen2"
  std::vector<std::string_view> tokens;
  std::vector<int64_t> types;                  // tokenizer.ggml.token_type
  std::vector<float> scores;                   // llama: pieces of a higher score are merged first
  std::vector<std::string_view> merges;        // gpt2: "a b", the lowest rank first
  std::optional<int64_t> start, end, unknown;  // tokenizer.ggml.bos_token_id, eos_token_id, unknown_token_id
  std::optional<bool> adds_start, adds_end;    // tokenizer.ggml.add_bos_token, add_eos_token
  std::optional<bool> adds_space_prefix;       // tokenizer.ggml.add_space_prefix, of llama
};

// Error{kFile} naming the file and the key: damaged, contradicting itself, or of a kind that is not supported.
std::unique_ptr<const Tokenizer> TokenizerFromGgml(const GgmlVocabulary& vocabulary);

}  // namespace qkv
