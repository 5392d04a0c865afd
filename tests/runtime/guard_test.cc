// The guarded memory that kernel tests rely on does guard.
#include "support/guard.h"

#include <gtest/gtest.h>

#include <array>
#include <utility>

namespace qkv::test {
namespace {

TEST(GuardedBuffer, HoldsItsElements) {
  const std::array<float, 3> values{1, 2, 3};
  for (Edge edge : {Edge::kEnd, Edge::kBegin}) {
    GuardedBuffer<float> buffer(values, edge);
    EXPECT_TRUE(std::equal(buffer.begin(), buffer.end(), values.begin(), values.end()));
    const GuardedBuffer<float> moved = std::move(buffer);
    EXPECT_EQ(moved[2], 3);
    EXPECT_EQ(moved.size(), 3);
  }
}

TEST(GuardedBufferDeathTest, TouchingOneElementOutsideIsACrash) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  for (int64_t count : {0, 1, 7, 1024, 1025}) {
    const auto read = [&](Edge edge) {
      const GuardedBuffer<float> buffer(count, edge);
      const volatile float* element = edge == Edge::kEnd ? buffer.end() : buffer.begin() - 1;
      return *element;
    };
    EXPECT_DEATH(read(Edge::kEnd), "") << count;
    EXPECT_DEATH(read(Edge::kBegin), "") << count;
  }
}

}  // namespace
}  // namespace qkv::test
