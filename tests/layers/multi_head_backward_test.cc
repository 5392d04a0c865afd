// Gradients of attention layers, of every parameter and input, against central differences of the textbook's
// formulas in plain double loops.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "layers/finite_difference.h"
#include "layers/noise.h"
#include "qkv/error.h"
#include "qkv/layers.h"
#include "runtime/random.h"

namespace qkv {
namespace {

using test::Dot;
using test::Doubles;
using test::ExpectNear;
using test::Noise;
using test::NumericGradient;
using test::ToDoubles;

constexpr double kTolerance = 5e-6;  // of the largest gradient: some 80 float roundings

struct Layer {
  MultiHeadConfig config;
  int64_t kv_heads() const { return config.kv_heads.value_or(config.num_heads); }
  int64_t d_k() const { return config.d_k.value_or(config.d_out / config.num_heads); }
  int64_t d_v() const { return config.d_v.value_or(config.d_out / config.num_heads); }
  int64_t d_context() const { return config.d_context.value_or(config.d_in); }
};

// Everything that the output depends on, one after the other.
struct Values {
  Doubles x, context, w_q, w_k, w_v, w_o, b_q, b_k, b_v, b_o;
};

// y = x W^T + b for one row.
Doubles Project(const double* x, const Doubles& weight, const Doubles& bias, int64_t inputs) {
  const size_t outputs = weight.size() / static_cast<size_t>(inputs);
  Doubles y(outputs);
  for (size_t o = 0; o < outputs; ++o) {
    y[o] = bias.empty() ? 0 : bias[o];
    for (int64_t i = 0; i < inputs; ++i)
      y[o] += x[i] * weight[o * static_cast<size_t>(inputs) + static_cast<size_t>(i)];
  }
  return y;
}

struct Sequence {
  std::vector<Doubles> q, k, v;  // a row for each token
};

// What head h of query i gives, added to out (d_v).
void AddHead(const Layer& layer, const Sequence& s, int64_t b, int64_t h, size_t i,
             const std::optional<Dropout>& training, double* out) {
  const int64_t d_k = layer.d_k(), d_v = layer.d_v(), kv = h / (layer.config.num_heads / layer.kv_heads());
  const auto last = static_cast<int64_t>(layer.config.causal == Causal::kNone ? s.k.size() : i + 1);
  Doubles weights;
  double sum = 0;
  for (int64_t j = 0; j < last; ++j) {
    double score = 0;
    for (int64_t d = 0; d < d_k; ++d)
      score += s.q[i][static_cast<size_t>(h * d_k + d)] *
               s.k[static_cast<size_t>(j)][static_cast<size_t>(kv * d_k + d)];
    weights.push_back(std::exp(score / std::sqrt(static_cast<double>(d_k))));
    sum += weights.back();
  }
  const float p = layer.config.dropout;
  for (int64_t j = 0; j < last; ++j) {
    double weight = weights[static_cast<size_t>(j)] / sum;
    if (training && p > 0) {
      weight *= DropoutBits(training->seed, p).Kept(b, h, static_cast<int64_t>(i), j)
                    ? 1 / (1 - static_cast<double>(p))
                    : 0;
    }
    for (int64_t d = 0; d < d_v; ++d)
      out[d] += weight * s.v[static_cast<size_t>(j)][static_cast<size_t>(kv * d_v + d)];
  }
}

Doubles ForwardInDouble(const Layer& layer, const Values& at, const MultiHeadInput& in) {
  const Doubles& source = at.context.empty() ? at.x : at.context;
  const int64_t kv_length = at.context.empty() ? in.q_length : in.kv_length;
  Doubles out;
  for (int64_t b = 0; b < in.batch; ++b) {
    Sequence s;
    for (int64_t i = 0; i < in.q_length; ++i) {
      s.q.push_back(
          Project(at.x.data() + (b * in.q_length + i) * layer.config.d_in, at.w_q, at.b_q, layer.config.d_in));
    }
    for (int64_t j = 0; j < kv_length; ++j) {
      const double* row = source.data() + (b * kv_length + j) * layer.d_context();
      s.k.push_back(Project(row, at.w_k, at.b_k, layer.d_context()));
      s.v.push_back(Project(row, at.w_v, at.b_v, layer.d_context()));
    }
    for (size_t i = 0; i < s.q.size(); ++i) {
      Doubles heads(static_cast<size_t>(layer.config.num_heads * layer.d_v()));
      for (int64_t h = 0; h < layer.config.num_heads; ++h) {
        AddHead(layer, s, b, h, i, in.training, heads.data() + h * layer.d_v());
      }
      if (layer.config.output_projection)
        heads = Project(heads.data(), at.w_o, at.b_o, static_cast<int64_t>(heads.size()));
      out.insert(out.end(), heads.begin(), heads.end());
    }
  }
  return out;
}

MultiHeadParameters ParametersOf(const Layer& layer) {
  const MultiHeadConfig& c = layer.config;
  const int64_t q = c.num_heads * layer.d_k(), k = layer.kv_heads() * layer.d_k(),
                v = layer.kv_heads() * layer.d_v();
  MultiHeadParameters p;
  p.w_q = Noise(1, q * c.d_in, 2);
  p.w_k = Noise(2, k * layer.d_context(), 2);
  p.w_v = Noise(3, v * layer.d_context(), 2);
  if (c.output_projection) p.w_o = Noise(4, c.d_out * c.num_heads * layer.d_v(), 2);
  if (c.qkv_bias) {
    p.b_q = Noise(5, q);
    p.b_k = Noise(6, k);
    p.b_v = Noise(7, v);
  }
  if (c.output_projection && c.output_bias) p.b_o = Noise(8, c.d_out);
  return p;
}

void Check(const Layer& layer, MultiHeadInput in) {
  const MultiHeadParameters p = ParametersOf(layer);
  const std::vector<float> x = Noise(9, in.batch * in.q_length * layer.config.d_in, 2);
  const std::vector<float> context =
      layer.config.d_context ? Noise(10, in.batch * in.kv_length * layer.d_context(), 2) : std::vector<float>();
  const std::vector<float> dout = Noise(11, in.batch * in.q_length * layer.config.d_out);
  in.x = x.data();
  in.context = context.empty() ? nullptr : context.data();
  const MultiHeadGradients got = MultiHeadBackward(layer.config, p, in, dout.data());

  const Values values{ToDoubles(x),     ToDoubles(context), ToDoubles(p.w_q), ToDoubles(p.w_k),
                      ToDoubles(p.w_v), ToDoubles(p.w_o),   ToDoubles(p.b_q), ToDoubles(p.b_k),
                      ToDoubles(p.b_v), ToDoubles(p.b_o)};
  const Doubles weights = ToDoubles(dout);
  const auto expect = [&](const std::vector<float>& gradient, Doubles Values::*member, const char* name) {
    const auto loss = [&](const Doubles& at) {
      Values moved = values;
      moved.*member = at;
      return Dot(weights, ForwardInDouble(layer, moved, in));
    };
    ExpectNear(gradient, NumericGradient(loss, values.*member), kTolerance, name);
  };
  expect(got.x, &Values::x, "x");
  expect(got.context, &Values::context, "context");
  expect(got.parameters.w_q, &Values::w_q, "w_q");
  expect(got.parameters.w_k, &Values::w_k, "w_k");
  expect(got.parameters.w_v, &Values::w_v, "w_v");
  expect(got.parameters.w_o, &Values::w_o, "w_o");
  expect(got.parameters.b_q, &Values::b_q, "b_q");
  // Keys' biases move all scores of a row alike, so their gradient is zero but for rounding.
  for (float value : got.parameters.b_k) EXPECT_NEAR(value, 0, 1e-5);
  expect(got.parameters.b_v, &Values::b_v, "b_v");
  expect(got.parameters.b_o, &Values::b_o, "b_o");
}

MultiHeadInput Size(int64_t batch, int64_t q_length, int64_t kv_length = 0) {
  MultiHeadInput in;
  in.batch = batch;
  in.q_length = q_length;
  in.kv_length = kv_length;
  return in;
}

TEST(MultiHeadBackward, OneHead) { Check({MultiHeadAttention::OneHead(5, 3, 4, 6)}, Size(2, 4)); }

TEST(MultiHeadBackward, CausalHead) { Check({MultiHeadAttention::CausalHead(5, 4, 8, 0, true)}, Size(2, 5)); }

TEST(MultiHeadBackward, CausalMultiHead) {
  Check({MultiHeadAttention::CausalMultiHead(6, 6, 8, 3, 0, false)}, Size(2, 5));
  Check({MultiHeadAttention::CausalMultiHead(5, 6, 8, 2, 0, true)}, Size(1, 8));
}

TEST(MultiHeadBackward, GroupedHeads) {
  MultiHeadConfig config = MultiHeadAttention::CausalMultiHead(6, 8, 8, 4, 0, true);
  config.kv_heads = 2;
  Check({config}, Size(2, 4));
}

TEST(MultiHeadBackward, CrossAttention) {
  MultiHeadConfig config;
  config.d_in = 4;
  config.d_out = 6;
  config.num_heads = 2;
  config.d_context = 5;
  config.qkv_bias = true;
  Check({config}, Size(2, 3, 4));
}

TEST(MultiHeadBackward, Dropout) {
  MultiHeadInput in = Size(2, 6);
  in.training = Dropout{42};
  Check({MultiHeadAttention::CausalMultiHead(6, 6, 8, 3, 0.4f, false)}, in);
}

TEST(MultiHeadBackward, AStackIsItsHeads) {
  const MultiHeadConfig head = MultiHeadAttention::CausalHead(5, 3, 8, 0.3f, true);
  const std::vector<float> x = Noise(9, 2 * 4 * 5), dout = Noise(11, 2 * 4 * 2 * 3);
  std::vector<MultiHeadParameters> heads(2, ParametersOf({head}));
  heads[1].w_q = Noise(20, 15);
  MultiHeadInput in = Size(2, 4);
  in.x = x.data();
  in.training = Dropout{7};
  const auto got = MultiHeadStackBackward(head, heads, in, dout.data());
  const auto half = [&](int64_t h) {
    std::vector<float> part;
    for (int64_t r = 0; r < 8; ++r)
      part.insert(part.end(), dout.data() + r * 6 + h * 3, dout.data() + r * 6 + h * 3 + 3);
    return part;
  };
  const MultiHeadGradients first = MultiHeadBackward(head, heads[0], in, half(0).data());
  in.training = Dropout{8};
  const MultiHeadGradients second = MultiHeadBackward(head, heads[1], in, half(1).data());
  ASSERT_EQ(got.size(), 2u);
  EXPECT_EQ(got[0].parameters.w_q, first.parameters.w_q);
  EXPECT_EQ(got[1].parameters.w_q, second.parameters.w_q);
  EXPECT_EQ(got[1].parameters.b_v, second.parameters.b_v);
  for (size_t i = 0; i < x.size(); ++i) EXPECT_EQ(got[0].x[i], first.x[i] + second.x[i]);
}

TEST(MultiHeadBackward, SimplifiedAttention) {
  constexpr int64_t kBatch = 2, kLength = 4, kWidth = 3;
  const std::vector<float> x = Noise(1, kBatch * kLength * kWidth, 2),
                           dout = Noise(2, kBatch * kLength * kWidth);
  for (const bool causal : {false, true}) {
    std::vector<float> dx(x.size());
    SimplifiedAttentionBackward(x.data(), dout.data(), kBatch, kLength, kWidth, causal, dx.data());
    // One head whose projections are identities, but for the scale: sqrt(d_k) goes into the queries.
    Layer layer{MultiHeadAttention::CausalHead(kWidth, kWidth, kLength, 0, false)};
    layer.config.causal = causal ? Causal::kTopLeft : Causal::kNone;
    Doubles identity(9), scaled(9);
    for (size_t c = 0; c < 3; ++c) identity[4 * c] = 1, scaled[4 * c] = std::sqrt(3.0);
    const auto loss = [&](const Doubles& at) {
      const Values values{at, {}, scaled, identity, identity, {}, {}, {}, {}, {}};
      return Dot(ToDoubles(dout), ForwardInDouble(layer, values, Size(kBatch, kLength)));
    };
    ExpectNear(dx, NumericGradient(loss, ToDoubles(x)), kTolerance, "dx");
  }
}

TEST(MultiHeadBackward, BadInputIsRefused) {
  const Layer layer{MultiHeadAttention::CausalMultiHead(6, 6, 4, 3, 0, false)};
  const MultiHeadParameters p = ParametersOf(layer);
  const std::vector<float> x(5 * 6), dout(5 * 6);
  MultiHeadInput longer = Size(1, 5), crossed = Size(1, 2, 2);
  longer.x = crossed.x = crossed.context = x.data();
  EXPECT_THROW(MultiHeadBackward(layer.config, p, longer, dout.data()), Error);
  EXPECT_THROW(MultiHeadBackward(layer.config, p, crossed, dout.data()), Error);
  MultiHeadParameters fewer = p;
  fewer.w_v.pop_back();
  EXPECT_THROW(MultiHeadBackward(layer.config, fewer, Size(1, 0), dout.data()), Error);
}

}  // namespace
}  // namespace qkv
