// Attention step by step with all its numbers: filled by Explain (qkv/explain.h), drawn by qkv/view.h.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "qkv/tensor.h"

namespace qkv {

enum class ExplainLevel {
  kSimplified,  // softmax(X X^T) X: no parameters, no scaling
  kHead,        // one head: softmax(Q K^T / sqrt(d_k)) V
  kMultiHead,   // all heads, concatenated, and W_O
};

// What a step does, and the tensors that it adds, by their symbols. B = 1 throughout; without heads, the H axis
// is missing. Scores that the mask blocks are -inf.
enum class StepKind {
  kInput,       // X (B, T, d_in); H where the layer normalises its input first
  kNorm,        // g (d_in), b (d_in) where there is one, X: H normalised, row by row
  kProject,     // W_Q W_K W_V (d_in, H D), b_Q b_K b_V (H D) where there are, Q K V (B, T, H D)
  kSplit,       // Q K V (B, H, T, D), of all heads
  kHeadNorm,    // g_Q g_K (D), Q K: each head's rows normalised, in models that do so
  kTurn,        // cos sin (B, T, R / 2), Q' K': pairs of channels turned by the token's position (RoPE)
  kScores,      // S (B, H, T, T) = Q K^T; of Q' and K' where they turned
  kScale,       // S' = scale * S, 1 / sqrt(d_k) unless the model has another
  kMask,        // M: S', -inf where a key is blocked
  kSoftmax,     // A (B, H, T, T): the weights
  kSaturation,  // beside the way: U, the weights without kScale
  kOtherOrder,  // beside the way: F, softmax of all scores; R, F masked and divided by its sums, equal to A; P,
                // F masked and put through a second softmax over the visible keys, not equal
  kDropout,  // beside the way, in training: A', the weights of which some are dropped, the rest divided by 1 -
             // p
  kSum,      // Z (B, H, T, Dv) = A V, and Z' = A' V with dropout
  kConcat,   // Z (B, T, H Dv): the heads side by side
  kOutput,   // W_O (H Dv, d_out), b_O (d_out) where there is, Y (B, T, d_out), and Y' with dropout
};

enum class Axis { kTokens, kChannels, kHeads };

struct ExplainedTensor {
  std::string symbol;  // as above: "W_Q"
  Shape shape;
  Axis columns = Axis::kChannels;  // what the last axis counts
  std::vector<float> values;       // contiguous
};

struct ExplainedStep {
  StepKind kind;
  std::vector<ExplainedTensor> tensors;  // parameters first, then what the step gives
};

// How rows are brought to one size before they are projected.
enum class ExplainedNorm {
  kNone,
  kLayer,  // (h - mean) / sqrt(variance + epsilon) * g + b (Ba et al. 2016)
  kRms,    // h / sqrt(mean of h^2 + epsilon) * g (Zhang and Sennrich 2019)
};

// Which channels of q and k turn together: pair i of R / 2.
enum class ExplainedPairs { kHalf, kAdjacent };  // (i, i + R / 2) or (2i, 2i + 1)

struct Explanation {
  ExplainLevel level = ExplainLevel::kHead;
  std::string model;                // its name or path; empty: a random layer
  int64_t layer = 0, head = 0;      // from 0; the head of kHead
  std::vector<std::string> tokens;  // as a reader wants them, T of them
  int64_t token = 0;                // the row to mark
  int64_t d_in = 0, d_out = 0, heads = 1, kv_heads = 1, d_k = 0, d_v = 0;
  bool causal = false;
  std::optional<int64_t> window;  // how many tokens it sees with itself, where that is limited
  float scale = 1;                // of scores
  ExplainedNorm norm = ExplainedNorm::kNone;
  float epsilon = 0;              // of the norms
  ExplainedPairs pairs = ExplainedPairs::kHalf;
  float dropout_p = 0;  // 0: no dropout step
  uint64_t seed = 0;    // of dropout and of a random layer
  std::vector<ExplainedStep> steps;

  // The tensor that this step added under this symbol; null where there is none.
  const ExplainedTensor* Find(StepKind kind, const std::string& symbol) const {
    for (const ExplainedStep& step : steps) {
      for (const ExplainedTensor& tensor : step.tensors) {
        if (step.kind == kind && tensor.symbol == symbol) return &tensor;
      }
    }
    return nullptr;
  }
};

}  // namespace qkv
