#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <sstream>
#include <string>

#include "layers/noise.h"
#include "qkv/error.h"
#include "qkv/layers.h"

namespace qkv {
namespace {

using test::Noise;
using Floats = std::vector<float>;

TEST(Embed, AddsPositionsToTokens) {
  const Floats table{1, 2, 10, 20, 100, 200}, positions{0.5f, 0.25f, -1, -2, 7, 7};
  const std::vector<int64_t> ids{2, 0, 1, 1};
  Floats out(8);
  Embed(ids, 2, 2, table.data(), 3, 2, positions.data(), out.data());
  EXPECT_EQ(out, (Floats{100.5f, 200.25f, 0, 0, 10.5f, 20.25f, 9, 18}));
  Embed(ids, 2, 2, table.data(), 3, 2, nullptr, out.data());
  EXPECT_EQ(out, (Floats{100, 200, 1, 2, 10, 20, 10, 20}));
}

TEST(Embed, RefusesIdsOutsideTheVocabulary) {
  const Floats table(6);
  Floats out(4);
  for (int64_t bad : {int64_t{-1}, int64_t{3}, INT64_MAX, INT64_MIN}) {
    const std::vector<int64_t> ids{0, bad};
    try {
      Embed(ids, 1, 2, table.data(), 3, 2, nullptr, out.data());
      FAIL() << bad;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
      EXPECT_THAT(error.what(),
                  testing::AllOf(testing::HasSubstr("ids[1]"), testing::HasSubstr(std::to_string(bad))));
    }
  }
  EXPECT_THROW(Embed(std::vector<int64_t>{0}, 1, 2, table.data(), 3, 2, nullptr, out.data()), Error);
}

TEST(SinusoidalPositions, AreTheFormulas) {
  const Floats positions = SinusoidalPositions(50, 8);
  for (int t = 0; t < 50; ++t) {
    for (int i = 0; i < 4; ++i) {
      const double angle = t / std::pow(10000.0, 2 * i / 8.0);
      EXPECT_FLOAT_EQ(positions[static_cast<size_t>(t * 8 + 2 * i)], static_cast<float>(std::sin(angle)));
      EXPECT_FLOAT_EQ(positions[static_cast<size_t>(t * 8 + 2 * i + 1)], static_cast<float>(std::cos(angle)));
    }
  }
}

// The reason that the paper gives for them: a shift by k positions is a rotation that does not depend on where.
TEST(SinusoidalPositions, ADistanceIsTheSameDotProductEverywhere) {
  const Floats positions = SinusoidalPositions(40, 16);
  const auto dot = [&](int a, int b) {
    double sum = 0;
    for (int c = 0; c < 16; ++c)
      sum += positions[static_cast<size_t>(a * 16 + c)] * positions[static_cast<size_t>(b * 16 + c)];
    return sum;
  };
  for (int t = 0; t + 5 < 40; ++t) EXPECT_NEAR(dot(t, t + 5), dot(0, 5), 1e-5);
}

TEST(SinusoidalPositions, RefuseAnOddWidth) {
  EXPECT_THROW(SinusoidalPositions(3, 5), Error);
  EXPECT_THROW(SinusoidalPositions(3, 0), Error);
  EXPECT_THROW(SinusoidalPositions(-1, 4), Error);
  EXPECT_TRUE(SinusoidalPositions(0, 4).empty());
}

// Text to ids, ids to embeddings, positions, layer: the same word twice is told apart by its place alone.
class TextThroughALayer : public testing::Test {
 protected:
  static constexpr int64_t kWidth = 16, kLength = 6;

  static std::vector<int64_t> Ids(const std::string& text) {
    std::map<std::string, int64_t> vocabulary;
    std::vector<int64_t> ids;
    std::istringstream words(text);
    for (std::string word; words >> word;) {
      ids.push_back(vocabulary.emplace(word, static_cast<int64_t>(vocabulary.size())).first->second);
    }
    return ids;
  }

  static Floats Run(const Floats& positions) {
    const std::vector<int64_t> ids = Ids("the road and the other road");
    EXPECT_THAT(ids, testing::ElementsAre(0, 1, 2, 0, 3, 1));
    const Floats table = Noise(1, 4 * kWidth, 2);
    Floats x(kLength * kWidth), out(kLength * kWidth);
    Embed(ids, 1, kLength, table.data(), 4, kWidth, positions.empty() ? nullptr : positions.data(), x.data());
    MultiHeadConfig config;
    config.d_in = config.d_out = kWidth;
    config.num_heads = 2;
    const MultiHeadParameters parameters{Noise(2, kWidth * kWidth),
                                         Noise(3, kWidth * kWidth),
                                         Noise(4, kWidth * kWidth),
                                         Noise(5, kWidth * kWidth),
                                         {},
                                         {},
                                         {},
                                         {}};
    MultiHeadAttention(config, parameters).Forward(x.data(), 1, kLength, out.data());
    return out;
  }

  static double Distance(const Floats& out, int64_t a, int64_t b) {
    double sum = 0;
    for (int64_t c = 0; c < kWidth; ++c) {
      sum += std::fabs(out[static_cast<size_t>(a * kWidth + c)] - out[static_cast<size_t>(b * kWidth + c)]);
    }
    return sum;
  }
};

TEST_F(TextThroughALayer, WithoutPositionsTheSameWordIsTheSame) {
  const Floats out = Run({});
  EXPECT_NEAR(Distance(out, 0, 3), 0, 1e-5);
  EXPECT_NEAR(Distance(out, 1, 5), 0, 1e-5);
  EXPECT_GT(Distance(out, 0, 1), 1e-3);
}

TEST_F(TextThroughALayer, SinusoidalPositionsTellItsPlacesApart) {
  const Floats out = Run(SinusoidalPositions(kLength, kWidth));
  EXPECT_GT(Distance(out, 0, 3), 1e-3);
  EXPECT_GT(Distance(out, 1, 5), 1e-3);
}

TEST_F(TextThroughALayer, LearnedPositionsTellItsPlacesApart) {
  const Floats out = Run(Noise(6, kLength * kWidth));
  EXPECT_GT(Distance(out, 0, 3), 1e-3);
  EXPECT_GT(Distance(out, 1, 5), 1e-3);
}

}  // namespace
}  // namespace qkv
