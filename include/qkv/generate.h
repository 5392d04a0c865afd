// Reading on from the left: a causal model reads a text and writes its continuation.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "qkv/export.h"
#include "qkv/model.h"
#include "qkv/progress.h"

namespace qkv {

// A text in a causal model's memory: the keys and values of all its tokens. For one thread at a time; its model must
// outlive it.
class QKV_API Session {
 public:
  virtual ~Session() = default;

  virtual int64_t length() const = 0;  // tokens read so far

  // Reads on from where it stands. Returns the logits of the token that comes next, (V), valid until the next call.
  // Error{kInvalidArgument}: no ids, an id outside the vocabulary, more tokens than the session may hold;
  // kCancelled: the tokens read by then stay.
  virtual std::span<const float> Read(std::span<const int64_t> ids, const Progress& progress = {}) = 0;
  // The same, with the logits of the token that follows each one: (ids, V).
  virtual std::vector<float> ReadAll(std::span<const int64_t> ids, const Progress& progress = {}) = 0;

  // Forgets the tokens from `length` on. Error{kInvalidArgument}: longer than it is.
  virtual void Trim(int64_t length) = 0;
};

struct SessionOptions {
  std::optional<int64_t> most_tokens;  // default: what the model was trained for
};

// Error{kInvalidArgument}: the model is not causal, or most_tokens is more than its learned positions.
QKV_API std::unique_ptr<Session> StartSession(const Model& model, const SessionOptions& options = {});

// How the next token is chosen. In this order, each where it is not at its neutral value: the repetition penalty
// (Keskar et al. 2019, https://arxiv.org/abs/1909.05858, 4.1: logits of tokens that the text holds are divided by it
// where positive, else multiplied), the temperature, top_k, top_p (Holtzman et al. 2020,
// https://arxiv.org/abs/1904.09751, 3.1), min_p (https://arxiv.org/abs/2407.01082).
struct Sampling {
  float temperature = 0;         // 0: always the likeliest token, and the rest but the penalty does not matter
  int64_t top_k = 0;             // of the likeliest tokens; 0: all
  float top_p = 1;               // the fewest likeliest tokens that hold this probability together
  float min_p = 0;               // tokens of at least this share of the likeliest one's probability
  float repetition_penalty = 1;
  uint64_t seed = 0;             // with `step` the only source of randomness (Philox4x32-10)
};

QKV_API void CheckSampling(const Sampling& sampling);  // Error{kInvalidArgument}: a value out of its range

// logits: (V). text: the tokens so far, for the penalty. step: counts the choices of a text, from 0.
// Equal logits: the lower token. Error{kInvalidArgument}: a value out of its range, no finite logit.
QKV_API int64_t ChooseToken(std::span<const float> logits, std::span<const int64_t> text, const Sampling& sampling,
                            int64_t step);

struct GenerateOptions {
  Sampling sampling;
  int64_t max_tokens = 256;
  std::vector<std::string> stop;  // ends before the first of these in what was generated
  // Called with each piece of the answer as it comes: valid UTF-8, never half a character, never the beginning of a
  // stop string. Returning false ends the answer as Progress does.
  std::function<bool(std::string_view piece)> on_text;
  Progress progress;  // of reading the prompt
  std::vector<int64_t> end_ids;  // tokens that end the answer, beside the model's own
  SessionOptions session;
};

enum class StopReason { kEndToken, kStopString, kMaxTokens, kSessionFull };

struct Generated {
  std::vector<int64_t> ids;       // the end token left out
  std::string text;
  StopReason reason = StopReason::kMaxTokens;
  double prompt_seconds = 0;      // until the first token was chosen
  double generate_seconds = 0;    // of the tokens after it
};

// Continues the prompt. Errors as Session's, ChooseToken's; kFile: logits not finite; kCancelled by a callback.
QKV_API Generated Generate(const Model& model, std::span<const int64_t> prompt, const GenerateOptions& options);

// A question as a model that answers expects it, and the token that ends its answer.
struct ChatPrompt {
  std::string text, end_token;
};

// By the model's chat template, which must be ChatML's, Llama 3's or Mistral's; without a system message.
// Error{kInvalidArgument}: the model has no template, or one of another kind.
QKV_API ChatPrompt MakeChatPrompt(const ModelInfo& model, std::string_view question);

}  // namespace qkv
