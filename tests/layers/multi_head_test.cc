#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <numeric>
#include <string>

#include "layers/noise.h"
#include "qkv/error.h"
#include "qkv/layers.h"
#include "support/tolerance.h"

namespace qkv {
namespace {

using test::Noise;
using testing::FloatNear;
using testing::HasSubstr;
using testing::Pointwise;
using Floats = std::vector<float>;

Floats Rows(const Floats& matrix, int64_t columns, int64_t first, int64_t count) {
  return {matrix.begin() + first * columns, matrix.begin() + (first + count) * columns};
}

MultiHeadParameters ParametersFor(const MultiHeadConfig& c) {
  const int64_t head = c.d_out / c.num_heads, d_k = c.d_k.value_or(head), d_v = c.d_v.value_or(head);
  const int64_t kv_heads = c.kv_heads.value_or(c.num_heads), d_context = c.d_context.value_or(c.d_in);
  MultiHeadParameters p;
  p.w_q = Noise(1, c.num_heads * d_k * c.d_in);
  p.w_k = Noise(2, kv_heads * d_k * d_context);
  p.w_v = Noise(3, kv_heads * d_v * d_context);
  if (c.output_projection) p.w_o = Noise(4, c.d_out * c.num_heads * d_v);
  if (c.qkv_bias) {
    p.b_q = Noise(5, c.num_heads * d_k);
    p.b_k = Noise(6, kv_heads * d_k);
    p.b_v = Noise(7, kv_heads * d_v);
  }
  return p;
}

// The fused layer's parameters of one head, for a single head of width d_out / num_heads.
MultiHeadParameters HeadOf(const MultiHeadParameters& fused, const MultiHeadConfig& c, int64_t h) {
  const int64_t width = c.d_out / c.num_heads;
  MultiHeadParameters p;
  p.w_q = Rows(fused.w_q, c.d_in, h * width, width);
  p.w_k = Rows(fused.w_k, c.d_in, h * width, width);
  p.w_v = Rows(fused.w_v, c.d_in, h * width, width);
  p.b_q = Rows(fused.b_q, 1, h * width, width);
  p.b_k = Rows(fused.b_k, 1, h * width, width);
  p.b_v = Rows(fused.b_v, 1, h * width, width);
  return p;
}

Floats Forward(const MultiHeadAttention& layer, const Floats& x, int64_t batch, int64_t length,
               std::optional<Dropout> training = {}) {
  Floats out(static_cast<size_t>(batch * length * layer.config().d_out), NAN);
  layer.Forward(x.data(), batch, length, out.data(), training);
  return out;
}

std::string MessageOf(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    return error.what();
  }
  return "no error";
}

// Relative to the outputs' size: rows and parameters are rounded to 8 bits at each of three steps.
void ExpectNearInBFloat16(const Floats& narrow, const Floats& wide) {
  double difference = 0, size = 0;
  for (size_t i = 0; i < wide.size(); ++i) {
    difference += std::pow(narrow[i] - wide[i], 2);
    size += std::pow(wide[i], 2);
  }
  EXPECT_GT(difference, 0) << "the same as float32";
  EXPECT_LT(std::sqrt(difference / size), 3 * test::Epsilon(DType::kBF16));
}

TEST(MultiHead, InBFloat16IsCloseToFloat32) {
  constexpr int64_t kBatch = 2, kLength = 19;
  for (bool projected : {true, false}) {
    auto config = MultiHeadAttention::CausalMultiHead(48, 64, 32, 4, 0, true, projected);
    const auto parameters = ParametersFor(config);
    const Floats x = Noise(8, kBatch * kLength * 48);
    const Floats wide = Forward(MultiHeadAttention(config, parameters), x, kBatch, kLength);
    config.dtype = DType::kBF16;
    ExpectNearInBFloat16(Forward(MultiHeadAttention(config, parameters), x, kBatch, kLength), wide);
  }
}

TEST(MultiHead, CrossesInBFloat16) {
  MultiHeadConfig config;
  config.d_in = config.d_out = 32;
  config.num_heads = 4;
  config.d_context = 24;
  const auto parameters = ParametersFor(config);
  const Floats x = Noise(8, 5 * 32), context = Noise(9, 7 * 24);
  Floats wide(5 * 32), narrow(5 * 32), weights(4 * 5 * 7);
  MultiHeadAttention(config, parameters).Cross(x.data(), context.data(), 1, 5, 7, wide.data());
  config.dtype = DType::kBF16;
  MultiHeadAttention(config, parameters).Cross(x.data(), context.data(), 1, 5, 7, narrow.data(), {}, weights.data());
  ExpectNearInBFloat16(narrow, wide);
  for (size_t row = 0; row < weights.size(); row += 7) {
    EXPECT_NEAR(std::accumulate(weights.begin() + row, weights.begin() + row + 7, 0.0), 1, 1e-5);
  }
}

// The views' memory is the caller's, and is not needed once the layer is there.
TEST(MultiHead, PacksParametersFromViews) {
  const auto config = MultiHeadAttention::CausalMultiHead(24, 32, 16, 4, 0, true);
  auto parameters = ParametersFor(config);
  const Floats x = Noise(8, 10 * 24);
  const MultiHeadAttention layer(config, MultiHeadParameterViews(parameters));
  const Floats expected = Forward(layer, x, 1, 10);
  for (Floats* values : {&parameters.w_q, &parameters.w_k, &parameters.w_v, &parameters.w_o, &parameters.b_q}) {
    std::fill(values->begin(), values->end(), NAN);
  }
  EXPECT_EQ(Forward(layer, x, 1, 10), expected);
}

TEST(MultiHead, AStackOfHeadsAndTheFusedLayerAgree) {
  constexpr int64_t kBatch = 2, kLength = 13;
  const auto fused_config = MultiHeadAttention::CausalMultiHead(24, 32, 16, 4, 0, true, false);
  const auto parameters = ParametersFor(fused_config);
  const auto head_config = MultiHeadAttention::CausalHead(24, 8, 16, 0, true);
  std::vector<MultiHeadParameters> heads;
  for (int64_t h = 0; h < 4; ++h) heads.push_back(HeadOf(parameters, fused_config, h));
  const MultiHeadStack stack(head_config, heads);
  ASSERT_EQ(stack.width(), 32);
  const Floats x = Noise(9, kBatch * kLength * 24, 2);
  Floats stacked(kBatch * kLength * 32, NAN);
  stack.Forward(x.data(), kBatch, kLength, stacked.data());
  EXPECT_THAT(Forward(MultiHeadAttention(fused_config, parameters), x, kBatch, kLength),
              Pointwise(FloatNear(test::kLayerOutput), stacked));
}

TEST(MultiHead, AStackOfWideHeadsIsAsWideAsAllOfThem) {
  const auto config = MultiHeadAttention::CausalHead(6, 10, 8, 0, false);
  const MultiHeadStack stack(config, std::vector(3, ParametersFor(config)));
  EXPECT_EQ(stack.width(), 30);
  const Floats x = Noise(9, 2 * 5 * 6);
  Floats out(2 * 5 * 30, NAN);
  stack.Forward(x.data(), 2, 5, out.data());
  EXPECT_TRUE(std::none_of(out.begin(), out.end(), [](float v) { return std::isnan(v); }));
}

// (B, T, d_in) -> (B, H, T, T) weights -> (B, T, d_out): every row of weights sums to 1 and ends at its own
// token.
TEST(MultiHead, CausalWeightsAreWhatTheirShapeSays) {
  constexpr int64_t kBatch = 2, kHeads = 3, kLength = 7;
  const auto config = MultiHeadAttention::CausalMultiHead(12, 18, 7, kHeads, 0, false);
  const MultiHeadAttention layer(config, ParametersFor(config));
  const Floats x = Noise(9, kBatch * kLength * 12, 2);
  Floats out(kBatch * kLength * 18, NAN), weights(kBatch * kHeads * kLength * kLength, NAN);
  layer.Forward(x.data(), kBatch, kLength, out.data(), {}, weights.data());
  for (int64_t row = 0; row < kBatch * kHeads * kLength; ++row) {
    double sum = 0;
    for (int64_t j = 0; j < kLength; ++j) {
      const float weight = weights[static_cast<size_t>(row * kLength + j)];
      if (j > row % kLength) {
        EXPECT_EQ(weight, 0.0f) << "a later token is seen";
      } else {
        EXPECT_GT(weight, 0.0f);
      }
      sum += weight;
    }
    EXPECT_NEAR(sum, 1, 1e-6);
  }
  EXPECT_TRUE(std::none_of(out.begin(), out.end(), [](float v) { return std::isnan(v); }));
}

TEST(MultiHead, ACausalTokenDoesNotDependOnLaterOnes) {
  const auto config = MultiHeadAttention::CausalMultiHead(12, 12, 9, 2, 0, true);
  const MultiHeadAttention layer(config, ParametersFor(config));
  Floats x = Noise(9, 9 * 12, 2);
  const Floats whole = Forward(layer, x, 1, 9);
  for (size_t i = 5 * 12; i < x.size(); ++i) x[i] += 100;
  const Floats changed = Forward(layer, x, 1, 9);
  EXPECT_THAT(Rows(changed, 12, 0, 5), Pointwise(FloatNear(test::kLayerOutput), Rows(whole, 12, 0, 5)));
  EXPECT_NE(Rows(changed, 12, 5, 4), Rows(whole, 12, 5, 4));
}

// Without positions a bidirectional layer does not know the order of its tokens: reversed in, reversed out.
TEST(MultiHead, BidirectionalAttentionSeesEveryTokenAlike) {
  MultiHeadConfig config;
  config.d_in = config.d_out = 12;
  config.num_heads = 3;
  const MultiHeadAttention layer(config, ParametersFor(config));
  const Floats x = Noise(9, 8 * 12, 2);
  Floats reversed;
  for (int64_t t = 7; t >= 0; --t) {
    const Floats row = Rows(x, 12, t, 1);
    reversed.insert(reversed.end(), row.begin(), row.end());
  }
  const Floats out = Forward(layer, x, 1, 8), back = Forward(layer, reversed, 1, 8);
  for (int64_t t = 0; t < 8; ++t) {
    EXPECT_THAT(Rows(back, 12, 7 - t, 1), Pointwise(FloatNear(test::kLayerOutput), Rows(out, 12, t, 1)));
  }
}

// Two query heads that share a KV head are two heads whose W_K and W_V are the same.
TEST(MultiHead, QueryHeadsShareKeysAndValues) {
  MultiHeadConfig shared;
  shared.d_in = shared.d_out = 16;
  shared.num_heads = 4;
  shared.kv_heads = 2;
  MultiHeadConfig full = shared;
  full.kv_heads.reset();
  const MultiHeadParameters parameters = ParametersFor(shared);
  MultiHeadParameters repeated = parameters;
  for (Floats MultiHeadParameters::*matrix : {&MultiHeadParameters::w_k, &MultiHeadParameters::w_v}) {
    (repeated.*matrix).clear();
    for (int64_t h = 0; h < 4; ++h) {
      const Floats rows = Rows(parameters.*matrix, 16, h / 2 * 4, 4);
      (repeated.*matrix).insert((repeated.*matrix).end(), rows.begin(), rows.end());
    }
  }
  const Floats x = Noise(9, 6 * 16, 2);
  EXPECT_THAT(Forward(MultiHeadAttention(shared, parameters), x, 1, 6),
              Pointwise(FloatNear(test::kLayerOutput), Forward(MultiHeadAttention(full, repeated), x, 1, 6)));
}

TEST(MultiHead, CrossAttentionOverTheSameSequenceIsSelfAttention) {
  MultiHeadConfig self;
  self.d_in = self.d_out = 20;
  self.num_heads = 5;
  self.qkv_bias = true;
  MultiHeadConfig cross = self;
  cross.d_context = 20;
  const MultiHeadParameters parameters = ParametersFor(self);
  const Floats x = Noise(9, 2 * 6 * 20, 2), expected = Forward(MultiHeadAttention(self, parameters), x, 2, 6);
  EXPECT_THAT(Forward(MultiHeadAttention(cross, parameters), x, 2, 6),
              Pointwise(FloatNear(test::kLayerOutput), expected));
}

// The textbook's other order: softmax over all keys, mask, divide by the row's sum. A second softmax is not it.
TEST(MultiHead, DividingAfterTheMaskIsTheSameAndASecondSoftmaxIsNot) {
  const std::array scores{0.0f, 2.0f, 5.0f};  // the third key is masked
  const auto softmax = [](Floats s) {
    double sum = 0;
    for (float v : s) sum += std::exp(static_cast<double>(v));
    for (float& v : s) v = static_cast<float>(std::exp(static_cast<double>(v)) / sum);
    return s;
  };
  // One query of width 1 whose scores are the keys; the mask comes before the softmax.
  const float q = 1;
  const std::array<bool, 3> visible{true, true, false};
  const std::array values{1.0f, 0.0f, 0.0f};
  AttentionOptions options;
  options.scale = 1.0f;
  options.mask = ConstTensor(visible.data(), Shape{1, 3});
  CaptureRequest request;
  request.rows = {0};
  float out = 0;
  const Capture capture = AttentionWithCapture(
      ConstTensor(&q, Shape{1, 1, 1, 1}), ConstTensor(scores.data(), Shape{1, 1, 3, 1}),
      ConstTensor(values.data(), Shape{1, 1, 3, 1}), options, request, Tensor(&out, Shape{1, 1, 1, 1}));

  Floats divided = softmax({scores.begin(), scores.end()});
  divided[2] = 0;
  const float sum = divided[0] + divided[1];
  for (float& weight : divided) weight /= sum;
  EXPECT_THAT(capture.row_values, Pointwise(FloatNear(1e-6f), divided));
  EXPECT_NEAR(capture.row_values[0], 0.119f, 5e-4);
  EXPECT_NEAR(capture.row_values[1], 0.881f, 5e-4);

  const Floats twice = softmax(softmax({0.0f, 2.0f}));
  EXPECT_NEAR(twice[0], 0.318f, 5e-4);
  EXPECT_NEAR(twice[1], 0.682f, 5e-4);
}

TEST(MultiHead, DropoutIsForTrainingOnly) {
  const auto dropping = MultiHeadAttention::CausalMultiHead(16, 16, 64, 2, 0.5f, false);
  const auto plain = MultiHeadAttention::CausalMultiHead(16, 16, 64, 2, 0, false);
  const auto parameters = ParametersFor(dropping);
  const MultiHeadAttention layer(dropping, parameters);
  const Floats x = Noise(9, 64 * 16, 2);
  const Floats evaluated = Forward(layer, x, 1, 64);
  EXPECT_EQ(evaluated, Forward(MultiHeadAttention(plain, parameters), x, 1, 64));
  EXPECT_EQ(evaluated, Forward(layer, x, 1, 64));
  const Floats trained = Forward(layer, x, 1, 64, Dropout{7});
  EXPECT_NE(trained, evaluated);
  EXPECT_EQ(trained, Forward(layer, x, 1, 64, Dropout{7}));
  EXPECT_NE(trained, Forward(layer, x, 1, 64, Dropout{8}));
}

// All values 1 and all weights 1 / T: an output is (kept weights) / (1 - p), binomial around 1.
TEST(MultiHead, DropoutKeepsTheMean) {
  constexpr int64_t kLength = 256;
  constexpr double kP = 0.25;
  MultiHeadConfig config = MultiHeadAttention::OneHead(1, 1, 1, 1);
  config.dropout = static_cast<float>(kP);
  config.output_projection = false;
  MultiHeadParameters parameters;
  parameters.w_q = {0};
  parameters.w_k = {0};
  parameters.w_v = {1};
  const MultiHeadAttention layer(config, parameters);
  const Floats out = Forward(layer, Floats(kLength, 1.0f), 1, kLength, Dropout{3});
  double mean = 0, variance = 0;
  for (float v : out) mean += v / kLength;
  for (float v : out) variance += (v - mean) * (v - mean) / (kLength - 1);
  const double expected_variance = kP / (1 - kP) / kLength;
  EXPECT_NEAR(mean, 1, 5 * std::sqrt(expected_variance / kLength));
  EXPECT_NEAR(variance / expected_variance, 1, 5 * std::sqrt(2.0 / kLength));
}

TEST(MultiHead, HeadsOfAStackDropDifferentWeights) {
  auto config = MultiHeadAttention::CausalHead(8, 8, 32, 0.5f, false);
  const MultiHeadStack stack(config, std::vector(2, ParametersFor(config)));
  const Floats x = Noise(9, 32 * 8);
  Floats out(32 * 16);
  stack.Forward(x.data(), 1, 32, out.data(), Dropout{1});
  bool differ = false;
  for (size_t t = 0; t < 32; ++t)
    differ = differ || !std::equal(&out[t * 16], &out[t * 16 + 8], &out[t * 16 + 8]);
  EXPECT_TRUE(differ);
}

TEST(MultiHead, NoTokensGiveNoOutput) {
  const auto config = MultiHeadAttention::CausalMultiHead(8, 8, 4, 2, 0, false);
  const MultiHeadAttention layer(config, ParametersFor(config));
  layer.Forward(nullptr, 0, 3, nullptr);
  layer.Forward(nullptr, 2, 0, nullptr);
}

TEST(MultiHead, RefusesWhatContradicts) {
  const auto construct = [](const std::function<void(MultiHeadConfig&, MultiHeadParameters&)>& spoil) {
    MultiHeadConfig config;
    config.d_in = config.d_out = 12;
    config.num_heads = 3;
    MultiHeadParameters parameters = ParametersFor(config);
    spoil(config, parameters);
    return MessageOf([&] { MultiHeadAttention layer(config, parameters); });
  };
  EXPECT_EQ(construct([](auto&, auto&) {}), "no error");
  EXPECT_THAT(construct([](auto& c, auto&) { c.d_out = 13; }),
              testing::AllOf(HasSubstr("d_out"), HasSubstr("13")));
  EXPECT_THAT(construct([](auto& c, auto&) { c.d_in = 0; }), HasSubstr("d_in"));
  EXPECT_THAT(construct([](auto& c, auto&) { c.num_heads = 0; }), HasSubstr("num_heads"));
  EXPECT_THAT(construct([](auto& c, auto&) { c.kv_heads = 2; }), HasSubstr("kv_heads"));
  EXPECT_THAT(construct([](auto& c, auto&) { c.dropout = 1; }), HasSubstr("dropout"));
  EXPECT_THAT(construct([](auto& c, auto&) { c.dropout = NAN; }), HasSubstr("dropout"));
  EXPECT_THAT(construct([](auto& c, auto&) { c.dtype = DType::kF16; }), HasSubstr("float32 or bfloat16"));
  EXPECT_THAT(construct([](auto& c, auto&) { c.d_v = 5, c.output_projection = false; }), HasSubstr("d_out"));
  EXPECT_THAT(construct([](auto&, auto& p) { p.w_k.pop_back(); }),
              testing::AllOf(HasSubstr("w_k"), HasSubstr("143")));
  EXPECT_THAT(construct([](auto&, auto& p) { p.b_v = {1}; }), HasSubstr("b_v"));
  EXPECT_THAT(construct([](auto&, auto& p) { p.b_o = {1}; }), HasSubstr("b_o"));
  EXPECT_THAT(construct([](auto& c, auto& p) { c.output_bias = false, p.b_o.resize(12); }), HasSubstr("b_o"));
  EXPECT_THAT(MessageOf([] { MultiHeadStack stack({}, {}); }), HasSubstr("heads"));
}

TEST(MultiHead, SaysThatASequenceIsTooLong) {
  const auto config = MultiHeadAttention::CausalMultiHead(8, 8, 4, 2, 0, false);
  const MultiHeadAttention layer(config, ParametersFor(config));
  const Floats x(5 * 8);
  Floats out(5 * 8);
  EXPECT_THAT(MessageOf([&] { layer.Forward(x.data(), 1, 5, out.data()); }),
              testing::AllOf(HasSubstr("context_length"), HasSubstr("4"), HasSubstr("5")));
  layer.Forward(x.data(), 1, 4, out.data());
}

TEST(MultiHead, KeepsSelfAndCrossAttentionApart) {
  MultiHeadConfig config;
  config.d_in = config.d_out = 8;
  const Floats x(8);
  Floats out(8);
  EXPECT_THAT(
      MessageOf([&] {
        MultiHeadAttention(config, ParametersFor(config)).Cross(x.data(), x.data(), 1, 1, 1, out.data());
      }),
      HasSubstr("d_context"));
  config.d_context = 4;
  EXPECT_THAT(
      MessageOf([&] { MultiHeadAttention(config, ParametersFor(config)).Forward(x.data(), 1, 1, out.data()); }),
      HasSubstr("d_context"));
}

}  // namespace
}  // namespace qkv
