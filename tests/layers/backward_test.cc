// Every layer's gradients against central differences of the same layer in plain double loops.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "layers/embedding.h"
#include "layers/finite_difference.h"
#include "layers/head_loss.h"
#include "layers/noise.h"
#include "layers/norm_backward.h"
#include "layers/projection.h"
#include "layers/residual.h"
#include "runtime/cpu.h"
#include "runtime/half.h"
#include "runtime/threads.h"

namespace qkv {
namespace {

using test::Dot;
using test::Doubles;
using test::ExpectNear;
using test::Noise;
using test::NumericGradient;
using test::ToDoubles;

constexpr double kFloat = 2e-6,
                 kBFloat = 2e-2;  // of the largest gradient: some 30 float roundings, some 5 bfloat16

std::vector<BFloat16> Rounded(const std::vector<float>& values) {
  std::vector<BFloat16> rounded;
  for (float value : values) rounded.push_back(ToBFloat16(value));
  return rounded;
}
std::vector<float> Widened(const std::vector<BFloat16>& values) {
  std::vector<float> widened;
  for (BFloat16 value : values) widened.push_back(ToFloat(value));
  return widened;
}
std::vector<float> RoundedOnce(const std::vector<float>& values) { return Widened(Rounded(values)); }

class BackwardOn : public testing::TestWithParam<Isa> {
 protected:
  void SetUp() override { ForceIsa(GetParam()); }
  void TearDown() override { ForceIsa(chosen_); }

 private:
  Isa chosen_ = ChosenIsa();
};

// ---- Norms ----

enum class Norm { kLayer, kRms };

Doubles NormInDouble(Norm norm, const Doubles& x, const Doubles& gain, const Doubles& shift, double epsilon) {
  const size_t width = gain.size();
  Doubles out(x.size());
  for (size_t row = 0; row < x.size(); row += width) {
    double mean = 0, square = 0;
    if (norm == Norm::kLayer) {
      for (size_t c = 0; c < width; ++c) mean += x[row + c] / static_cast<double>(width);
    }
    for (size_t c = 0; c < width; ++c) square += std::pow(x[row + c] - mean, 2) / static_cast<double>(width);
    for (size_t c = 0; c < width; ++c) {
      out[row + c] =
          (x[row + c] - mean) / std::sqrt(square + epsilon) * gain[c] + (shift.empty() ? 0 : shift[c]);
    }
  }
  return out;
}

void CheckNorm(Norm norm, int64_t rows, int64_t width) {
  SCOPED_TRACE(testing::Message() << rows << " x " << width);
  constexpr float kEpsilon = 1e-3f;
  const std::vector<float> x = Noise(1, rows * width, 3), dout = Noise(2, rows * width),
                           gain = Noise(3, width, 2);
  const std::vector<float> shift = norm == Norm::kLayer ? Noise(4, width) : std::vector<float>();
  const std::vector<float> passing = Noise(5, rows * width);
  std::vector<float> dx = passing, dgain(gain.size()), dshift(gain.size()), out(x.size());
  const LayerNormParameters parameters{gain.data(), shift.data(), width, kEpsilon};
  if (norm == Norm::kLayer) {
    LayerNormBackward<float>({x.data(), dout.data(), dx.data(), dgain.data(), dshift.data(), out.data()}, rows,
                             parameters);
  } else {
    RmsNormBackward<float>({x.data(), dout.data(), dx.data(), dgain.data(), nullptr, out.data()}, rows,
                           parameters);
  }
  const Doubles xs = ToDoubles(x), gains = ToDoubles(gain), shifts = ToDoubles(shift),
                weights = ToDoubles(dout);
  ExpectNear(out, NormInDouble(norm, xs, gains, shifts, kEpsilon), kFloat, "out");
  Doubles expected = NumericGradient(
      [&](const Doubles& at) { return Dot(weights, NormInDouble(norm, at, gains, shifts, kEpsilon)); }, xs);
  for (size_t i = 0; i < expected.size(); ++i) expected[i] += passing[i];
  ExpectNear(dx, expected, kFloat, "dx");
  ExpectNear(
      dgain,
      NumericGradient(
          [&](const Doubles& at) { return Dot(weights, NormInDouble(norm, xs, at, shifts, kEpsilon)); }, gains),
      kFloat, "dgain");
  if (norm == Norm::kRms) return;
  ExpectNear(
      dshift,
      NumericGradient(
          [&](const Doubles& at) { return Dot(weights, NormInDouble(norm, xs, gains, at, kEpsilon)); }, shifts),
      kFloat, "dshift");
}

TEST_P(BackwardOn, Norms) {
  for (const Norm norm : {Norm::kLayer, Norm::kRms}) {
    for (const int64_t width : {1, 2, 7, 16, 33, 48}) CheckNorm(norm, 3, width);
    CheckNorm(norm, 90, 8);  // more rows than blocks of sums
  }
}

TEST_P(BackwardOn, NormsInBFloat16AreThoseOfFloatRounded) {
  constexpr int64_t kRows = 5, kWidth = 37;
  const std::vector<float> x = Noise(1, kRows * kWidth, 3), gain = Noise(3, kWidth, 2),
                           shift = Noise(4, kWidth);
  const std::vector<BFloat16> dout = Rounded(Noise(2, kRows * kWidth));
  const std::vector<float> wide = Widened(dout);
  const LayerNormParameters parameters{gain.data(), shift.data(), kWidth, 1e-5f};
  std::vector<float> dx(x.size()), dgain(gain.size()), dshift(gain.size()), out(x.size()), forward(x.size());
  std::vector<float> dx16 = dx, dgain16 = dgain, dshift16 = dshift;
  std::vector<BFloat16> out16(x.size()), forward16(x.size()), rounded(x.size());
  LayerNormBackward<float>({x.data(), wide.data(), dx.data(), dgain.data(), dshift.data(), out.data()}, kRows,
                           parameters);
  LayerNormBackward<BFloat16>(
      {x.data(), dout.data(), dx16.data(), dgain16.data(), dshift16.data(), out16.data(), rounded.data()}, kRows,
      parameters);
  EXPECT_EQ(dx, dx16);
  EXPECT_EQ(RoundedOnce(dx), Widened(rounded));
  EXPECT_EQ(dgain, dgain16);
  EXPECT_EQ(dshift, dshift16);
  EXPECT_EQ(RoundedOnce(out), Widened(out16));
  LayerNormForward(x.data(), kRows, parameters, forward.data());
  LayerNormForward(x.data(), kRows, parameters, forward16.data());
  EXPECT_EQ(RoundedOnce(forward), Widened(forward16));
  ExpectNear(out, ToDoubles(forward), kFloat, "the same output again");
}

// ---- Activations ----

double GeluInDouble(Gelu kind, double x) {
  if (kind == Gelu::kErf) return 0.5 * x * (1 + std::erf(x / std::sqrt(2.0)));
  return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
}

TEST_P(BackwardOn, Gelu) {
  for (const Gelu kind : {Gelu::kErf, Gelu::kTanh}) {
    SCOPED_TRACE(kind == Gelu::kErf ? "erf" : "tanh");
    constexpr int64_t kRows = 7, kWidth = 41;
    const RowsPart whole{0, kRows, 0, kWidth};
    const std::vector<float> x = Noise(1, kRows * kWidth, 16), dout = Noise(2, kRows * kWidth);
    std::vector<float> out(x.size()), again(x.size()), dx = dout;
    Gelus(kind, x.data(), kWidth, whole, out.data());
    GelusBackward(kind, x.data(), kWidth, {0, 3, 0, kWidth}, dx.data(), again.data());
    GelusBackward(kind, x.data(), kWidth, {3, kRows - 3, 0, 20}, dx.data(), again.data());
    GelusBackward(kind, x.data(), kWidth, {3, kRows - 3, 20, kWidth - 20}, dx.data(), again.data());
    Doubles expected, slope;
    for (size_t i = 0; i < x.size(); ++i) {
      expected.push_back(GeluInDouble(kind, x[i]));
      slope.push_back(dout[i] * (GeluInDouble(kind, x[i] + 1e-5) - GeluInDouble(kind, x[i] - 1e-5)) / 2e-5);
    }
    ExpectNear(out, expected, 4e-7, "out");
    EXPECT_EQ(out, again);
    ExpectNear(dx, slope, kFloat, "dx");
  }
}

TEST_P(BackwardOn, GeluFarOut) {
  for (const Gelu kind : {Gelu::kErf, Gelu::kTanh}) {
    const std::vector<float> x = {1e20f, 3e38f, 60, -60, -1e20f, -3e38f, 0};
    std::vector<float> dx(x.size(), 1.0f), out(x.size());
    const auto width = static_cast<int64_t>(x.size());
    GelusBackward(kind, x.data(), width, {0, 1, 0, width}, dx.data(), out.data());
    EXPECT_EQ(dx, (std::vector<float>{1, 1, 1, 0, 0, 0, 0.5f}));
    EXPECT_EQ(out, (std::vector<float>{1e20f, 3e38f, 60, 0, 0, 0, 0}));
  }
}

TEST_P(BackwardOn, GeluInBFloat16IsThatOfFloatRounded) {
  constexpr int64_t kWidth = 37;
  const std::vector<BFloat16> x = Rounded(Noise(1, kWidth, 8)), dout = Rounded(Noise(2, kWidth));
  const std::vector<float> wide = Widened(x);
  std::vector<BFloat16> dx16 = dout, out16(x.size());
  std::vector<float> dx = Widened(dout), out(x.size());
  GelusBackward(Gelu::kTanh, x.data(), kWidth, {0, 1, 0, kWidth}, dx16.data(), out16.data());
  GelusBackward(Gelu::kTanh, wide.data(), kWidth, {0, 1, 0, kWidth}, dx.data(), out.data());
  EXPECT_EQ(Widened(dx16), RoundedOnce(dx));
  EXPECT_EQ(Widened(out16), RoundedOnce(out));
}

TEST_P(BackwardOn, SwiGlu) {
  constexpr int64_t kRows = 3, kWidth = 19;
  const std::vector<float> gate_up = Noise(1, kRows * 2 * kWidth, 12), dout = Noise(2, kRows * kWidth);
  std::vector<float> got(gate_up.size());
  SwiGluBackward(gate_up.data(), dout.data(), {kRows, kWidth}, got.data());
  const auto loss = [&](const Doubles& at) {
    double sum = 0;
    for (size_t r = 0; r < kRows; ++r) {
      for (size_t c = 0; c < kWidth; ++c) {
        const double gate = at[r * 2 * kWidth + c], up = at[r * 2 * kWidth + kWidth + c];
        sum += dout[r * kWidth + c] * gate / (1 + std::exp(-gate)) * up;
      }
    }
    return sum;
  };
  ExpectNear(got, NumericGradient(loss, ToDoubles(gate_up)), kFloat, "dgate_up");
}

// ---- Projections ----

struct ProjectionSize {
  int64_t rows, inputs, outputs;
};

double WeightOf(const Doubles& weight, WeightOrder order, ProjectionSize size, int64_t in, int64_t out) {
  const int64_t at = order == WeightOrder::kInOut ? in * size.outputs + out : out * size.inputs + in;
  return weight[static_cast<size_t>(at)];
}

Doubles ProjectInDouble(const Doubles& x, const Doubles& weight, const Doubles& bias, WeightOrder order,
                        ProjectionSize size) {
  Doubles y;
  for (int64_t r = 0; r < size.rows; ++r) {
    for (int64_t out = 0; out < size.outputs; ++out) {
      double sum = bias[static_cast<size_t>(out)];
      for (int64_t in = 0; in < size.inputs; ++in) {
        sum += x[static_cast<size_t>(r * size.inputs + in)] * WeightOf(weight, order, size, in, out);
      }
      y.push_back(sum);
    }
  }
  return y;
}

std::vector<float> AsFloats(const std::vector<float>& values) { return values; }
std::vector<float> AsFloats(const std::vector<BFloat16>& values) { return Widened(values); }

template <class T>
void CheckProjection(const std::vector<T>& x, const std::vector<T>& weight, const std::vector<T>& dy,
                     WeightOrder order, ProjectionSize size, double tolerance) {
  const std::vector<float> bias = Noise(4, size.outputs);
  const Projection<T> projection{weight.data(), bias.data(), size.inputs, size.outputs, order};
  std::vector<float> y(dy.size(), 0.5f), dx(x.size()), dweight(weight.size(), 0.25f),
      dbias(bias.size(), 0.125f);
  ProjectOnto(projection, x.data(), size.rows, y.data(), y.data());
  ProjectBackward(projection, dy.data(), size.rows, dx.data());
  AddProjectionGradients(projection, x.data(), dy.data(), size.rows, dweight.data(), dbias.data());

  const Doubles xs = ToDoubles(AsFloats(x)), ws = ToDoubles(AsFloats(weight)), bs = ToDoubles(bias);
  const Doubles weights = ToDoubles(AsFloats(dy));
  const auto plus = [](Doubles values, double more) {
    for (double& value : values) value += more;
    return values;
  };
  const auto loss = [&](const Doubles& a, const Doubles& w, const Doubles& b) {
    return Dot(weights, ProjectInDouble(a, w, b, order, size));
  };
  ExpectNear(y, plus(ProjectInDouble(xs, ws, bs, order, size), 0.5), tolerance, "y");
  ExpectNear(dx, NumericGradient([&](const Doubles& at) { return loss(at, ws, bs); }, xs), tolerance, "dx");
  ExpectNear(dweight, plus(NumericGradient([&](const Doubles& at) { return loss(xs, at, bs); }, ws), 0.25),
             tolerance, "dweight");
  ExpectNear(dbias, plus(NumericGradient([&](const Doubles& at) { return loss(xs, ws, at); }, bs), 0.125),
             tolerance, "dbias");
}

TEST_P(BackwardOn, Projection) {
  for (const WeightOrder order : {WeightOrder::kInOut, WeightOrder::kOutIn}) {
    for (const ProjectionSize size : {ProjectionSize{1, 1, 1}, {5, 3, 7}, {7, 17, 5}}) {
      SCOPED_TRACE(testing::Message() << size.rows << " " << size.inputs << " " << size.outputs);
      const std::vector<float> x = Noise(1, size.rows * size.inputs), w = Noise(2, size.inputs * size.outputs);
      const std::vector<float> dy = Noise(3, size.rows * size.outputs);
      CheckProjection(x, w, dy, order, size, kFloat);
      CheckProjection(Rounded(x), Rounded(w), Rounded(dy), order, size,
                      kFloat);  // products are exact, sums float
    }
  }
}

// ---- Loss ----

double LossInDouble(const Doubles& hidden, const Doubles& table, const std::vector<int32_t>& targets,
                    size_t width) {
  const size_t vocab = table.size() / width;
  double loss = 0;
  for (size_t r = 0; r < targets.size(); ++r) {
    double sum = 0, answer = 0;
    for (size_t v = 0; v < vocab; ++v) {
      double logit = 0;
      for (size_t c = 0; c < width; ++c) logit += hidden[r * width + c] * table[v * width + c];
      sum += std::exp(logit);
      if (v == static_cast<size_t>(targets[r])) answer = logit;
    }
    loss += std::log(sum) - answer;
  }
  return loss;
}

template <class T>
void CheckLoss(const std::vector<T>& start, const std::vector<T>& table, int64_t width, double tolerance) {
  const auto vocab = static_cast<int64_t>(table.size()) / width;
  std::vector<int32_t> targets;
  for (size_t r = 0; r < start.size() / static_cast<size_t>(width); ++r) {
    targets.push_back(static_cast<int32_t>((7 * r + 3) % static_cast<size_t>(vocab)));
  }
  constexpr float kScale = 0.25f;
  std::vector<T> hidden = start;
  std::vector<float> dtable(table.size());
  HeadLoss<T> head(vocab, width, static_cast<int64_t>(targets.size()));
  const double forward = head.Forward(hidden.data(), targets, table.data());
  const double loss = head.Backward(hidden.data(), targets, table.data(), kScale, dtable.data());
  const Doubles hs = ToDoubles(AsFloats(start)), ts = ToDoubles(AsFloats(table));
  const double exact = LossInDouble(hs, ts, targets, static_cast<size_t>(width));
  EXPECT_NEAR(loss, exact, 1e-6 * exact);
  EXPECT_NEAR(forward, exact, 1e-6 * exact);
  ExpectNear(
      AsFloats(hidden),
      NumericGradient(
          [&](const Doubles& at) { return kScale * LossInDouble(at, ts, targets, static_cast<size_t>(width)); },
          hs),
      tolerance, "dhidden");
  ExpectNear(
      dtable,
      NumericGradient(
          [&](const Doubles& at) { return kScale * LossInDouble(hs, at, targets, static_cast<size_t>(width)); },
          ts),
      tolerance, "dtable");
}

TEST_P(BackwardOn, HeadLoss) {
  constexpr int64_t kWidth = 3;
  for (const auto& [rows, vocab] :
       {std::pair<int64_t, int64_t>{1, 2}, {4, 37}, {135, 5}}) {  // 128 rows at a time
    SCOPED_TRACE(testing::Message() << rows << " x " << vocab);
    const std::vector<float> hidden = Noise(1, rows * kWidth, 4), table = Noise(2, vocab * kWidth, 4);
    CheckLoss(hidden, table, kWidth, kFloat);
    CheckLoss(Rounded(hidden), Rounded(table), kWidth, kBFloat);
  }
}

TEST_P(BackwardOn, HeadLossOfLargeLogits) {
  const std::vector<float> table = {1e4f, 0, -1e4f};
  std::vector<float> hidden = {1, 1}, dtable(3);
  const std::vector<int32_t> targets = {0, 2};
  HeadLoss<float> head(3, 1, 2);
  EXPECT_EQ(head.Backward(hidden.data(), targets, table.data(), 1, dtable.data()), 2e4);
  EXPECT_EQ(hidden, (std::vector<float>{0, 2e4f}));
}

INSTANTIATE_TEST_SUITE_P(EveryIsa, BackwardOn, testing::ValuesIn(SupportedIsas()),
                         [](const auto& parameter) { return std::string(NameOf(parameter.param)); });

// ---- Embeddings ----

TEST(Embedding, ForwardAndBackward) {
  constexpr int64_t kVocab = 5, kWidth = 70, kLength = 3;
  const std::vector<int32_t> ids = {4, 0, 4, 1, 4, 4};
  const std::vector<float> tokens = Noise(1, kVocab * kWidth), positions = Noise(2, kLength * kWidth);
  const std::vector<float> dout = Noise(3, 6 * kWidth);
  std::vector<float> out(dout.size()), dtokens(tokens.size(), 0.5f), dpositions(positions.size(), 0.25f);
  const Embedding shape{kVocab, kWidth, kLength};
  EmbedForward(shape, ids, tokens.data(), positions.data(), out.data());
  EmbedBackward(shape, ids, dout.data(), dtokens.data(), dpositions.data());
  Doubles expected_tokens(tokens.size(), 0.5), expected_positions(positions.size(), 0.25);
  for (size_t i = 0; i < ids.size(); ++i) {
    for (size_t c = 0; c < kWidth; ++c) {
      const size_t token = static_cast<size_t>(ids[i]) * kWidth + c, position = i % kLength * kWidth + c;
      EXPECT_EQ(out[i * kWidth + c], tokens[token] + positions[position]);
      expected_tokens[token] += dout[i * kWidth + c];
      expected_positions[position] += dout[i * kWidth + c];
    }
  }
  ExpectNear(dtokens, expected_tokens, kFloat, "dtokens");
  ExpectNear(dpositions, expected_positions, kFloat, "dpositions");
}

// ---- Determinism ----

TEST(LayersBackward, ThreadsDoNotMatterOutsideOneDnn) {
  constexpr int64_t kRows = 700, kWidth = 33;
  const std::vector<float> x = Noise(1, kRows * kWidth, 3), dout = Noise(2, kRows * kWidth),
                           gain = Noise(3, kWidth);
  const auto run = [&](int threads) {
    SetThreads(threads);
    std::vector<float> all(x.size() + 3 * gain.size());
    float *dgain = all.data() + x.size(), *dshift = dgain + kWidth, *dbias = dshift + kWidth;
    std::vector<float> out(x.size()), dweight(kWidth * kWidth);
    LayerNormBackward<float>({x.data(), dout.data(), all.data(), dgain, dshift, out.data()}, kRows,
                             {gain.data(), gain.data(), kWidth, 1e-5f});
    const Projection<float> projection{x.data(), nullptr, kWidth, kWidth, WeightOrder::kInOut};
    AddProjectionGradients(projection, x.data(), dout.data(), kRows, dweight.data(), dbias);
    return all;
  };
  const int before = Threads();
  EXPECT_EQ(run(1), run(2));
  EXPECT_EQ(run(1), run(5));
  SetThreads(before);
}

}  // namespace
}  // namespace qkv
