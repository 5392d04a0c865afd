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
  kInput,       // X (B, T, d_in)
  kProject,     // W_Q W_K W_V (d_in, H D), b_Q b_K b_V (H D) where there are, Q K V (B, T, H D)
  kSplit,       // Q K V (B, H, T, D), of all heads
  kScores,      // S (B, H, T, T) = Q K^T
  kScale,       // S' = S / sqrt(d_k)
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

struct Explanation {
  ExplainLevel level = ExplainLevel::kHead;
  std::string model;                // its name or path; empty: a random layer
  int64_t layer = 0, head = 0;      // from 0; the head of kHead
  std::vector<std::string> tokens;  // as a reader wants them, T of them
  int64_t token = 0;                // the row to mark
  int64_t d_in = 0, d_out = 0, heads = 1, kv_heads = 1, d_k = 0, d_v = 0;
  bool causal = false;
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
