#include "view/explain_words.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "view/excerpt.h"
#include "view/width.h"
#include "view/worked.h"

namespace qkv::view {
namespace {

const Formula kEquals = Sign("=");

Formula Weight(const char* index) { return Sub(Letter("\u03b1"), index); }
Formula Element(const char* letter, const char* index) { return Sub(Letter(letter), index); }
Formula Scaled(const char* index) { return Sub(Primed(Letter("s")), index); }

// What goes into the softmax.
Formula SoftmaxInput(const Explanation& e) {
  if (e.causal) return Letter("M");
  return e.level == ExplainLevel::kSimplified ? Letter("S") : Symbol("S'");
}
Formula SoftmaxElement(const Explanation& e, const char* index) {
  if (e.causal) return Element("m", index);
  return e.level == ExplainLevel::kSimplified ? Element("s", index) : Scaled(index);
}

struct Axes {
  const char* names;
  std::vector<int64_t> sizes;
};

std::string Shown(const Axes& axes) {
  std::string sizes;
  for (const int64_t size : axes.sizes) sizes += (sizes.empty() ? "" : ", ") + fmt::to_string(size);
  return fmt::format("({}) = ({})", axes.names, sizes);
}

std::string Becomes(const Axes& from, const Axes& to) { return Shown(from) + " \u2192 " + Shown(to); }

// The shapes that steps pass on.
class Shapes {
 public:
  explicit Shapes(const Explanation& e) : e_(e), tokens_(static_cast<int64_t>(e.tokens.size())) {}

  Axes Input() const { return {"B, T, d_in", {1, tokens_, e_.d_in}}; }
  Axes Query() const {
    if (e_.level == ExplainLevel::kSimplified) return Input();
    if (e_.level == ExplainLevel::kHead) return {"B, T, d_k", {1, tokens_, e_.d_k}};
    return {"B, H, T, D", {1, e_.heads, tokens_, e_.d_k}};
  }
  Axes Joined() const { return {"B, T, H\u00b7D", {1, tokens_, e_.heads * e_.d_k}}; }
  Axes Pairs() const {
    if (e_.level != ExplainLevel::kMultiHead) return {"B, T, T", {1, tokens_, tokens_}};
    return {"B, H, T, T", {1, e_.heads, tokens_, tokens_}};
  }
  Axes Out() const {
    if (e_.level == ExplainLevel::kSimplified) return Input();
    if (e_.level == ExplainLevel::kHead) return {"B, T, d_v", {1, tokens_, e_.d_v}};
    return {"B, H, T, D", {1, e_.heads, tokens_, e_.d_v}};
  }
  Axes Concatenated() const { return {"B, T, H\u00b7D", {1, tokens_, e_.heads * e_.d_v}}; }
  Axes Final() const { return {"B, T, d_out", {1, tokens_, e_.d_out}}; }

 private:
  const Explanation& e_;
  int64_t tokens_;
};

StepWords Input(const Explanation& e) {
  StepWords words{"Input",
                  {Letter("X") + kEquals + Tight("[") + Element("x", "1") + Tight(", \u2026, ") +
                   Element("x", "T") + Tight("]")},
                  Shown(Shapes(e).Input()),
                  "",
                  {}};
  if (e.model.empty()) {
    words.why = fmt::format(
        "One vector for each word: random numbers of variance 1 (seed {}), the same ones where a "
        "word comes again.",
        e.seed);
  } else if (e.layer == 0) {
    words.why = "One vector for each token: what layer 0 gets is the token's embedding with its position's.";
  } else {
    words.why = fmt::format(
        "One vector for each token: what layer {} gets, after {} layer{}. The words' "
        "neighbours have already left their mark on it.",
        e.layer, e.layer, e.layer == 1 ? "" : "s");
  }
  return words;
}

StepWords Project(const Explanation& e) {
  const bool biased = e.Find(StepKind::kProject, "b_Q") != nullptr;
  const auto projection = [&](const char* name) {
    const std::string letter(name);
    Formula f = Letter(letter) + kEquals + Letter("X") + Tight("\u2009") + Symbol("W_" + letter);
    return biased ? f + Sign("+") + Symbol("b_" + letter) : f;
  };
  const Shapes shapes(e);
  return {
      "Queries, keys, values",
      {projection("Q"), projection("K"), projection("V")},
      Becomes(shapes.Input(), e.level == ExplainLevel::kMultiHead ? shapes.Joined() : shapes.Query()),
      "Three learned projections of the same vector: what the token looks for (query), what it can be found by "
      "(key), and what it hands over (value).",
      {WorkedProjection(e)}};
}

StepWords Split(const Explanation& e) {
  const Shapes shapes(e);
  return {"Split into heads",
          {Sub(Letter("Q"), "h") + kEquals + Words("columns") + Letter("hD \u2026 (h+1)D\u22121") +
           Words("of") + Letter("Q")},
          Becomes(shapes.Joined(), shapes.Query()),
          fmt::format("Each of the {} heads takes its own {} columns of Q, K and V, and attends by itself.",
                      e.heads, e.d_k),
          {}};
}

StepWords Scores(const Explanation& e) {
  const bool simplified = e.level == ExplainLevel::kSimplified;
  const char *query = simplified ? "X" : "Q", *key = simplified ? "X" : "K";
  const char *q = simplified ? "x" : "q", *k = simplified ? "x" : "k";
  const Shapes shapes(e);
  return {"Scores",
          {Letter("S") + kEquals + Letter(query) + Tight("\u2009") + Transpose(Letter(key)),
           Element("s", "ij") + kEquals + Element(q, "i") + Tight("\u00b7") + Element(k, "j")},
          Becomes(shapes.Query(), shapes.Pairs()),
          simplified
              ? "How alike two tokens are: the dot product of their vectors. A long vector is most like itself."
              : "How well what token i looks for fits what token j can be found by: a dot product.",
          {WorkedScore(e)}};
}

StepWords Scale(const Explanation& e) {
  const Formula root = Root(Sub(Letter("d"), "k"));
  const Shapes shapes(e);
  return {
      "Scale",
      {Symbol("S'") + kEquals + Fraction(Letter("S"), root),
       Scaled("ij") + kEquals + Fraction(Element("s", "ij"), root)},
      Shown(shapes.Pairs()),
      fmt::format(
          "A sum of d_k = {} products of numbers near 1 is of size \u221ad_k = {:.3f}. Divided by it, scores "
          "keep their size whatever d_k is, and the softmax stays soft.",
          e.d_k, std::sqrt(e.d_k)),
      {WorkedScale(e)}};
}

StepWords Mask(const Explanation& e) {
  const Formula score = e.level == ExplainLevel::kSimplified ? Element("s", "ij") : Scaled("ij");
  return {"Causal mask",
          {Element("m", "ij") + kEquals + score + Words("where") + Letter("j \u2264 i") + Tight(",") +
           Words("else") + Tight("\u2212\u221e")},
          Shown(Shapes(e).Pairs()),
          "A token may not look at what comes after it. exp(\u2212\u221e) is exactly 0, so a blocked key gets "
          "no weight, "
          "and the visible ones share all of it.",
          {fmt::format("{} sees {} of {} tokens", Quoted(e, e.token), VisibleKeys(e), e.tokens.size())}};
}

StepWords Softmax(const Explanation& e) {
  const auto exponential = [&](const char* index) { return Call("exp", SoftmaxElement(e, index)); };
  return {"Weights",
          {Letter("A") + kEquals + Call("softmax", SoftmaxInput(e)),
           Weight("ij") + kEquals + Fraction(exponential("ij"), SumOver("l", exponential("il")))},
          Shown(Shapes(e).Pairs()),
          "Each row becomes weights: positive, and 1 in all. (The row's largest score is subtracted from each "
          "before: the quotient stays, and exp cannot overflow.)",
          WorkedSoftmax(e)};
}

StepWords Saturation(const Explanation& e) {
  const Formula unscaled = e.causal ? Words("masked") + Letter("S") : Letter("S");
  return {
      "Without the scaling",
      {Letter("U") + kEquals + Call("softmax", unscaled)},
      Shown(Shapes(e).Pairs()),
      fmt::format(
          "The same scores, \u221ad_k = {:.3f} times as far apart: the softmax saturates. One key takes nearly "
          "all, and where a weight \u03b1 is near 0 or 1 its slope \u03b1(1\u2212\u03b1) is near 0: training "
          "hardly moves it.",
          std::sqrt(e.d_k)),
      WorkedSaturation(e)};
}

StepWords OtherOrder(const Explanation& e) {
  const Formula all = Call("softmax", Symbol("S'"));
  return {
      "The other order",
      {Letter("F") + kEquals + all,
       Element("r", "ij") + kEquals + Fraction(Element("f", "ij"), SumOver("l \u2264 i", Element("f", "il"))) +
           Words("where") + Letter("j \u2264 i") + Tight(",") + Words("else") + Tight("0")},
      Shown(Shapes(e).Pairs()),
      "Softmax over all keys first, blocked weights set to 0 afterwards, and each row divided by its sum: the "
      "same "
      "row. A second softmax instead of the division gives another one: it flattens what was a softmax "
      "already.",
      WorkedOtherOrder(e)};
}

StepWords DropoutWords(const Explanation& e) {
  return {"Dropout, in training",
          {Sub(Primed(Letter("\u03b1")), "ij") + kEquals +
           Fraction(Weight("ij"), Tight("(") + Letter("1") + Sign("\u2212") + Letter("p") + Tight(")")) +
           Words("or") + Letter("0")},
          Shown(Shapes(e).Pairs()),
          fmt::format(
              "In training each weight is dropped with probability p = {:g} (seed {}), and the others grow by "
              "1/(1\u2212p), so that a row's sum stays 1 on average. In evaluation nothing is dropped.",
              e.dropout_p, e.seed),
          WorkedDropout(e)};
}

StepWords Sum(const Explanation& e) {
  const char* value = e.level == ExplainLevel::kSimplified ? "X" : "V";
  const char* v = e.level == ExplainLevel::kSimplified ? "x" : "v";
  const Shapes shapes(e);
  StepWords words{
      "Weighted sum",
      {Letter("Z") + kEquals + Letter("A") + Tight("\u2009") + Letter(value),
       Element("z", "i") + kEquals + SumOver("j", Weight("ij") + Tight("\u2009") + Element(v, "j"))},
      Becomes(shapes.Pairs(), shapes.Out()),
      "Each token's new vector: the average of all visible ones, weighted by how much it attends to them.",
      {WorkedSum(e)}};
  if (e.dropout_p > 0)
    words.formulas.push_back(Symbol("Z'") + kEquals + Symbol("A'") + Tight("\u2009") + Letter(value));
  return words;
}

StepWords Concat(const Explanation& e) {
  const Shapes shapes(e);
  return {"Concatenate",
          {Letter("Z") + kEquals + Tight("[") + Element("Z", "1") + Tight(", \u2026, ") + Element("Z", "H") +
           Tight("]")},
          Becomes(shapes.Out(), shapes.Concatenated()),
          "The heads' vectors side by side again, head 0 first.",
          {}};
}

StepWords Output(const Explanation& e) {
  const bool biased = e.Find(StepKind::kOutput, "b_O") != nullptr;
  Formula f = Letter("Y") + kEquals + Letter("Z") + Tight("\u2009") + Symbol("W_O");
  if (biased) f = f + Sign("+") + Symbol("b_O");
  const Shapes shapes(e);
  StepWords words{"Output projection",
                  {f},
                  Becomes(shapes.Concatenated(), shapes.Final()),
                  "W_O mixes what the heads found, back to the model's width: the layer's output.",
                  {WorkedOutput(e)}};
  if (e.dropout_p > 0) {
    Formula training = Symbol("Y'") + kEquals + Symbol("Z'") + Tight("\u2009") + Symbol("W_O");
    words.formulas.push_back(biased ? training + Sign("+") + Symbol("b_O") : training);
  }
  return words;
}

}  // namespace

StepWords WordsOf(const Explanation& explanation, const ExplainedStep& step) {
  switch (step.kind) {
    case StepKind::kInput: return Input(explanation);
    case StepKind::kProject: return Project(explanation);
    case StepKind::kSplit: return Split(explanation);
    case StepKind::kScores: return Scores(explanation);
    case StepKind::kScale: return Scale(explanation);
    case StepKind::kMask: return Mask(explanation);
    case StepKind::kSoftmax: return Softmax(explanation);
    case StepKind::kSaturation: return Saturation(explanation);
    case StepKind::kOtherOrder: return OtherOrder(explanation);
    case StepKind::kDropout: return DropoutWords(explanation);
    case StepKind::kSum: return Sum(explanation);
    case StepKind::kConcat: return Concat(explanation);
    case StepKind::kOutput: return Output(explanation);
  }
  return {};
}

bool IsAside(StepKind kind) {
  return kind == StepKind::kSaturation || kind == StepKind::kOtherOrder || kind == StepKind::kDropout;
}

std::string Subject(const Explanation& e) {
  std::string subject = e.model.empty() ? fmt::format("a random layer (seed {})", e.seed)
                                        : fmt::format("{}, layer {}", Visible(e.model), e.layer);
  if (e.level == ExplainLevel::kSimplified)
    return subject + " \u00b7 attention without parameters" + (e.causal ? ", causal" : "");
  if (e.level == ExplainLevel::kHead) {
    subject += fmt::format(", head {} of {}", e.head, e.heads);
  } else {
    subject += fmt::format(", {} head{}", e.heads, e.heads == 1 ? "" : "s");
  }
  return subject + fmt::format(" \u00b7 d_in {}, d_k {}, {}", e.d_in, e.d_k,
                               e.causal ? "causal" : "every token sees all");
}

std::string Quoted(const Explanation& e, int64_t token) {
  constexpr int kCharacters = 24;
  return fmt::format("\u201c{}\u201d", Clipped(Visible(e.tokens[static_cast<size_t>(token)]), kCharacters));
}

}  // namespace qkv::view
