// Rotary embeddings against transformers (tests/golden/rope/make.py says what was run), against the formula in
// double precision, and against exact cosines of large angles.
#include "qkv/rope.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <functional>
#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string>

#include "kernels/load.h"
#include "qkv/error.h"
#include "runtime/random.h"
#include "support/tolerance.h"

namespace qkv {
namespace {

using nlohmann::json;

const json& Golden() {
  static const json golden = json::parse(std::ifstream(QKV_GOLDEN "/rope/rope.json"));
  return golden;
}

YarnRope YarnOf(const json& settings) {
  YarnRope yarn;
  yarn.factor = settings.at("factor");
  yarn.trained_length = settings.at("original_max_position_embeddings");
  yarn.beta_fast = settings.value("beta_fast", yarn.beta_fast);
  yarn.beta_slow = settings.value("beta_slow", yarn.beta_slow);
  if (settings.contains("attention_factor")) yarn.amplitude = settings.at("attention_factor").get<double>();
  if (settings.contains("mscale")) yarn.mscale = settings.at("mscale").get<double>();
  if (settings.contains("mscale_all_dim")) yarn.mscale_all_dim = settings.at("mscale_all_dim").get<double>();
  if (!settings.value("truncate", true)) yarn.ramp = YarnRope::Ramp::kExact;
  return yarn;
}

RopeConfig ConfigOf(const json& test) {
  const json& settings = test.at("settings");
  const std::string type = settings.at("rope_type");
  RopeConfig config;
  config.rotary_dim =
      static_cast<int64_t>(test.at("head_dim").get<double>() * settings.value("partial_rotary_factor", 1.0));
  config.base = settings.at("rope_theta");
  if (type == "linear") config.scaling = LinearRope{settings.at("factor")};
  if (type == "dynamic")
    config.scaling = DynamicNtkRope{settings.at("factor"), test.at("trained_length"), test.at("length")};
  if (type == "yarn") config.scaling = YarnOf(settings);
  if (type == "llama3") {
    config.scaling =
        Llama3Rope{settings.at("factor"), settings.at("low_freq_factor"), settings.at("high_freq_factor"),
                   settings.at("original_max_position_embeddings")};
  }
  return config;
}

TEST(RopeFrequencies, EqualTransformers) {
  ASSERT_EQ(Golden().at("frequencies").size(), 12u);
  for (const json& test : Golden().at("frequencies")) {
    SCOPED_TRACE(test.at("name").get<std::string>());
    const RopeFrequencies got = MakeRopeFrequencies(ConfigOf(test));
    const auto expected = test.at("frequencies").get<std::vector<double>>();
    ASSERT_EQ(got.frequencies.size(), expected.size());
    for (size_t i = 0; i < expected.size(); ++i) {
      EXPECT_NEAR(got.frequencies[i], expected[i], test::kFrequency * expected[i]) << "pair " << i;
    }
    EXPECT_NEAR(got.amplitude, test.at("amplitude").get<double>(), test::kDouble);
  }
}

// The slowest pair of the stretched base is the linear one's, the fastest is left alone.
TEST(RopeFrequencies, NtkStretchesTheSlowestPairByTheFactor) {
  const RopeFrequencies plain = MakeRopeFrequencies({64});
  const RopeFrequencies ntk = MakeRopeFrequencies({64, 10000, NtkRope{4}});
  EXPECT_EQ(ntk.frequencies.front(), 1);
  EXPECT_NEAR(ntk.frequencies.back(), plain.frequencies.back() / 4, test::kDouble);
}

// Llama's and GPT-J's own code; the two pairings of the same frequencies.
TEST(RotaryEmbed, EqualsTransformers) {
  const json& golden = Golden().at("rotations");
  const auto x = golden.at("x").get<std::vector<float>>();
  const Shape shape{1, 2, 3, 8};
  const RopeFrequencies frequencies = MakeRopeFrequencies({8, golden.at("base").get<double>()});
  for (const auto& [name, pairing] :
       {std::pair{"halves", RopePairing::kHalf}, std::pair{"neighbours", RopePairing::kAdjacent}}) {
    SCOPED_TRACE(name);
    std::vector<float> out(x.size());
    RotaryEmbed(ConstTensor(x.data(), shape), frequencies, {.pairing = pairing}, Tensor(out.data(), shape));
    EXPECT_THAT(out, testing::Pointwise(testing::FloatNear(test::kRotation),
                                        golden.at(name).get<std::vector<float>>()));
  }
}

// A mixed-up pairing turns other channels: fluent nonsense in a model, and here another vector.
TEST(RotaryEmbed, PairingsTurnDifferentChannels) {
  const std::vector<float> x{1, 0, 0, 0};
  std::vector<float> out(4);
  const auto turned = [&](RopePairing pairing) {
    RotaryEmbed(ConstTensor(x.data(), {1, 1, 1, 4}), RopeFrequencies{{1, 0.01}},
                {.pairing = pairing, .offset = std::vector<int64_t>{1}}, Tensor(out.data(), {1, 1, 1, 4}));
    return out;
  };
  const float cos1 = 0.5403023f, sin1 = 0.8414710f;
  EXPECT_THAT(turned(RopePairing::kAdjacent),
              testing::ElementsAre(testing::FloatEq(cos1), testing::FloatEq(sin1), 0, 0));
  EXPECT_THAT(turned(RopePairing::kHalf),
              testing::ElementsAre(testing::FloatEq(cos1), 0, testing::FloatEq(sin1), 0));
}

TEST(RopeTable, LargePositionsAreExact) {
  const std::vector<int64_t> positions{1'000'000, 1'000'001, -1'000'000, int64_t{1} << 53};
  const RopeTable table = MakeRopeTable({{1}}, positions);
  EXPECT_THAT(table.cos, testing::ElementsAre(testing::FloatEq(0.93675213f), testing::FloatEq(0.80063871f),
                                              testing::FloatEq(0.93675213f), testing::FloatEq(-0.52851178f)));
  EXPECT_THAT(table.sin, testing::ElementsAre(testing::FloatEq(-0.34999350f), testing::FloatEq(0.59914744f),
                                              testing::FloatEq(0.34999350f), testing::FloatEq(-0.84892596f)));
}

// q . k depends on the distance alone, a million tokens into a text as at its begin.
TEST(RotaryEmbed, ProductsDependOnTheDistance) {
  const int64_t d = 64;
  std::vector<float> q(64), k(64), turned_q(64), turned_k(64);
  for (size_t c = 0; c < 64; ++c)
    q[c] = std::sin(static_cast<float>(c)), k[c] = std::cos(static_cast<float>(3 * c));
  const RopeFrequencies frequencies = MakeRopeFrequencies({d});
  const Shape shape{1, 1, 1, d};
  const auto product = [&](int64_t q_position, int64_t k_position) {
    RotaryEmbed(ConstTensor(q.data(), shape), frequencies, {.offset = std::vector{q_position}},
                Tensor(turned_q.data(), shape));
    RotaryEmbed(ConstTensor(k.data(), shape), frequencies, {.offset = std::vector{k_position}},
                Tensor(turned_k.data(), shape));
    return std::inner_product(turned_q.begin(), turned_q.end(), turned_k.begin(), 0.0);
  };
  const double sizes = std::sqrt(std::inner_product(q.begin(), q.end(), q.begin(), 0.0) *
                                 std::inner_product(k.begin(), k.end(), k.begin(), 0.0));
  for (int64_t distance : {0, 1, 17, 1000}) {
    EXPECT_NEAR(product(1'000'000 + distance, 1'000'000), product(distance, 0), test::kRotation * sizes)
        << distance;
  }
}

// What the operator should give, in double precision, rounded once.
double Expected(const std::function<double(int64_t)>& x, int64_t c, int64_t position, const RopeFrequencies& of,
                RopePairing pairing) {
  const int64_t pairs = static_cast<int64_t>(of.frequencies.size());
  if (c >= 2 * pairs) return x(c);
  const bool half = pairing == RopePairing::kHalf;
  const int64_t i = half ? c % pairs : c / 2;
  const bool second = half ? c >= pairs : c % 2 == 1;
  const int64_t other = half ? (second ? c - pairs : c + pairs) : (second ? c - 1 : c + 1);
  const double angle = static_cast<double>(position) * of.frequencies[static_cast<size_t>(i)];
  return of.amplitude * (x(c) * std::cos(angle) + (second ? 1 : -1) * x(other) * std::sin(angle));
}

using Strides = std::array<int64_t, kMaxRank>;

// Turns `x`, in place or not, and compares every channel with the formula.
void ExpectFormula(const std::vector<std::byte>& x, DType dtype, const Shape& shape, const Strides& stride,
                   const RopeFrequencies& frequencies, RopePairing pairing, bool in_place) {
  const std::vector<int64_t> positions{7, 0, 3, 1'000'000, 2, 9, 9, 9, 1, 0};  // (2, 5)
  std::vector<std::byte> out = x;
  RotaryEmbed(ConstTensor(in_place ? out.data() : x.data(), dtype, shape, stride), frequencies,
              {.pairing = pairing, .positions = ConstTensor(positions.data(), {shape[0], shape[2]})},
              Tensor(out.data(), dtype, shape, stride));
  const int64_t heads = shape[1], length = shape[2], d = shape[3];
  for (int64_t row = 0; row < shape[0] * heads * length; ++row) {
    const int64_t b = row / (heads * length), h = row / length % heads, t = row % length;
    const int64_t first = b * stride[0] + h * stride[1] + t * stride[2];
    const auto value = [&](int64_t c) { return LoadDouble(x.data(), dtype, first + c * stride[3]); };
    for (int64_t c = 0; c < d; ++c) {
      const int64_t position = positions[static_cast<size_t>(b * length + t)];
      const bool turns = c < 2 * static_cast<int64_t>(frequencies.frequencies.size());
      ASSERT_NEAR(LoadDouble(out.data(), dtype, first + c * stride[3]),
                  Expected(value, c, position, frequencies, pairing),
                  turns ? test::RotationBound(dtype, frequencies.amplitude) : 0)
          << "row " << row << " channel " << c;
    }
  }
}

// Widths around the vectors' sizes, partial rotation, every type, (B, H, T, D), (B, T, H, D) and strided
// channels.
class RotaryGrid : public testing::TestWithParam<std::tuple<RopePairing, DType, int64_t, int64_t>> {};

TEST_P(RotaryGrid, EqualsTheFormula) {
  const auto [pairing, dtype, d, rotary_dim] = GetParam();
  const int64_t heads = 3, length = 5;
  const Shape shape{2, heads, length, d};
  RopeFrequencies frequencies = MakeRopeFrequencies({rotary_dim, 100});
  frequencies.amplitude = 1.5;
  std::vector<std::byte> x(static_cast<size_t>(shape.elements()) * SizeOf(dtype));
  for (int64_t i = 0; i < shape.elements(); ++i) {
    StoreDouble(std::sin(static_cast<double>(i)), x.data(), dtype, i);
  }
  for (const Strides& stride :
       {Strides{heads * length * d, length * d, d, 1}, Strides{length * heads * d, d, heads * d, 1},
        Strides{heads * length * d, length * d, 1, length}}) {
    for (const bool in_place : {false, true}) {
      ExpectFormula(x, dtype, shape, stride, frequencies, pairing, in_place);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Sizes, RotaryGrid,
                         testing::Combine(testing::Values(RopePairing::kHalf, RopePairing::kAdjacent),
                                          testing::Values(DType::kF32, DType::kBF16, DType::kF16),
                                          testing::Values(70, 129), testing::Values(2, 10, 32, 34, 66, 70)));

// A row's bits do not depend on what it is computed with.
TEST(RotaryEmbed, PositionsOffsetsAndTablesGiveTheSameBits) {
  const Shape shape{2, 2, 40, 96};
  std::vector<float> x(static_cast<size_t>(shape.elements()));
  for (size_t i = 0; i < x.size(); ++i) x[i] = std::cos(static_cast<float>(i));
  const ConstTensor view(x.data(), shape);
  const RopeFrequencies frequencies = MakeRopeFrequencies({64});
  const auto run = [&](const auto& call) {
    std::vector<float> out(x.size());
    call(Tensor(out.data(), shape));
    return out;
  };
  std::vector<int64_t> positions(80);
  for (size_t i = 0; i < 80; ++i) positions[i] = static_cast<int64_t>(i < 40 ? i + 3 : i - 40 + 11);
  const auto by_offset = run([&](const Tensor& out) {
    RotaryEmbed(view, frequencies, {.offset = std::vector<int64_t>{3, 11}}, out);
  });
  EXPECT_EQ(by_offset, run([&](const Tensor& out) {
              RotaryEmbed(view, frequencies, {.positions = ConstTensor(positions.data(), {2, 40})}, out);
            }));
  std::vector<int64_t> rows(60);
  std::iota(rows.begin(), rows.end(), 0);
  const RopeTable by_position = MakeRopeTable(frequencies, rows),
                  by_token = MakeRopeTable(frequencies, positions);
  EXPECT_EQ(by_offset, run([&](const Tensor& out) {
              RotaryEmbed(view, ConstTensor(by_position.cos.data(), by_position.shape),
                          ConstTensor(by_position.sin.data(), by_position.shape),
                          {.offset = std::vector<int64_t>{3, 11}}, out);
            }));
  EXPECT_EQ(by_offset, run([&](const Tensor& out) {
              RotaryEmbed(view, ConstTensor(by_token.cos.data(), {2, 40, 32}),
                          ConstTensor(by_token.sin.data(), {2, 40, 32}), {}, out);
            }));
}

TEST(RotaryEmbed, NegatedFrequenciesTurnBack) {
  const Shape shape{1, 2, 9, 64};
  std::vector<float> x(static_cast<size_t>(shape.elements()));
  for (size_t i = 0; i < x.size(); ++i) x[i] = std::cos(static_cast<float>(i));
  std::vector<float> turned = x;
  RopeFrequencies frequencies = MakeRopeFrequencies({64});
  const Tensor view(turned.data(), shape);
  RotaryEmbed(view, frequencies, {}, view);
  for (double& frequency : frequencies.frequencies) frequency = -frequency;
  RotaryEmbed(view, frequencies, {}, view);
  EXPECT_THAT(turned, testing::Pointwise(testing::FloatNear(test::kRotation), x));
}

TEST(RotaryEmbed, EmptyTensorsAreFine) {
  const RopeFrequencies frequencies = MakeRopeFrequencies({4});
  for (const Shape& shape : {Shape{0, 1, 1, 4}, Shape{1, 0, 1, 4}, Shape{1, 1, 0, 4}}) {
    EXPECT_NO_THROW(RotaryEmbed(ConstTensor(static_cast<float*>(nullptr), shape), frequencies, {},
                                Tensor(static_cast<float*>(nullptr), shape)));
  }
}

struct Refusal {
  const char* where;
  std::function<void()> call;
};

void ExpectRefused(const std::vector<Refusal>& refusals) {
  for (const Refusal& refusal : refusals) {
    try {
      refusal.call();
      ADD_FAILURE() << refusal.where << ": accepted";
    } catch (const Error& error) {
      EXPECT_EQ(error.where(), refusal.where) << error.what();
      EXPECT_THAT(error.code(), testing::AnyOf(ErrorCode::kInvalidArgument, ErrorCode::kWrongType));
    }
  }
}

TEST(RopeFrequencies, RefusesWhatCannotBe) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const auto make = [](RopeConfig config) { return [config] { MakeRopeFrequencies(config); }; };
  ExpectRefused({
      {"config.rotary_dim", make({0})},
      {"config.rotary_dim", make({-2})},
      {"config.rotary_dim", make({7})},
      {"config.rotary_dim", make({2, 10000, NtkRope{2}})},
      {"config.base", make({8, 0})},
      {"config.base", make({8, nan})},
      {"config.base", make({8, 1, YarnRope{.factor = 2, .trained_length = 10}})},
      {"config.scaling.factor", make({8, 10000, LinearRope{0}})},
      {"config.scaling.factor", make({8, 10000, NtkRope{-1}})},
      {"config.scaling.trained_length", make({8, 10000, DynamicNtkRope{2, 0, 5}})},
      {"config.scaling.length", make({8, 10000, DynamicNtkRope{2, 5, -1}})},
      {"config.scaling.trained_length", make({8, 10000, YarnRope{.factor = 2}})},
      {"config.scaling.beta_fast",
       make({8, 10000, YarnRope{.factor = 2, .trained_length = 10, .beta_fast = 1}})},
      {"config.scaling.amplitude",
       make({8, 10000, YarnRope{.factor = 2, .trained_length = 10, .amplitude = nan}})},
      {"config.scaling.high_factor", make({8, 10000, Llama3Rope{8, 4, 4, 100}})},
      {"config.scaling.low_factor", make({8, 10000, Llama3Rope{8, 0, 4, 100}})},
  });
}

TEST(RotaryEmbed, RefusesWhatDoesNotFit) {
  std::vector<float> memory(64), other(64);
  std::vector<int64_t> whole(4, 100);
  std::vector<Float16> halves(64);
  const Shape shape{1, 2, 4, 4};
  const ConstTensor x(memory.data(), shape);
  const Tensor out(other.data(), shape);
  const RopeFrequencies two{{1, 0.1}};
  const ConstTensor table(memory.data() + 32, {4, 2}), positions(whole.data(), {4});
  const auto turn = [=](ConstTensor from, RopeFrequencies by, RopeOptions options, Tensor to) {
    return [=] { RotaryEmbed(from, by, options, to); };
  };
  const auto look_up = [=](ConstTensor cos, ConstTensor sin, RopeOptions options) {
    return [=] { RotaryEmbed(x, cos, sin, options, out); };
  };
  ExpectRefused({
      {"x", turn({memory.data(), {4, 4}}, two, {}, out)},
      {"x", turn({whole.data(), {1, 1, 1, 4}}, two, {}, out)},
      {"x", turn({static_cast<float*>(nullptr), shape}, two, {}, out)},
      {"out", turn(x, two, {}, Tensor(other.data(), {1, 2, 4, 3}))},
      {"out", turn(x, two, {}, Tensor(halves.data(), shape))},
      {"out", turn(x, two, {}, Tensor(memory.data() + 1, shape))},
      {"out", turn(x, two, {}, Tensor(other.data(), DType::kF32, shape, {32, 16, 0, 1}))},
      {"frequencies", turn(x, {{1, 1, 1}}, {}, out)},
      {"frequencies", turn(x, {{HUGE_VAL, 1}}, {}, out)},
      {"frequencies.amplitude", turn(x, {{1}, HUGE_VAL}, {}, out)},
      {"positions", turn(x, two, {.positions = ConstTensor(whole.data(), {3})}, out)},
      {"positions", turn(x, two, {.positions = ConstTensor(memory.data(), {4})}, out)},
      {"offset", turn(x, two, {.offset = std::vector<int64_t>{}}, out)},
      {"offset", turn(x, two, {.offset = std::vector<int64_t>{1, 2}}, out)},
      {"offset", turn(x, two, {.offset = std::vector<int64_t>{(int64_t{1} << 53) + 1}}, out)},
      {"offset", turn(x, two, {.positions = positions, .offset = std::vector<int64_t>{1}}, out)},
      {"cos", look_up({memory.data() + 32, {8}}, table, {})},
      {"cos", look_up({halves.data(), {4, 2}}, table, {})},
      {"cos", look_up({memory.data() + 32, {1, 3, 2}}, {memory.data() + 32, {1, 3, 2}}, {})},
      {"sin", look_up(table, {memory.data() + 32, {4, 1}}, {})},
      {"positions", look_up(table, table, {.positions = positions})},
      {"offset", look_up(table, table, {.offset = std::vector<int64_t>{-1}})},
      {"offset", look_up(table, table, {.offset = std::vector<int64_t>{1}})},
      {"offset", look_up({memory.data() + 32, {1, 4, 2}}, {memory.data() + 32, {1, 4, 2}},
                         {.offset = std::vector<int64_t>{1}})},
  });
}

}  // namespace
}  // namespace qkv
