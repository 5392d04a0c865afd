#include "train/checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>

#include "qkv/error.h"
#include "train/run_json.h"
#include "train/run_log.h"

namespace qkv::train {
namespace {

namespace fs = std::filesystem;

class CheckpointsTest : public testing::Test {
 protected:
  fs::path folder_ = fs::path(testing::TempDir()) / "checkpoint_test";
  Checkpoints checkpoints_{folder_};
  DecoderConfig config_{.layers = 1, .heads = 2, .width = 8, .context = 4, .vocab = 5};

  void SetUp() override { fs::remove_all(folder_); }
  void TearDown() override { fs::remove_all(folder_); }

  TrainState StateAt(int64_t step) const {
    const ParameterTable table(config_);
    TrainState state{step, InitialParameters(config_, 3), ZeroParameters(table), ZeroParameters(table)};
    state.first_moment[0] = 0.25f;
    state.second_moment[1] = static_cast<float>(step);
    return state;
  }
  static std::string Content(const fs::path& file) {
    std::ifstream in(file, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  static void SetContent(const fs::path& file, const std::string& bytes) {
    std::ofstream(file, std::ios::binary) << bytes;
  }
};

TEST_F(CheckpointsTest, TheLastOneComesBackWhole) {
  const TrainOptions options{.steps = 77, .learning_rate = 0.1 + 0.2, .seed = ~uint64_t{0}};
  for (const int64_t step : {5, 10, 100}) checkpoints_.Write(StateAt(step), {config_, options, 11 * step});
  const LoadedCheckpoint loaded = checkpoints_.ReadLast();
  EXPECT_EQ(loaded.state.step, 100);
  EXPECT_EQ(loaded.info.log_bytes, 1100);
  EXPECT_TRUE(loaded.info.config == config_);
  EXPECT_TRUE(loaded.info.options == options);
  const TrainState expected = StateAt(100);
  ASSERT_EQ(loaded.state.parameters.size(), expected.parameters.size());
  for (int64_t i = 0; i < expected.parameters.size(); ++i) {
    ASSERT_EQ(loaded.state.parameters[i], expected.parameters[i]);
    ASSERT_EQ(loaded.state.first_moment[i], expected.first_moment[i]);
    ASSERT_EQ(loaded.state.second_moment[i], expected.second_moment[i]);
  }
}

TEST_F(CheckpointsTest, AnyDamageIsNamedAndTheOneBeforeOffered) {
  for (const int64_t step : {1, 2}) checkpoints_.Write(StateAt(step), {config_, {}, 0});
  const fs::path last = checkpoints_.PathOf(2);
  const std::string whole = Content(last);
  const auto expect_refused = [&](const std::string& bytes, size_t at) {
    SetContent(last, bytes);
    try {
      checkpoints_.ReadLast();
      FAIL() << "damage at byte " << at << " was not noticed";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kFile);
      EXPECT_THAT(error.what(), testing::HasSubstr("step-00000002"));
      EXPECT_THAT(error.what(), testing::HasSubstr("step-00000001.safetensors"));
    }
  };
  for (size_t at = 0; at < whole.size(); at += at < 2000 ? 7 : 501) {
    std::string damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ 0x10);
    if (damaged[at] == ' ' || whole[at] == ' ') continue;  // white space between values may be any
    expect_refused(damaged, at);
    expect_refused(whole.substr(0, at), at);
  }
  fs::rename(last, folder_ / "moved");
  EXPECT_EQ(checkpoints_.ReadLast().state.step, 1);
}

TEST_F(CheckpointsTest, WhatAKillLeftIsNoCheckpoint) {
  checkpoints_.Write(StateAt(1), {config_, {}, 0});
  const fs::path unfinished = checkpoints_.PathOf(2).string() + ".a1B2c3";
  SetContent(unfinished, "half");
  EXPECT_THAT(checkpoints_.Steps(), testing::ElementsAre(1));
  checkpoints_.RemoveUnfinished();
  EXPECT_FALSE(fs::exists(unfinished));
  EXPECT_THAT(checkpoints_.Steps(), testing::ElementsAre(1));
}

TEST_F(CheckpointsTest, TheLastOnesStay) {
  for (const int64_t step : {5, 10, 9, 100}) checkpoints_.Write(StateAt(step), {config_, {}, 0});
  for (const int64_t keep : {5, 4}) {
    checkpoints_.RemoveAllButLast(keep);
    EXPECT_THAT(checkpoints_.Steps(), testing::ElementsAre(5, 9, 10, 100)) << keep;
  }
  checkpoints_.RemoveAllButLast(2);
  EXPECT_THAT(checkpoints_.Steps(), testing::ElementsAre(10, 100));
}

TEST(RunJson, EveryFieldComesBackAndOthersAreRefusedByName) {
  DecoderConfig config{.layers = 3, .dropout = 0.1f, .head_weight = HeadWeight::kOwn}, read_config;
  TrainOptions options{.steps = 5, .final_learning_rate = 1.0 / 3, .precision = Precision::kBFloat16}, read_options;
  RunSettings settings{.validation_share = 0.3, .validate_every = 7, .sample_every = 0, .checkpoint_every = 9, .keep = 8,
                       .exported = Precision::kBFloat16};
  RunSettings read_settings;
  const auto named =
      ReadRunJson(RunJson(config, options, settings), "run.json", read_config, read_options, read_settings);
  EXPECT_TRUE(config == read_config);
  EXPECT_TRUE(options == read_options);
  EXPECT_TRUE(settings == read_settings);
  EXPECT_EQ(named.size(), 28u);
  const auto two = ReadRunJson(R"({"keep": 4, "layers": 2})", "run.json", read_config, read_options, read_settings);
  EXPECT_THAT(two, testing::ElementsAre("keep", "layers"));
  EXPECT_EQ(read_settings.keep, 4);
  for (const char* wrong : {R"({"layer": 3})", R"({"layers": 3.5})", R"({"lr": "fast"})", R"({"precision": "f16"})",
                            R"({"seed": -1})", R"({"keep": 1.5})", R"([])", R"({"layers": )"}) {
    EXPECT_THROW(ReadRunJson(wrong, "run.json", read_config, read_options, read_settings), Error) << wrong;
  }
}

TEST_F(CheckpointsTest, TheLogIsCutBackToTheCheckpoint) {
  fs::create_directories(folder_);
  const fs::path file = folder_ / "log.jsonl";
  int64_t bytes = 0;
  {
    RunLog log(file, 0);
    log.Add({.step = 0, .loss = 2.5, .gradient_norm = 1, .learning_rate = 0.1, .tokens = 8});
    log.AddValidation(1, 2.25);
    bytes = log.Sync();
    log.Add({.step = 1, .loss = 2});
  }
  RunLog(file, bytes).Add({.step = 1, .loss = 1.5});
  SetContent(file, Content(file) + "{\"step\": 3, \"lo");
  const LossCurves curves = ReadLossCurves(file);
  EXPECT_THAT(curves.train_steps, testing::ElementsAre(1, 2));
  EXPECT_THAT(curves.train_losses, testing::ElementsAre(2.5, 1.5));
  EXPECT_THAT(curves.validation_losses, testing::ElementsAre(2.25));
  EXPECT_THROW(RunLog(file, 1 << 20), Error);
}

}  // namespace
}  // namespace qkv::train
