// Texts as vectors: close in direction where they mean the same.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "qkv/export.h"
#include "qkv/model.h"
#include "qkv/progress.h"

namespace qkv {

struct SentenceOptions {
  int64_t max_tokens = 256;  // a longer text loses its end, as with sentence-transformers
  Progress progress;
  // Called for a text that loses its end: its index, its tokens, and those that are kept.
  std::function<void(size_t text, int64_t tokens, int64_t kept)> on_cut;
};

// Sentence embeddings (texts, C): the mean of a text's last hidden states, special tokens included, scaled to length 1
// (Reimers & Gurevych 2019, https://arxiv.org/abs/1908.10084, section 3). Their dot products are cosine similarities.
// Error{kInvalidArgument}: a causal model, whose tokens do not know what comes after them; a text without tokens;
// kFile: vectors that are not finite, since the model is damaged.
QKV_API std::vector<float> EncodeSentences(const Model& model, const std::vector<std::string>& texts,
                                           const SentenceOptions& options = {});

// a . b / (|a| |b|), 0 where one of them is zero. Of the same size.
QKV_API double CosineSimilarity(std::span<const float> a, std::span<const float> b);

}  // namespace qkv
