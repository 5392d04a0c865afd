// Every step of an explanation is recomputed here from the one before, in double; and compared with
// transformers'.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <functional>
#include <stdexcept>

#include "models/golden.h"
#include "qkv/error.h"
#include "qkv/explain.h"
#include "support/tolerance.h"

namespace qkv {
namespace {

using nlohmann::json;

// A tensor's last two axes of one head, as doubles.
struct Matrix {
  int64_t rows = 0, columns = 0;
  std::vector<double> values;

  double At(int64_t r, int64_t c) const { return values[static_cast<size_t>(r * columns + c)]; }
};

Matrix Of(const Explanation& e, StepKind kind, const char* symbol, int64_t head = 0) {
  const ExplainedTensor* tensor = e.Find(kind, symbol);
  if (tensor == nullptr) throw std::runtime_error(std::string("no tensor ") + symbol);
  const Shape& shape = tensor->shape;
  EXPECT_EQ(shape.elements(), static_cast<int64_t>(tensor->values.size())) << symbol;
  Matrix m{shape.rank > 1 ? shape[shape.rank - 2] : 1, shape[shape.rank - 1], {}};
  const auto first = tensor->values.begin() + (shape.rank == 4 ? head * m.rows * m.columns : 0);
  m.values.assign(first, first + m.rows * m.columns);
  return m;
}

Matrix Product(const Matrix& a, const Matrix& b) {
  Matrix c{a.rows, b.columns, std::vector<double>(static_cast<size_t>(a.rows * b.columns))};
  for (int64_t i = 0; i < a.rows; ++i) {
    for (int64_t n = 0; n < a.columns; ++n) {
      for (int64_t j = 0; j < b.columns; ++j)
        c.values[static_cast<size_t>(i * b.columns + j)] += a.At(i, n) * b.At(n, j);
    }
  }
  return c;
}

Matrix Transposed(const Matrix& a) {
  Matrix t{a.columns, a.rows, {}};
  for (int64_t c = 0; c < a.columns; ++c) {
    for (int64_t r = 0; r < a.rows; ++r) t.values.push_back(a.At(r, c));
  }
  return t;
}

template <class F>
Matrix Mapped(Matrix m, const F& f) {
  for (int64_t r = 0; r < m.rows; ++r) {
    for (int64_t c = 0; c < m.columns; ++c)
      m.values[static_cast<size_t>(r * m.columns + c)] = f(r, c, m.At(r, c));
  }
  return m;
}

Matrix Softmax(const Matrix& m) {
  return Mapped(m, [&](int64_t r, int64_t, double score) {
    double sum = 0;
    for (int64_t j = 0; j < m.columns; ++j) sum += std::exp(m.At(r, j) - score);
    return score == -HUGE_VAL ? 0 : 1 / sum;
  });
}

void ExpectNear(const Matrix& got, const Matrix& expected, double tolerance, const char* what) {
  ASSERT_EQ(got.values.size(), expected.values.size()) << what;
  for (size_t i = 0; i < got.values.size(); ++i) {
    if (std::isinf(expected.values[i])) {
      ASSERT_EQ(got.values[i], expected.values[i]) << what << " " << i;
    } else {
      ASSERT_NEAR(got.values[i], expected.values[i], tolerance) << what << " " << i;
    }
  }
}

// What is no weight: relative to the largest of the step.
void ExpectStep(const Matrix& got, const Matrix& expected, const char* what) {
  double largest = 0;
  for (const double value : expected.values) {
    if (std::isfinite(value)) largest = std::max(largest, std::abs(value));
  }
  ASSERT_GT(largest, 0) << what;
  ExpectNear(got, expected, test::kExplainedStep * largest, what);
}

Matrix Normalised(const Explanation& e, const Matrix& h, const std::vector<float>& gain, ExplainedNorm kind) {
  return Mapped(h, [&](int64_t r, int64_t c, double value) {
    const auto count = static_cast<double>(h.columns);
    double mean = 0, squares = 0;
    for (int64_t l = 0; l < h.columns; ++l) mean += kind == ExplainedNorm::kLayer ? h.At(r, l) / count : 0;
    for (int64_t l = 0; l < h.columns; ++l) squares += std::pow(h.At(r, l) - mean, 2) / count;
    return (value - mean) / std::sqrt(squares + e.epsilon) * gain[static_cast<size_t>(c)];
  });
}

StepKind InputStep(const Explanation& e) {
  return e.norm == ExplainedNorm::kNone ? StepKind::kInput : StepKind::kNorm;
}

void CheckNorm(const Explanation& e) {
  if (e.norm == ExplainedNorm::kNone) return;
  Matrix expected = Normalised(e, Of(e, StepKind::kInput, "H"), e.Find(StepKind::kNorm, "g")->values, e.norm);
  if (const ExplainedTensor* shift = e.Find(StepKind::kNorm, "b")) {
    expected = Mapped(expected,
                      [&](int64_t, int64_t c, double v) { return v + shift->values[static_cast<size_t>(c)]; });
  }
  ExpectStep(Of(e, StepKind::kNorm, "X"), expected, "X");
}

// A head's rows turned as the step before the scores turns them.
Matrix Turned(const Explanation& e, const Matrix& m) {
  const Matrix cos = Of(e, StepKind::kTurn, "cos"), sin = Of(e, StepKind::kTurn, "sin");
  const bool adjacent = e.pairs == ExplainedPairs::kAdjacent;
  return Mapped(m, [&](int64_t r, int64_t c, double value) {
    if (c >= 2 * cos.columns) return value;
    const int64_t pair = adjacent ? c / 2 : c % cos.columns;
    const bool second = adjacent ? c % 2 == 1 : c >= cos.columns;
    const int64_t other = adjacent ? c ^ 1 : (second ? c - cos.columns : c + cos.columns);
    return value * cos.At(r, pair) + (second ? 1 : -1) * m.At(r, other) * sin.At(r, pair);
  });
}

// q or k of a head as scores multiply them; checks the steps that made them of what `vectors` gave.
Matrix Scored(const Explanation& e, StepKind vectors, const std::string& name, int64_t head) {
  Matrix m = Of(e, vectors, name.c_str(), head);
  if (const ExplainedTensor* gain = e.Find(StepKind::kHeadNorm, "g_" + name)) {
    const Matrix normalised = Of(e, StepKind::kHeadNorm, name.c_str(), head);
    ExpectStep(normalised, Normalised(e, m, gain->values, ExplainedNorm::kRms), "head norm");
    m = normalised;
  }
  if (e.Find(StepKind::kTurn, name + "'") == nullptr) return m;
  const Matrix turned = Of(e, StepKind::kTurn, (name + "'").c_str(), head);
  ExpectStep(turned, Turned(e, m), "turned");
  return turned;
}

void CheckProjections(const Explanation& e) {
  CheckNorm(e);
  const Matrix x = Of(e, InputStep(e), "X");
  for (const std::string name : {"Q", "K", "V"}) {
    Matrix expected = Product(x, Of(e, StepKind::kProject, ("W_" + name).c_str()));
    if (const ExplainedTensor* bias = e.Find(StepKind::kProject, "b_" + name)) {
      expected = Mapped(expected,
                        [&](int64_t, int64_t c, double v) { return v + bias->values[static_cast<size_t>(c)]; });
    }
    ExpectStep(Of(e, StepKind::kProject, name.c_str()), expected, name.c_str());
  }
}

// Scores to weighted sum, of one head; `vectors` is the step that made q, k and v.
void CheckHead(const Explanation& e, StepKind vectors, int64_t head) {
  const int64_t key_head = head * e.kv_heads / e.heads;
  const bool simplified = e.level == ExplainLevel::kSimplified;
  const Matrix q = simplified ? Of(e, vectors, "X") : Scored(e, vectors, "Q", head);
  const Matrix k = simplified ? q : Scored(e, vectors, "K", key_head);
  Matrix scores = Of(e, StepKind::kScores, "S", head);
  ExpectStep(scores, Product(q, Transposed(k)), "S");
  if (!simplified) {
    const Matrix scaled = Of(e, StepKind::kScale, "S'", head);
    ExpectStep(scaled, Mapped(scores, [&](int64_t, int64_t, double s) { return s * e.scale; }), "S'");
    scores = scaled;
  }
  if (e.causal) {
    const Matrix masked = Of(e, StepKind::kMask, "M", head);
    const auto visible = [&](int64_t i, int64_t j) { return j <= i && (!e.window || j > i - *e.window); };
    const auto mask = [&](int64_t i, int64_t j, double s) { return visible(i, j) ? s : -HUGE_VAL; };
    ExpectStep(masked, Mapped(scores, mask), "M");
    scores = masked;
  }
  const Matrix weights = Of(e, StepKind::kSoftmax, "A", head);
  ExpectNear(weights, Softmax(scores), test::kModelWeights, "A");
  const Matrix v = Of(e, vectors, simplified ? "X" : "V", key_head);
  ExpectStep(Of(e, StepKind::kSum, "Z", head), Product(weights, v), "Z");
  if (e.dropout_p == 0) return;
  const Matrix training = Of(e, StepKind::kDropout, "A'", head);
  for (size_t i = 0; i < weights.values.size(); ++i) {
    if (training.values[i] != 0) {
      ASSERT_NEAR(training.values[i], weights.values[i] / (1 - e.dropout_p), test::kModelWeights);
    }
  }
  ExpectStep(Of(e, StepKind::kSum, "Z'", head), Product(training, v), "Z'");
}

void CheckOutput(const Explanation& e, const char* from, const char* to) {
  Matrix z{static_cast<int64_t>(e.tokens.size()), e.heads * e.d_v, {}};
  for (int64_t i = 0; i < z.rows; ++i) {
    for (int64_t h = 0; h < e.heads; ++h) {
      const Matrix head = Of(e, StepKind::kSum, from, h);
      for (int64_t c = 0; c < e.d_v; ++c) z.values.push_back(head.At(i, c));
    }
  }
  if (std::string(from) == "Z") {
    ExpectStep(Of(e, StepKind::kConcat, "Z"), z, "concatenated");
  }
  Matrix expected = Product(z, Of(e, StepKind::kOutput, "W_O"));
  if (const ExplainedTensor* bias = e.Find(StepKind::kOutput, "b_O")) {
    expected = Mapped(expected,
                      [&](int64_t, int64_t c, double v) { return v + bias->values[static_cast<size_t>(c)]; });
  }
  ExpectStep(Of(e, StepKind::kOutput, to), expected, to);
}

void CheckMultiHead(const Explanation& e) {
  CheckProjections(e);
  for (int64_t h = 0; h < e.heads; ++h) {
    for (const char* name : {"Q", "K", "V"}) {
      if (*name != 'Q' && h >= e.kv_heads) continue;
      const Matrix all = Of(e, StepKind::kProject, name), mine = Of(e, StepKind::kSplit, name, h);
      ExpectNear(mine,
                 Mapped(mine, [&](int64_t r, int64_t c, double) { return all.At(r, h * mine.columns + c); }), 0,
                 name);
    }
    CheckHead(e, StepKind::kSplit, h);
  }
  CheckOutput(e, "Z", "Y");
  if (e.dropout_p > 0) CheckOutput(e, "Z'", "Y'");
}

const Encoding& Words() {
  static const Encoding words = EncodeWords("Your journey starts with one step, your journey");
  return words;
}

ExplainRequest Request(ExplainLevel level, int64_t token = 5) {
  ExplainRequest request;
  request.level = level;
  request.token = token;
  return request;
}

TEST(Explain, SimplifiedStepsFollowFromEachOther) {
  for (const Causal causal : {Causal::kNone, Causal::kTopLeft}) {
    OpenLayer layer = RandomLayer(Words(), {3, 2, 1}, 1);
    layer.config.causal = causal;
    const Explanation e = Explain(layer, Request(ExplainLevel::kSimplified));
    CheckHead(e, StepKind::kInput, 0);
    std::vector<float> out(layer.input.size());
    SimplifiedAttention(layer.input.data(), 1, 9, 3, causal != Causal::kNone, out.data());
    EXPECT_EQ(e.Find(StepKind::kSum, "Z")->values, out);
  }
}

TEST(Explain, HeadStepsFollowFromEachOther) {
  ExplainRequest request = Request(ExplainLevel::kHead);
  request.head = 1;
  request.dropout_p = 0.5f;
  request.seed = 4;
  const Explanation e = Explain(RandomLayer(Words(), {10, 12, 3}, 2), request);
  EXPECT_TRUE(e.causal);
  CheckProjections(e);
  CheckHead(e, StepKind::kProject, 0);
}

TEST(Explain, WithoutScalingWeightsAreThoseOfTheRawScores) {
  const Explanation e = Explain(RandomLayer(Words(), {64, 64, 1}, 3), Request(ExplainLevel::kHead));
  const Matrix scores = Of(e, StepKind::kScores, "S");
  const Matrix masked = Mapped(scores, [](int64_t i, int64_t j, double s) { return j <= i ? s : -HUGE_VAL; });
  ExpectNear(Of(e, StepKind::kSaturation, "U"), Softmax(masked), test::kModelWeights, "U");
}

TEST(Explain, TheOtherOrderGivesTheSameRowsAndASecondSoftmaxDoesNot) {
  const Explanation e = Explain(RandomLayer(Words(), {8, 8, 1}, 5), Request(ExplainLevel::kHead));
  const Matrix weights = Of(e, StepKind::kSoftmax, "A"), all = Of(e, StepKind::kOtherOrder, "F");
  ExpectNear(all, Softmax(Of(e, StepKind::kScale, "S'")), test::kModelWeights, "F");
  ExpectNear(Of(e, StepKind::kOtherOrder, "R"), weights, test::kModelWeights, "R");
  const Matrix again = Of(e, StepKind::kOtherOrder, "P");
  const Matrix visible = Mapped(all, [](int64_t i, int64_t j, double p) { return j <= i ? p : -HUGE_VAL; });
  ExpectNear(again, Softmax(visible), test::kModelWeights, "P");
  double largest = 0;
  for (size_t i = 0; i < again.values.size(); ++i)
    largest = std::max(largest, std::abs(again.values[i] - weights.values[i]));
  EXPECT_GT(largest, 0.05);
}

TEST(Explain, WithoutAMaskThereIsNoOtherOrder) {
  OpenLayer layer = RandomLayer(Words(), {8, 8, 1}, 5);
  layer.config.causal = Causal::kNone;
  const Explanation e = Explain(layer, Request(ExplainLevel::kHead));
  EXPECT_EQ(e.Find(StepKind::kMask, "M"), nullptr);
  EXPECT_EQ(e.Find(StepKind::kOtherOrder, "F"), nullptr);
  CheckHead(e, StepKind::kProject, 0);
}

TEST(Explain, MultiHeadStepsFollowFromEachOtherAndEndAtTheLayersOutput) {
  ExplainRequest request = Request(ExplainLevel::kMultiHead);
  request.dropout_p = 0.25f;
  request.seed = 9;
  const OpenLayer layer = RandomLayer(Words(), {10, 12, 3}, 2);
  const Explanation e = Explain(layer, request);
  CheckMultiHead(e);
  MultiHeadConfig config = layer.config;
  config.dropout = 0.25f;
  std::vector<float> out(9 * 12);
  const MultiHeadAttention whole(config, layer.parameters);
  whole.Forward(layer.input.data(), 1, 9, out.data());
  EXPECT_EQ(e.Find(StepKind::kOutput, "Y")->values, out);
  whole.Forward(layer.input.data(), 1, 9, out.data(), Dropout{9});
  EXPECT_EQ(e.Find(StepKind::kOutput, "Y'")->values, out);
}

TEST(Explain, GroupedHeadsShareKeysAndValues) {
  OpenLayer layer = RandomLayer(Words(), {10, 12, 4}, 2);
  layer.config.kv_heads = 2;
  for (auto* weight : {&layer.parameters.w_k, &layer.parameters.w_v}) weight->resize(6 * 10);
  const Explanation e = Explain(layer, Request(ExplainLevel::kMultiHead));
  for (int64_t head = 0; head < 4; ++head) CheckHead(e, StepKind::kSplit, head);
  ExplainRequest request = Request(ExplainLevel::kHead);
  request.head = 3;
  const Explanation one = Explain(layer, request);
  CheckProjections(one);
  CheckHead(one, StepKind::kProject, 0);
  const Matrix alone = Of(one, StepKind::kSoftmax, "A"), among = Of(e, StepKind::kSoftmax, "A", 3);
  EXPECT_EQ(alone.values, among.values);
}

TEST(Explain, AWordThatComesAgainHasTheSameVector) {
  EXPECT_EQ(Words().tokens, (std::vector<std::string>{"your", "journey", "starts", "with", "one", "step", ",",
                                                      "your", "journey"}));
  EXPECT_EQ(Words().ids, (std::vector<int64_t>{0, 1, 2, 3, 4, 5, 6, 0, 1}));
  const OpenLayer layer = RandomLayer(Words(), {3, 2, 1}, 7);
  const auto row = [&](int64_t token) {
    return std::vector<float>(layer.input.begin() + token * 3, layer.input.begin() + token * 3 + 3);
  };
  EXPECT_EQ(row(0), row(7));
  EXPECT_NE(row(0), row(1));
  EXPECT_EQ(layer.input, RandomLayer(Words(), {3, 2, 1}, 7).input);
  EXPECT_NE(layer.input, RandomLayer(Words(), {3, 2, 1}, 8).input);
}

TEST(Explain, RandomNumbersHaveTheirVariance) {
  const OpenLayer layer = RandomLayer(Words(), {100, 100, 1}, 7);
  double mean = 0, squares = 0;
  for (const double w : layer.parameters.w_q) mean += w / 1e4, squares += w * w / 1e4;
  EXPECT_NEAR(mean, 0, 5 * 0.1 / 100);
  EXPECT_NEAR(squares, 0.01, 5e-4);
}

ErrorCode CodeOf(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.code();
  }
  ADD_FAILURE() << "no error";
  return ErrorCode::kInternal;
}

TEST(Explain, RefusesWhatMakesNoSense) {
  const OpenLayer layer = RandomLayer(Words(), {10, 12, 3}, 2);
  const auto refused = [&](const auto& change, OpenLayer changed) {
    ExplainRequest request = Request(ExplainLevel::kHead);
    change(request, changed);
    EXPECT_EQ(CodeOf([&] { Explain(changed, request); }), ErrorCode::kInvalidArgument);
  };
  refused([](auto& r, auto&) { r.head = 3; }, layer);
  refused([](auto& r, auto&) { r.head = -1; }, layer);
  refused([](auto& r, auto&) { r.token = 9; }, layer);
  refused([](auto& r, auto&) { r.dropout_p = 1; }, layer);
  refused([](auto& r, auto&) { r.dropout_p = -0.1f; }, layer);
  refused([](auto& r, auto&) { r.dropout_p = NAN; }, layer);
  refused([](auto& r, auto&) { r.level = ExplainLevel::kSimplified, r.dropout_p = 0.5f; }, layer);
  refused([](auto&, auto& l) { l.input.pop_back(); }, layer);
  refused([](auto&, auto& l) { l.parameters.w_k.pop_back(); }, layer);
  refused([](auto&, auto& l) { l.config.num_heads = 0; }, layer);
  refused([](auto&, auto& l) { l.config.num_heads = 5; }, layer);
  refused([](auto&, auto& l) { l.config.d_context = 4; }, layer);
  for (const RandomLayerSizes& sizes :
       {RandomLayerSizes{10, 12, 5}, {0, 12, 3}, {10, 0, 1}, {10, 12, 0}, {10, 12, -3}}) {
    EXPECT_EQ(CodeOf([&] { RandomLayer(Words(), sizes, 1); }), ErrorCode::kInvalidArgument);
  }
  EXPECT_EQ(CodeOf([] { RandomLayer(Words(), {1 << 24, 1 << 24, 1}, 1); }), ErrorCode::kOutOfMemory);
  EXPECT_EQ(CodeOf([] { EncodeWords("\xff"); }), ErrorCode::kFile);
}

TEST(ExplainMiniLm, StepsFollowFromEachOtherAndWeightsAreThoseOfLook) {
  const Encoding text =
      test::MiniLm().tokenizer().Encode("The chicken didn't cross the road because it was too tired");
  LookRequest look;
  look.layers = {5};
  const ModelCapture capture = test::MiniLm().Look(text, look);
  const OpenLayer layer = test::MiniLm().Open(text, 5);
  const Explanation e = Explain(layer, Request(ExplainLevel::kMultiHead, 10));
  CheckMultiHead(e);
  const std::vector<float>& weights = e.Find(StepKind::kSoftmax, "A")->values;
  EXPECT_THAT(weights,
              testing::Pointwise(testing::FloatNear(static_cast<float>(test::kModelWeights)), capture.weights));
  ExplainRequest request = Request(ExplainLevel::kHead, 10);
  request.head = 11;
  const Explanation head = Explain(layer, request);
  CheckProjections(head);
  CheckHead(head, StepKind::kProject, 0);
  EXPECT_NEAR(Of(head, StepKind::kSoftmax, "A").At(10, 2), 0.71, 5e-3);  // it: the chicken
  EXPECT_EQ(CodeOf([&] { test::MiniLm().Open(text, 6); }), ErrorCode::kInvalidArgument);
  EXPECT_EQ(CodeOf([&] { test::MiniLm().Open(text, -1); }), ErrorCode::kInvalidArgument);
}

using Step = std::pair<const char*, StepKind>;

// Every step's picked elements against transformers', of the cases in a golden file.
void ExpectGolden(const Model& model, const char* file, const std::vector<Step>& steps) {
  for (const json& golden : test::GoldenCases(file)) {
    SCOPED_TRACE(golden["name"].get<std::string>());
    const Encoding text = model.tokenizer().Encode(golden["text"].get<std::string>());
    const Explanation e = Explain(model.Open(text, golden["layer"]), Request(ExplainLevel::kMultiHead));
    for (const auto& [symbol, kind] : steps) {
      SCOPED_TRACE(symbol);
      const json& expected = golden["tensors"][symbol];
      const ExplainedTensor* tensor = e.Find(kind, symbol);
      ASSERT_NE(tensor, nullptr);
      const std::vector<int64_t> sizes(tensor->shape.size.begin(),
                                       tensor->shape.size.begin() + tensor->shape.rank);
      const double tolerance = kind == StepKind::kSoftmax
                                   ? test::kModelWeights
                                   : test::kExplainedStep * expected["largest"].get<double>();
      test::ExpectPicks(tensor->values, sizes, expected, tolerance);
    }
  }
}

TEST(ExplainMiniLm, EveryStepIsTransformers) {
  ExpectGolden(test::MiniLm(), "explain.json",
               {{"X", StepKind::kInput},
                {"Q", StepKind::kSplit},
                {"K", StepKind::kSplit},
                {"V", StepKind::kSplit},
                {"S", StepKind::kScores},
                {"S'", StepKind::kScale},
                {"A", StepKind::kSoftmax},
                {"Z", StepKind::kConcat},
                {"Y", StepKind::kOutput}});
}

TEST(ExplainSmolLm2, EveryStepIsTransformers) {
  const auto models = KnownModels();
  const bool installed = std::any_of(models.begin(), models.end(),
                                     [](const KnownModel& m) { return m.name == "smollm2" && m.installed; });
  if (!installed) GTEST_SKIP() << "smollm2 is not installed";
  ExpectGolden(*LoadModel("smollm2", {DType::kF32}), "explain_smollm2.json",
               {{"H", StepKind::kInput},
                {"X", StepKind::kNorm},
                {"Q", StepKind::kSplit},
                {"K", StepKind::kSplit},
                {"V", StepKind::kSplit},
                {"Q'", StepKind::kTurn},
                {"K'", StepKind::kTurn},
                {"S", StepKind::kScores},
                {"S'", StepKind::kScale},
                {"A", StepKind::kSoftmax},
                {"Z", StepKind::kConcat},
                {"Y", StepKind::kOutput}});
}

// Of every family and file format: shared key heads, rotary positions of either pairing, head norms, windows,
// scales.
TEST(ExplainDecoders, StepsFollowFromEachOtherAndWeightsAreThoseOfLook) {
  int64_t turned = 0, head_norms = 0, windows = 0, layer_norms = 0;
  for (const auto& entry : std::filesystem::directory_iterator(test::TinyFolder("causal"))) {
    SCOPED_TRACE(entry.path().filename());
    const auto model = LoadModel(entry.path(), {DType::kF32});
    Encoding text;
    for (int64_t i = 0; i < 12; ++i) text.ids.push_back((7 * i + 3) % model->info().vocab);
    text.tokens = text.labels = std::vector<std::string>(12, "t");
    text.span.resize(12);
    text.continues.resize(12), text.special.resize(12);
    for (int64_t layer = 0; layer < model->info().layers; ++layer) {
      const OpenLayer open = model->Open(text, layer);
      const Explanation e = Explain(open, Request(ExplainLevel::kMultiHead));
      EXPECT_TRUE(e.causal);
      CheckMultiHead(e);
      LookRequest look;
      look.layers = {layer};
      EXPECT_THAT(e.Find(StepKind::kSoftmax, "A")->values,
                  testing::Pointwise(testing::FloatNear(static_cast<float>(test::kModelWeights)),
                                     model->Look(text, look, nullptr).weights));
      ExplainRequest request = Request(ExplainLevel::kHead);
      request.head = model->info().heads - 1;
      const Explanation head = Explain(open, request);
      CheckProjections(head);
      CheckHead(head, StepKind::kProject, 0);
      EXPECT_EQ(Of(head, StepKind::kSum, "Z").values, Of(e, StepKind::kSum, "Z", request.head).values);
      ExpectNear(Of(head, StepKind::kOtherOrder, "R"), Of(head, StepKind::kSoftmax, "A"), test::kModelWeights,
                 "R");
      CheckHead(Explain(open, Request(ExplainLevel::kSimplified)), InputStep(e), 0);
      turned += e.Find(StepKind::kTurn, "Q'") != nullptr, head_norms += open.head_norms.has_value();
      windows += e.window.has_value(), layer_norms += e.norm == ExplainedNorm::kLayer;
    }
    EXPECT_EQ(CodeOf([&] { model->Open(text, model->info().layers); }), ErrorCode::kInvalidArgument);
  }
  EXPECT_GT(turned * head_norms * windows * layer_norms, 0);
}

}  // namespace
}  // namespace qkv
