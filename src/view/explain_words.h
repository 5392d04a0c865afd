// What an explanation says about each step, for the terminal and for the page.
#pragma once

#include <string>
#include <vector>

#include "qkv/explanation.h"
#include "view/formula.h"

namespace qkv::view {

struct StepWords {
  std::string title;
  std::vector<Formula> formulas;  // of whole matrices, then of one element
  std::string shapes;             // "(B, T, d_in) = (1, 15, 384) → ..."
  std::string why;
  std::vector<std::string> worked;  // with the marked token's numbers
};

StepWords WordsOf(const Explanation& explanation, const ExplainedStep& step);

// Beside the way: no step on the way to the layer's output.
bool IsAside(StepKind kind);

// What is explained, in a line: "minilm, layer 5, head 11: d_in 384, d_k 32, not causal".
std::string Subject(const Explanation& explanation);

// A token in quotation marks, made harmless.
std::string Quoted(const Explanation& explanation, int64_t token);

}  // namespace qkv::view
