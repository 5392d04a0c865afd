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

bool HasRope(const Explanation& e) { return e.Find(StepKind::kTurn, "cos") != nullptr; }
int64_t RopePairs(const Explanation& e) { return e.Find(StepKind::kTurn, "cos")->shape[2]; }

bool ScaledByRoot(const Explanation& e) { return std::abs(e.scale * std::sqrt(e.d_k) - 1) < 1e-5; }

// Which keys token i sees, of a causal model.
std::string SeenBy(const Explanation& e, const char* key) {
  return e.window ? fmt::format("i\u2212{} < {} \u2264 i", *e.window, key) : fmt::format("{} \u2264 i", key);
}

// Whose keys and values the explained head reads, where heads share them.
std::string Shared(const Explanation& e) {
  if (e.level != ExplainLevel::kHead || e.kv_heads == e.heads) return "";
  return fmt::format(" Keys and values are those of head {} of {}, which {} heads of queries share.",
                     e.head * e.kv_heads / e.heads, e.kv_heads, e.heads / e.kv_heads);
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
  const bool normalised = e.norm != ExplainedNorm::kNone;
  const char *rows = normalised ? "H" : "X", *row = normalised ? "h" : "x";
  StepWords words{"Input",
                  {Letter(rows) + kEquals + Tight("[") + Element(row, "1") + Tight(", \u2026, ") +
                   Element(row, "T") + Tight("]")},
                  Shown(Shapes(e).Input()),
                  "",
                  {}};
  if (e.model.empty()) {
    words.why = fmt::format(
        "One vector for each word: random numbers of variance 1 (seed {}), the same ones where a "
        "word comes again.",
        e.seed);
  } else if (e.layer == 0) {
    words.why = std::string("One vector for each token: what layer 0 gets is the token's embedding") +
                (HasRope(e) ? ". Its position comes in later, when queries and keys turn."
                            : " with its position's.");
  } else {
    words.why = fmt::format(
        "One vector for each token: what layer {} gets, after {} layer{}. The words' "
        "neighbours have already left their mark on it.",
        e.layer, e.layer, e.layer == 1 ? "" : "s");
  }
  return words;
}

StepWords Norm(const Explanation& e) {
  const Formula h = Element("h", "ic"), gain = Times() + Element("g", "c");
  StepWords words{"Normalise", {}, Shown(Shapes(e).Input()), "", {WorkedNorm(e)}};
  if (e.norm == ExplainedNorm::kRms) {
    const Formula squares = SumOver("l", SquareOf("h", "il"));
    words.formulas = {Element("x", "ic") + kEquals +
                      Fraction(h, Root(Fraction(Letter("1"), Letter("d")) + Times() + squares)) + gain};
    words.why =
        "Each token's vector is divided by its root mean square (and a tiny \u03b5 under the root, against zeros), so "
        "that all come in at one size, and each channel gets the learned gain g.";
  } else {
    words.formulas = {Element("x", "ic") + kEquals +
                      Fraction(h + Sign("\u2212") + Element("\u03bc", "i"), Element("\u03c3", "i")) + gain + Sign("+") +
                      Element("b", "c")};
    words.why =
        "From each token's vector its mean \u03bc is taken, and it is divided by its standard deviation \u03c3 (with a "
        "tiny \u03b5 against zeros): all come in at one size. Then each channel gets a learned gain g and shift b.";
  }
  return words;
}

StepWords HeadNorm(const Explanation& e) {
  const auto line = [](const char* letter) {
    const Formula of = Letter(letter);
    return of + Sign("\u2190") + Fraction(of, Call("rms", of)) + Times() + Sub(Letter("g"), letter);
  };
  return {"Normalise heads",
          {line("Q"), line("K")},
          Shown(Shapes(e).Query()),
          "This model brings each head's queries and keys to one size too, row by row, with gains of their own.",
          {}};
}

StepWords Turn(const Explanation& e) {
  const bool adjacent = e.pairs == ExplainedPairs::kAdjacent;
  const Formula angle = Sub(Letter("\u03b8"), "tn");
  const Formula q = Sub(Letter("q"), "a"), other = Sub(Letter("q"), "b");
  return {"Turn by position",
          {Sub(Primed(Letter("q")), "a") + kEquals + q + Tight("\u2009") + Call("cos", angle) + Sign("\u2212") + other +
               Tight("\u2009") + Call("sin", angle),
           Sub(Primed(Letter("q")), "b") + kEquals + q + Tight("\u2009") + Call("sin", angle) + Sign("+") + other +
               Tight("\u2009") + Call("cos", angle)},
          Shown(Shapes(e).Query()),
          fmt::format(
              "Rotary positions (RoPE): queries and keys are cut into pairs of channels, {}, and pair n turns by an "
              "angle \u03b8 that grows with the token's position t. How far two tokens' vectors turned against each "
              "other, and so the score, depends on their distance.",
              adjacent ? "(a, b) = (2n, 2n+1)" : fmt::format("(a, b) = (n, n+{})", RopePairs(e))),
          {WorkedTurn(e)}};
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
      std::string() +
          "Three learned projections of the same vector: what the token looks for (query), what it can be found by "
      "(key), and what it hands over (value)." +
          Shared(e),
      {WorkedProjection(e)}};
}

StepWords Split(const Explanation& e) {
  const Shapes shapes(e);
  const Formula h = Letter("h"), d = Letter("D"), one = Letter("1");
  const Formula columns = h + d + Tight(" \u2026 ") + Tight("(") + h + Tight("+") + one + Tight(")") + d + Tight("\u2212") + one;
  return {"Split into heads",
          {Sub(Letter("Q"), "h") + kEquals + Words("columns") + columns +
           Words("of") + Letter("Q")},
          Becomes(shapes.Joined(), shapes.Query()),
          e.kv_heads == e.heads
              ? fmt::format("Each of the {} heads takes its own {} columns of Q, K and V, and attends by itself.",
                            e.heads, e.d_k)
              : fmt::format("Each of the {} heads takes its own {} columns of Q. There are {} heads of keys and values, "
                            "and each serves {} heads of queries.",
                            e.heads, e.d_k, e.kv_heads, e.heads / e.kv_heads),
          {}};
}

StepWords Scores(const Explanation& e) {
  const bool simplified = e.level == ExplainLevel::kSimplified;
  const char *query = simplified ? "X" : HasRope(e) ? "Q'" : "Q", *key = simplified ? "X" : HasRope(e) ? "K'" : "K";
  const auto vector = [&](const char* letter, const char* index) {
    return HasRope(e) && !simplified ? Sub(Primed(Letter(letter)), index) : Element(letter, index);
  };
  const char *q = simplified ? "x" : "q", *k = simplified ? "x" : "k";
  const Shapes shapes(e);
  return {"Scores",
          {Letter("S") + kEquals + Symbol(query) + Tight("\u2009") + Transpose(Symbol(key)),
           Element("s", "ij") + kEquals + vector(q, "i") + Tight("\u00b7") + vector(k, "j")},
          Becomes(shapes.Query(), shapes.Pairs()),
          simplified
              ? "How alike two tokens are: the dot product of their vectors. A long vector is most like itself."
              : "How well what token i looks for fits what token j can be found by: a dot product.",
          {WorkedScore(e)}};
}

StepWords Scale(const Explanation& e) {
  const Formula root = Root(Sub(Letter("d"), "k"));
  const Shapes shapes(e);
  if (!ScaledByRoot(e)) {
    return {"Scale",
            {Symbol("S'") + kEquals + Letter("c") + Tight("\u2009") + Letter("S")},
            Shown(shapes.Pairs()),
            fmt::format("This model multiplies its scores by c = {:.4g} instead of 1/\u221ad_k.", e.scale),
            {WorkedScale(e)}};
  }
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
  return {e.window ? "Causal mask with a window" : "Causal mask",
          {Element("m", "ij") + kEquals + score + Words("where") + Letter(SeenBy(e, "j")) + Tight(",") +
           Words("else") + Tight("\u2212\u221e")},
          Shown(Shapes(e).Pairs()),
          (e.window ? fmt::format("A token sees {} tokens at most, itself and those before it. ", *e.window) : "") +
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
          "The same scores, {}{:.3f} times as far apart: the softmax saturates. One key takes nearly "
          "all, and where a weight \u03b1 is near 0 or 1 its slope \u03b1(1\u2212\u03b1) is near 0: training "
          "hardly moves it.",
          ScaledByRoot(e) ? "\u221ad_k = " : "", 1 / e.scale),
      WorkedSaturation(e)};
}

StepWords OtherOrder(const Explanation& e) {
  const Formula all = Call("softmax", Symbol("S'"));
  return {
      "The other order",
      {Letter("F") + kEquals + all,
       Element("r", "ij") + kEquals + Fraction(Element("f", "ij"), SumOver(SeenBy(e, "l"), Element("f", "il"))) +
           Words("where") + Letter(SeenBy(e, "j")) + Tight(",") + Words("else") + Tight("0")},
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
           Fraction(Weight("ij"), Letter("1") + Sign("\u2212") + Letter("p")) +
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
    case StepKind::kNorm: return Norm(explanation);
    case StepKind::kProject: return Project(explanation);
    case StepKind::kSplit: return Split(explanation);
    case StepKind::kHeadNorm: return HeadNorm(explanation);
    case StepKind::kTurn: return Turn(explanation);
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
