// The second lesson's numbers (docs/tutorial/2-average-to-layer.md), printed in its order.
#include "average_to_layer.h"

#include <qkv/layers.h>

#include <cmath>
#include <cstdio>
#include <exception>
#include <numeric>
#include <vector>

using lesson::Row;
using qkv::ExplainLevel;
using qkv::Explanation;
using qkv::OpenLayer;
using qkv::StepKind;

namespace {

void PrintName(const std::string& name) { std::printf("%-10s", name.c_str()); }

void PrintInput(const OpenLayer& layer) {
  const int64_t width = layer.config.d_in;
  std::printf("%d tokens, %d numbers each\n", static_cast<int>(layer.tokens.size()), static_cast<int>(width));
  for (size_t i = 0; i < layer.tokens.size(); ++i) {
    const float* x = layer.input.data() + static_cast<int64_t>(i) * width;
    PrintName(layer.tokens[i]);
    std::printf("%7.2f%7.2f%7.2f  ...%7.2f\n", x[0], x[1], x[2], x[width - 1]);
  }
}

void PrintSimplified(const OpenLayer& layer) {
  const Explanation e = lesson::Explain(layer, ExplainLevel::kSimplified, "it");
  const float *scores = Row(e, StepKind::kScores, "S"), *weights = Row(e, StepKind::kSoftmax, "A");
  std::printf("it · ...     score  weight\n");
  for (size_t j = 0; j < e.tokens.size(); ++j) {
    PrintName(e.tokens[j]);
    std::printf("%8.1f%8.3f\n", scores[j], weights[j]);
  }
}

void PrintProjections(const OpenLayer& layer) {
  const Explanation e = lesson::Explain(layer, ExplainLevel::kHead, "it");
  std::printf("it          the first numbers of 32\n");
  for (const char* name : {"Q", "K", "V"}) {
    const float* row = Row(e, StepKind::kProject, name);
    std::printf("%-10s%7.2f%7.2f%7.2f%7.2f  ...\n",
                name[0] == 'Q'   ? "query"
                : name[0] == 'K' ? "key"
                                 : "value",
                row[0], row[1], row[2], row[3]);
  }
}

void PrintHead(const OpenLayer& layer) {
  const Explanation e = lesson::Explain(layer, ExplainLevel::kHead, "it");
  const float *scores = Row(e, StepKind::kScores, "S"), *scaled = Row(e, StepKind::kScale, "S'");
  const float *weights = Row(e, StepKind::kSoftmax, "A"), *unscaled = Row(e, StepKind::kSaturation, "U");
  std::printf("            q · k   / √32     exp  weight   without / √32\n");
  for (size_t j = 0; j < e.tokens.size(); ++j) {
    PrintName(e.tokens[j]);
    std::printf("%7.2f%8.2f%8.2f%8.3f%14.3f\n", scores[j], scaled[j], std::exp(scaled[j]), weights[j],
                unscaled[j]);
  }
}

void PrintSum(const OpenLayer& layer) {
  const Explanation e = lesson::Explain(layer, ExplainLevel::kHead, "it");
  const float* weights = Row(e, StepKind::kSoftmax, "A");
  const std::vector<float>& v = e.Find(StepKind::kProject, "V")->values;
  const float* z = Row(e, StepKind::kSum, "Z");
  float rest = 0;
  std::printf("weight · value, its first number\n");
  for (size_t j = 0; j < e.tokens.size(); ++j) {
    const float value = v[j * static_cast<size_t>(e.d_v)];
    if (weights[j] < 0.03f) {
      rest += weights[j] * value;
      continue;
    }
    PrintName(e.tokens[j]);
    std::printf("%6.3f · %6.3f = %6.3f\n", weights[j], value, weights[j] * value);
  }
  std::printf("%-10s%24.3f\n%-10s%24.3f\n", "the others", rest, "z of it", z[0]);
}

void PrintMask(OpenLayer layer) {
  layer.config.causal = qkv::Causal::kTopLeft;
  const Explanation e = lesson::Explain(layer, ExplainLevel::kHead, "it");
  const float *masked = Row(e, StepKind::kMask, "M"), *weights = Row(e, StepKind::kSoftmax, "A");
  const float *all = Row(e, StepKind::kOtherOrder, "F"), *divided = Row(e, StepKind::kOtherOrder, "R");
  const float* again = Row(e, StepKind::kOtherOrder, "P");
  std::printf("            masked  weight   softmax first  masked, divided  softmax twice\n");
  for (size_t j = 0; j < e.tokens.size(); ++j) {
    PrintName(e.tokens[j]);
    std::printf(std::isinf(masked[j]) ? "    -inf" : "%8.2f", masked[j]);
    std::printf("%8.3f%16.3f%17.3f%15.3f\n", weights[j], all[j], divided[j], again[j]);
  }
}

// How far apart the weights of `it` lie in two sentences that differ in their last word alone.
float FarthestApart(qkv::Causal causal) {
  float farthest = 0;
  std::vector<Explanation> two;
  for (const char* end : {"tired", "wide"}) {
    OpenLayer layer = lesson::Open(lesson::Chicken(end), 0);
    layer.config.causal = causal;
    two.push_back(lesson::Explain(layer, ExplainLevel::kMultiHead, "it"));
  }
  for (int64_t head = 0; head < two[0].heads; ++head) {
    const float *tired = Row(two[0], StepKind::kSoftmax, "A", head),
                *wide = Row(two[1], StepKind::kSoftmax, "A", head);
    for (size_t j = 0; j < two[0].tokens.size(); ++j)
      farthest = std::max(farthest, std::abs(tired[j] - wide[j]));
  }
  return farthest;
}

void PrintFuture() {
  std::printf("layer 0, the weights of it: tired or wide at the end?\n");
  std::printf("every token sees all   they differ by up to %.3f\n", FarthestApart(qkv::Causal::kNone));
  std::printf("causal mask            they differ by up to %.3f\n", FarthestApart(qkv::Causal::kTopLeft));
}

void PrintHeads(const Explanation& e) {
  std::printf("head   it looks at\n");
  for (int64_t head = 0; head < e.heads; ++head) {
    const float* row = Row(e, StepKind::kSoftmax, "A", head);
    std::vector<size_t> order(e.tokens.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return row[a] > row[b]; });
    std::printf("%4d", static_cast<int>(head));
    for (int best = 0; best < 3; ++best)
      std::printf("   %-8s%5.2f", e.tokens[order[best]].c_str(), row[order[best]]);
    std::printf("\n");
  }
}

void PrintShapes(const Explanation& e) {
  const auto line = [&](const char* what, StepKind kind, const char* symbol) {
    const qkv::Shape& shape = e.Find(kind, symbol)->shape;
    std::string sizes;
    for (int axis = 0; axis < shape.rank; ++axis) {
      sizes += (axis == 0 ? "" : ", ") + std::to_string(shape.size[static_cast<size_t>(axis)]);
    }
    std::printf("%-29s(%s)\n", what, sizes.c_str());
  };
  line("X", StepKind::kInput, "X");
  line("W_Q, and so W_K, W_V", StepKind::kProject, "W_Q");
  line("Q = X W_Q, and so K, V", StepKind::kProject, "Q");
  line("Q in heads, and so K, V", StepKind::kSplit, "Q");
  line("scores, then weights A", StepKind::kSoftmax, "A");
  line("A V, a head at a time", StepKind::kSum, "Z");
  line("the heads side by side: Z", StepKind::kConcat, "Z");
  line("W_O", StepKind::kOutput, "W_O");
  line("Y = Z W_O", StepKind::kOutput, "Y");
}

// The whole layer at once, as a program would use it.
std::vector<float> WholeLayer(const OpenLayer& open) {
  const qkv::MultiHeadAttention layer(open.config, open.parameters);
  std::vector<float> y(open.input.size());
  layer.Forward(open.input.data(), 1, static_cast<int64_t>(open.tokens.size()), y.data());
  return y;
}

void PrintOutput(const OpenLayer& layer, const Explanation& e) {
  const std::vector<float> y = WholeLayer(layer);
  const float *step = Row(e, StepKind::kOutput, "Y"), *whole = y.data() + e.token * e.d_out;
  std::printf("y of it, step by step      %7.3f%7.3f%7.3f  ...\n", step[0], step[1], step[2]);
  std::printf("y of it, the layer at once %7.3f%7.3f%7.3f  ...\n", whole[0], whole[1], whole[2]);
}

// A word's vector in a text, on its way through the model: (L + 1, C).
std::vector<float> OnItsWay(const char* text, const char* word) {
  const qkv::Model& model = lesson::MiniLm();
  const qkv::Encoding encoding = model.tokenizer().Encode(text);
  const auto token = std::find(encoding.tokens.begin(), encoding.tokens.end(), word) - encoding.tokens.begin();
  const std::vector<float> all = model.Layers(encoding.ids);
  const int64_t width = model.info().width, length = static_cast<int64_t>(encoding.ids.size());
  std::vector<float> way;
  for (int64_t layer = 0; layer <= model.info().layers; ++layer) {
    const auto row = all.begin() + (layer * length + token) * width;
    way.insert(way.end(), row, row + width);
  }
  return way;
}

// The cosine of the angle between two vectors: 1 where they point the same way.
float Cosine(const float* a, const float* b, int64_t width) {
  const auto dot = [&](const float* x, const float* y) { return std::inner_product(x, x + width, y, 0.0f); };
  return dot(a, b) / std::sqrt(dot(a, a) * dot(b, b));
}

void PrintBank() {
  const Explanation e = lesson::Explain(lesson::Open(lesson::kPond), ExplainLevel::kHead, "bank");
  const float* row = Row(e, StepKind::kSoftmax, "A");
  std::printf("bank looks at, in head 11\n");
  for (size_t j = 0; j < e.tokens.size(); ++j) {
    if (row[j] < 0.03f) continue;
    PrintName(e.tokens[j]);
    std::printf("%6.2f\n", row[j]);
  }
  const int64_t width = lesson::MiniLm().info().width;
  const auto pond = OnItsWay(lesson::kPond, "bank"), boat = OnItsWay("The boat drifted to the bank", "bank");
  const auto account = OnItsWay("I opened an account at the bank", "bank");
  std::printf("\nbank by the pond, compared with     boat ... bank   account ... bank\n");
  for (int64_t layer = 0; layer <= lesson::MiniLm().info().layers; ++layer) {
    const float* mine = pond.data() + layer * width;
    std::printf(layer == 0 ? "before layer 0" : "after layer %d ", static_cast<int>(layer - 1));
    std::printf("%35.2f%19.2f\n", Cosine(mine, boat.data() + layer * width, width),
                Cosine(mine, account.data() + layer * width, width));
  }
}

void PrintLesson() {
  const OpenLayer layer = lesson::Open(lesson::Chicken("tired"));
  const Explanation all = lesson::Explain(layer, ExplainLevel::kMultiHead, "it");
  PrintInput(layer);
  std::printf("\n");
  PrintSimplified(layer);
  std::printf("\n");
  PrintProjections(layer);
  std::printf("\n");
  PrintHead(layer);
  std::printf("\n");
  PrintSum(layer);
  std::printf("\n");
  PrintMask(layer);
  std::printf("\n");
  PrintFuture();
  std::printf("\n");
  PrintHeads(all);
  std::printf("\n");
  PrintShapes(all);
  std::printf("\n");
  PrintOutput(layer, all);
  std::printf("\n");
  PrintBank();
}

}  // namespace

int main() {
  try {
    PrintLesson();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());  // the model is not there, and how to get it
    return 1;
  }
}
