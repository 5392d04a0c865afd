#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <thread>

#include "models/golden.h"
#include "qkv/error.h"
#include "support/tolerance.h"

namespace qkv {
namespace {

using testing::AllOf;
using testing::FloatNear;
using testing::HasSubstr;
using testing::Pointwise;
using Floats = std::vector<float>;
using Ids = std::vector<int64_t>;

const Model& Tiny() {
  static const std::unique_ptr<const Model> model = LoadModel(test::TinyFolder("tiny-plain"));
  return *model;
}

std::string MessageOf(const std::function<void()>& call, ErrorCode code = ErrorCode::kInvalidArgument) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code);
    return error.what();
  }
  return "no error";
}

TEST(Bert, SaysWhatItIs) {
  const ModelInfo& info = test::MiniLm().info();
  EXPECT_EQ(info.name, "minilm");
  EXPECT_EQ(info.architecture, "bert");
  EXPECT_EQ(info.layers, 6);
  EXPECT_EQ(info.heads, 12);
  EXPECT_EQ(info.kv_heads, 12);
  EXPECT_EQ(info.width, 384);
  EXPECT_EQ(info.vocab, 30522);
  EXPECT_EQ(info.max_tokens, 512);
  EXPECT_EQ(info.parameters, 22713216 - 384 * 385);  // transformers' count less its pooler
  EXPECT_FALSE(info.causal);
}

TEST(Bert, PaddingNeverChangesARealToken) {
  const int64_t width = Tiny().info().width;
  const Ids first{2, 7, 8, 9, 3}, second{2, 10, 3};
  const Floats alone_first = Tiny().Forward(first, 1, nullptr, {}),
               alone_second = Tiny().Forward(second, 1, nullptr, {});
  for (int64_t padding : {0, 1, 31}) {  // the id that fills the rest does not matter
    Ids batch = second;
    batch.insert(batch.end(), 2, padding);
    batch.insert(batch.end(), first.begin(), first.end());
    const Ids lengths{3, 5};
    const Floats both = Tiny().Forward(batch, 2, &lengths, {});
    ASSERT_EQ(static_cast<int64_t>(both.size()), 2 * 5 * width);
    EXPECT_THAT(Floats(both.begin(), both.begin() + 3 * width),
                Pointwise(FloatNear(test::kLayerOutput), alone_second));
    EXPECT_THAT(Floats(both.begin() + 5 * width, both.end()),
                Pointwise(FloatNear(test::kLayerOutput), alone_first));
  }
}

// Ids past a length are never looked up, so they may be anything.
TEST(Bert, IgnoresIdsPastALength) {
  const Ids ids{2, 7, 3, -5, 999}, lengths{3};
  const Floats hidden = Tiny().Forward(ids, 1, &lengths, {});
  const Floats alone = Tiny().Forward({2, 7, 3}, 1, nullptr, {});
  EXPECT_THAT(Floats(hidden.begin(), hidden.begin() + static_cast<int64_t>(alone.size())),
              Pointwise(FloatNear(test::kLayerOutput), alone));
}

TEST(Bert, EmptySequencesAmongOthersAreAllowed) {
  const Ids ids{0, 0, 2, 3, 0, 0}, lengths{0, 2, 0};
  const Floats hidden = Tiny().Forward(ids, 3, &lengths, {}), alone = Tiny().Forward({2, 3}, 1, nullptr, {});
  const int64_t width = Tiny().info().width;
  EXPECT_THAT(Floats(hidden.begin() + 2 * width, hidden.begin() + 4 * width),
              Pointwise(FloatNear(test::kLayerOutput), alone));
  const Ids none{0, 0, 0};
  EXPECT_EQ(Tiny().Forward(ids, 3, &none, {}).size(), hidden.size());
}

// More rows than pass through a layer at a time.
TEST(Bert, ABatchOfManyRowsIsItsSequences) {
  constexpr int64_t kBatch = 33, kLength = 29;
  Ids ids;
  for (int64_t i = 0; i < kBatch * kLength; ++i) ids.push_back(i * 7 % 31);
  const Floats hidden = Tiny().Forward(ids, kBatch, nullptr, {});
  const auto size = static_cast<size_t>(kLength * Tiny().info().width);
  for (size_t b = 0; b < kBatch; ++b) {
    const auto row = ids.begin() + static_cast<int64_t>(b) * kLength;
    EXPECT_THAT(Floats(hidden.begin() + static_cast<int64_t>(b * size),
                       hidden.begin() + static_cast<int64_t>((b + 1) * size)),
                Pointwise(FloatNear(test::kLayerOutput), Tiny().Forward({row, row + kLength}, 1, nullptr, {})));
  }
}

TEST(Bert, ServesManyThreadsAtOnce) {
  const Ids ids{2, 5, 6, 7, 3};
  const Floats expected = Tiny().Forward(ids, 1, nullptr, {});
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 20; ++i) wrong += Tiny().Forward(ids, 1, nullptr, {}) != expected;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

TEST(Bert, RefusesWhatItCannotRun) {
  const auto forward = [](const Ids& ids, int64_t batch, const Ids* lengths = nullptr) {
    return MessageOf([&] { Tiny().Forward(ids, batch, lengths, {}); });
  };
  EXPECT_THAT(forward({}, 1), HasSubstr("no tokens"));
  EXPECT_THAT(forward({1}, 0), HasSubstr("batch"));
  EXPECT_THAT(forward({1}, -1), HasSubstr("batch"));
  EXPECT_THAT(forward({1, 2, 3}, 2), HasSubstr("ids"));
  EXPECT_THAT(forward({1, -1}, 1), AllOf(HasSubstr("ids[1]"), HasSubstr("-1")));
  EXPECT_THAT(forward({1, 33}, 1), AllOf(HasSubstr("0 to 32"), HasSubstr("33")));
  const Ids too_few{1}, too_long{1, 3}, negative{1, -1};
  EXPECT_THAT(forward({1, 2, 3, 4}, 2, &too_few), HasSubstr("lengths"));
  EXPECT_THAT(forward({1, 2, 3, 4}, 2, &too_long), HasSubstr("lengths[1]"));
  EXPECT_THAT(forward({1, 2, 3, 4}, 2, &negative), HasSubstr("lengths[1]"));
}

TEST(Bert, SaysHowLongATextMayBe) {
  const Ids ids(33, 5);
  const auto expected = AllOf(HasSubstr("at most 32 tokens"), HasSubstr("33 tokens"));
  EXPECT_THAT(MessageOf([&] { Tiny().Forward(ids, 1, nullptr, {}); }), expected);
  Encoding text;
  text.ids = ids;
  EXPECT_THAT(MessageOf([&] { Tiny().Look(text, {}, nullptr); }), expected);
}

TEST(Bert, CanBeCancelled) {
  int64_t calls = 0, total = 0;
  const Progress stop = [&](int64_t done, int64_t all) {
    total = all;
    return ++calls, done < 1;
  };
  MessageOf([&] { Tiny().Forward({2, 3}, 1, nullptr, stop); }, ErrorCode::kCancelled);
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(total, 2);
}

}  // namespace
}  // namespace qkv
