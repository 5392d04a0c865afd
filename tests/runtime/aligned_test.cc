#include "runtime/aligned.h"

#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <utility>

#include "qkv/error.h"

namespace qkv {
namespace {

template <class F>
Error ErrorOf(F action) {
  try {
    action();
  } catch (const Error& error) {
    return error;
  }
  ADD_FAILURE() << "no error";
  return Error(ErrorCode::kInternal, "none");
}

TEST(AlignedBuffer, StartsAtACacheLine) {
  for (int64_t count : {1, 3, 16, 17, 1000}) {
    AlignedBuffer<float> buffer(count);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer.data()) % kAlignment, 0u) << count;
    EXPECT_EQ(buffer.size(), count);
    buffer[0] = 1;
    buffer[count - 1] = 2;
    EXPECT_EQ(std::as_const(buffer)[count - 1], 2);
  }
}

TEST(AlignedBuffer, EmptyHoldsNothing) {
  EXPECT_EQ(AlignedBuffer<float>().size(), 0);
  EXPECT_EQ(AlignedBuffer<float>(0).size(), 0);
  EXPECT_EQ(AlignedBuffer<float>(0).data(), nullptr);
}

TEST(AlignedBuffer, MoveTakesTheMemory) {
  AlignedBuffer<int32_t> from(4);
  from[3] = 7;
  const int32_t* memory = from.data();
  const AlignedBuffer<int32_t> to = std::move(from);
  EXPECT_EQ(to.data(), memory);
  EXPECT_EQ(to[3], 7);
}

TEST(AlignedBuffer, SizesThatOverflowAreOutOfMemory) {
  for (int64_t count :
       {std::numeric_limits<int64_t>::max(), std::numeric_limits<int64_t>::max() / 2, int64_t{-1}}) {
    const Error error = ErrorOf([&] { AlignedBuffer<double> buffer(count); });
    EXPECT_EQ(error.code(), ErrorCode::kOutOfMemory);
    EXPECT_NE(std::string(error.what()).find(std::to_string(count)), std::string::npos) << error.what();
  }
}

TEST(AlignedBuffer, RoundingUpToTheAlignmentDoesNotWrap) {
  EXPECT_EQ(ErrorOf([] { AllocateAligned(std::numeric_limits<size_t>::max() - 1); }).code(),
            ErrorCode::kOutOfMemory);
}

// A sanitizer's allocator ends the program instead, unless it is told to return null.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
TEST(AlignedBuffer, MemoryThatIsNotThereIsNamed) {
  const Error error = ErrorOf([] { AlignedBuffer<float> buffer(int64_t{1} << 60); });
  EXPECT_EQ(error.code(), ErrorCode::kOutOfMemory);
  EXPECT_STREQ(error.what(), "out of memory, expected 4611686018427387904 bytes");
}
#endif

}  // namespace
}  // namespace qkv
