#include "train/parameters.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <numeric>
#include <string>

#include "qkv/error.h"
#include "runtime/threads.h"

namespace qkv::train {
namespace {

DecoderConfig Small() {
  DecoderConfig config;
  config.layers = 2;
  config.heads = 3;
  config.width = 24;
  config.context = 10;
  config.vocab = 50;
  return config;
}

TEST(ParameterTable, HasGpt2sNamesAndShapes) {
  const ParameterTable table(Small());
  EXPECT_EQ(table.entries().size(), 2u + 2 * 12 + 2);
  EXPECT_EQ(table.entries().front().name, "wte.weight");
  EXPECT_EQ(table.Find("wte.weight").shape, (Shape{50, 24}));
  EXPECT_EQ(table.Find("wpe.weight").shape, (Shape{10, 24}));
  EXPECT_EQ(table.Find("h.1.attn.c_attn.weight").shape, (Shape{24, 72}));
  EXPECT_EQ(table.Find("h.0.mlp.c_proj.weight").shape, (Shape{96, 24}));
  EXPECT_EQ(table.Find("ln_f.bias").shape, Shape{24});
  EXPECT_THROW(table.Find("lm_head.weight"), Error);
  DecoderConfig untied = Small();
  untied.head_weight = HeadWeight::kOwn;
  EXPECT_EQ(ParameterTable(untied).Find("lm_head.weight").shape, (Shape{50, 24}));
}

TEST(ParameterTable, EntriesLieApartAndAligned) {
  const ParameterTable table(Small());
  int64_t end = 0, count = 0;
  for (const ParameterEntry& entry : table.entries()) {
    EXPECT_EQ(entry.offset % 16, 0) << entry.name;
    EXPECT_GE(entry.offset, end) << entry.name;
    EXPECT_EQ(entry.decay == Decay::kWeight, entry.shape.rank == 2) << entry.name;
    end = entry.offset + entry.size();
    count += entry.size();
  }
  EXPECT_LE(end, table.total());
  EXPECT_EQ(count, table.count());
}

double Deviation(std::span<const float> values) {
  double squares = 0;
  for (float value : values) squares += static_cast<double>(value) * value;
  return std::sqrt(squares / static_cast<double>(values.size()));
}

TEST(InitialParameters, AreGpt2s) {
  DecoderConfig config = Small();
  config.width = 96;
  config.layers = 8;
  const ParameterTable table(config);
  const AlignedBuffer<float> parameters = InitialParameters(config, 7);
  for (const ParameterEntry& entry : table.entries()) {
    const std::span values(parameters.data() + entry.offset, static_cast<size_t>(entry.size()));
    const bool residual = entry.name.find("c_proj.weight") != std::string::npos;
    const bool gain = entry.shape.rank == 1 && entry.name.find(".weight") != std::string::npos;
    const double expected = entry.shape.rank == 2 ? (residual ? 0.02 / 4 : 0.02) : (gain ? 1.0 : 0.0);
    const double spread = entry.shape.rank == 2 ? 4 / std::sqrt(2.0 * static_cast<double>(entry.size())) : 0;
    EXPECT_NEAR(Deviation(values), expected, expected * spread) << entry.name;
    const double mean = std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
    const double of_mean = entry.shape.rank == 2 ? 4 * expected / std::sqrt(values.size()) : expected;
    EXPECT_LE(std::abs(mean), of_mean) << entry.name;
  }
}

TEST(InitialParameters, DependOnTheSeedAloneAndDiffer) {
  const DecoderConfig config = Small();
  const ParameterTable table(config);
  const auto bits = [&](uint64_t seed, int threads) {
    SetThreads(threads);
    const AlignedBuffer<float> p = InitialParameters(config, seed);
    return std::vector<float>(p.data(), p.data() + p.size());
  };
  const int before = Threads();
  const std::vector<float> one = bits(1, 1);
  EXPECT_EQ(one, bits(1, 2));
  EXPECT_NE(one, bits(2, 1));
  EXPECT_NE(one, bits(uint64_t{1} << 32 | 1, 1));
  SetThreads(before);
  const auto first_of = [&](const char* name) { return one[static_cast<size_t>(table.Find(name).offset)]; };
  EXPECT_NE(first_of("wte.weight"), first_of("wpe.weight"));
  EXPECT_NE(first_of("h.0.mlp.c_fc.weight"), first_of("h.1.mlp.c_fc.weight"));
}

TEST(DecoderConfig, WrongSizesAreRefusedByName) {
  const std::pair<const char*, std::function<void(DecoderConfig&)>> cases[] = {
      {"layers", [](auto& c) { c.layers = 0; }},
      {"heads", [](auto& c) { c.heads = -1; }},
      {"width", [](auto& c) { c.width = 25; }},
      {"width", [](auto& c) { c.width = int64_t{1} << 40; }},
      {"context", [](auto& c) { c.context = 0; }},
      {"vocab", [](auto& c) { c.vocab = int64_t{1} << 31; }},
      {"dropout", [](auto& c) { c.dropout = 1; }},
      {"dropout", [](auto& c) { c.dropout = std::nanf(""); }},
      {"norm_epsilon", [](auto& c) { c.norm_epsilon = 0; }},
  };
  for (const auto& [name, change] : cases) {
    DecoderConfig config = Small();
    change(config);
    try {
      const ParameterTable table(config);
      ADD_FAILURE() << name;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
      EXPECT_EQ(error.where(), name);
    }
  }
}

}  // namespace
}  // namespace qkv::train
