// Against PyTorch: tests/golden/layers/make.py says what was run.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string>

#include "layers/noise.h"
#include "qkv/layers.h"
#include "support/tolerance.h"

namespace qkv {
namespace {

using nlohmann::json;
using test::Noise;

const json& Golden() {
  static const json golden = json::parse(std::ifstream(QKV_GOLDEN "/layers/layers.json"));
  return golden;
}

void ExpectSample(const std::vector<float>& got, const json& sample, double tolerance, const char* what) {
  SCOPED_TRACE(what);
  ASSERT_EQ(got.size(), sample["size"].get<size_t>());
  const auto picks = sample["picks"].get<std::vector<size_t>>();
  const auto values = sample["values"].get<std::vector<double>>();
  ASSERT_EQ(picks.size(), 48u);
  for (size_t i = 0; i < picks.size(); ++i)
    EXPECT_NEAR(got[picks[i]], values[i], tolerance) << "element " << picks[i];
  const double sum = std::accumulate(got.begin(), got.end(), 0.0);
  EXPECT_NEAR(sum, sample["sum"].get<double>(), tolerance * std::sqrt(static_cast<double>(got.size())));
}

MultiHeadConfig ConfigOf(const json& test) {
  MultiHeadConfig config;
  config.d_in = config.d_out = test["width"];
  config.num_heads = test["heads"];
  config.qkv_bias = true;
  if (test["context"] > 0) config.d_context = test["context"];
  if (test["causal"]) config.causal = Causal::kTopLeft;
  return config;
}

MultiHeadParameters ParametersOf(const json& test) {
  const int64_t width = test["width"], context = test["context"] > 0 ? test["context"] : test["width"];
  return {Noise(1, width * width, 0.25f),
          Noise(2, width * context, 0.25f),
          Noise(3, width * context, 0.25f),
          Noise(4, width * width, 0.25f),
          Noise(5, width),
          Noise(6, width),
          Noise(7, width),
          Noise(8, width)};
}

TEST(MultiHeadGolden, EqualsPyTorchs) {
  for (const json& test : Golden().at("multi_head")) {
    SCOPED_TRACE(test["name"].get<std::string>());
    const MultiHeadAttention layer(ConfigOf(test), ParametersOf(test));
    const int64_t batch = test["batch"], q_length = test["q_length"], kv_length = test["kv_length"];
    const int64_t width = test["width"], context = test["context"];
    const std::vector<float> x = Noise(9, batch * q_length * width, 4);
    const std::vector<float> other = Noise(10, batch * kv_length * context, 4);
    std::vector<float> out(static_cast<size_t>(batch * q_length * width));
    std::vector<float> weights(
        static_cast<size_t>(batch * test["heads"].get<int64_t>() * q_length * kv_length));
    if (context > 0) {
      layer.Cross(x.data(), other.data(), batch, q_length, kv_length, out.data(), {}, weights.data());
    } else {
      layer.Forward(x.data(), batch, q_length, out.data(), {}, weights.data());
    }
    ExpectSample(out, test["out"], test::kLayerOutput, "out");
    ExpectSample(weights, test["weights"], test::kModelWeights, "weights");
  }
}

TEST(MultiHeadGolden, OneHeadWithValuesOfAnotherWidth) {
  for (const json& test : Golden().at("one_head")) {
    const int64_t d_in = test["d_in"], d_k = test["d_k"], d_v = test["d_v"], d_out = test["d_out"];
    const int64_t length = test["length"];
    MultiHeadParameters parameters;
    parameters.w_q = Noise(1, d_k * d_in);
    parameters.w_k = Noise(2, d_k * d_in);
    parameters.w_v = Noise(3, d_v * d_in);
    parameters.w_o = Noise(4, d_out * d_v);
    const MultiHeadAttention layer(MultiHeadAttention::OneHead(d_in, d_k, d_v, d_out), parameters);
    const std::vector<float> x = Noise(9, length * d_in, 4);
    std::vector<float> out(static_cast<size_t>(length * d_out)), weights(static_cast<size_t>(length * length));
    layer.Forward(x.data(), 1, length, out.data(), {}, weights.data());
    ExpectSample(out, test["out"], test::kLayerOutput, "out");
    ExpectSample(weights, test["weights"], test::kModelWeights, "weights");
  }
}

TEST(MultiHeadGolden, SimplifiedAttention) {
  for (const json& test : Golden().at("simplified")) {
    const int64_t batch = test["batch"], length = test["length"], width = test["width"];
    const std::vector<float> x = Noise(9, batch * length * width, 2);
    std::vector<float> out(x.size()), weights(static_cast<size_t>(batch * length * length));
    SimplifiedAttention(x.data(), batch, length, width, test["causal"], out.data(), weights.data());
    ExpectSample(out, test["out"], test::kLayerOutput, "out");
    ExpectSample(weights, test["weights"], test::kModelWeights, "weights");
  }
}

}  // namespace
}  // namespace qkv
