// Learns a byte-level vocabulary from text: starting from the 256 bytes, the two neighbours that stand side by
// side most often become a new token, again and again. Words are GPT-2's (kGpt2Pattern), and no token reaches
// across two.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "qkv/progress.h"

namespace qkv {

// How often each word occurs.
class WordCounts {
 public:
  // Error{kFile} naming `where` (the text's file) for invalid UTF-8.
  void Add(std::string_view text, const std::string& where);

  const std::unordered_map<std::string, int64_t>& words() const { return words_; }

 private:
  void AddChunk(std::string_view text);

  std::unordered_map<std::string, int64_t> words_;
};

struct BpeTrainerOptions {
  int64_t vocabulary_size = 4096;  // special tokens and the 256 bytes included
  std::vector<std::string> special = {"<|endoftext|>"};
  int64_t least_count = 2;  // two neighbours that occur less often stay two
};

struct TrainedBpe {
  std::vector<std::string> special;                 // ids from 0
  std::vector<std::string> tokens;                  // then these, in the alphabet of bytes (byte_alphabet.h)
  std::vector<std::pair<int64_t, int64_t>> merges;  // of ids, in order
  int64_t text_bytes = 0, text_tokens = 0;          // of what it was trained on
};

// The same for the same words in any order: the highest count is merged first, of equal ones the lower left id,
// then the lower right one. Fewer tokens than asked for where nothing is left to merge.
// Error{kInvalidArgument} for a size that does not hold the bytes, special tokens that are empty or equal.
// `progress` counts tokens.
TrainedBpe TrainBpe(const WordCounts& counts, const BpeTrainerOptions& options, const Progress& progress);

// The vocabulary without any merge: 256 tokens, each byte's id its value.
TrainedBpe ByteVocabulary();

// As tokenizer.json, which TokenizerFromJson and Hugging Face's `tokenizers` load.
std::string ToTokenizerJson(const TrainedBpe& trained);

}  // namespace qkv
