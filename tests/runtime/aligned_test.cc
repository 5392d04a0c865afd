#include "runtime/aligned.h"

#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <thread>
#include <utility>
#include <vector>

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

// What AlignedBuffer promises of blocks that were given back; AddressSanitizer's are never kept.
#if !defined(__SANITIZE_ADDRESS__)
const void* GivenBack(size_t bytes) { return AllocateAligned(bytes).get(); }

TEST(AlignedMemory, ComesBackForTheNextCallOfItsSize) {
  constexpr size_t kMiB = size_t{1} << 20;
  const void* block = GivenBack(8 * kMiB);
  EXPECT_EQ(AllocateAligned(8 * kMiB).get(), block);
  EXPECT_EQ(AllocateAligned(7 * kMiB).get(), block);
  const AlignedMemory taken = AllocateAligned(8 * kMiB);
  EXPECT_EQ(taken.get(), block);
  EXPECT_GE(taken.get_deleter().bytes, 8 * kMiB);
  const AlignedMemory other = AllocateAligned(8 * kMiB);
  EXPECT_NE(other.get(), block);
}

TEST(AlignedMemory, IsNotKeptForMuchSmallerCallsAndLargerOnes) {
  constexpr size_t kMiB = size_t{1} << 20;
  const void* block = GivenBack(20 * kMiB);
  for (const size_t bytes : {15 * kMiB, 21 * kMiB}) {
    const AlignedMemory memory = AllocateAligned(bytes);
    EXPECT_NE(memory.get(), block);
    EXPECT_EQ(memory.get_deleter().bytes, bytes);
  }
  EXPECT_EQ(AllocateAligned(20 * kMiB).get(), block);
}

TEST(AlignedMemory, ManyThreadsMayTakeAndGiveBack) {
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 4; ++thread) {
    threads.emplace_back([thread] {
      for (int i = 0; i < 2000; ++i) {
        AlignedBuffer<int32_t> buffer((64 << 10) / 4 * (1 + (i + thread) % 5));
        buffer[0] = buffer[buffer.size() - 1] = thread;
        ASSERT_EQ(buffer[0] + buffer[buffer.size() - 1], 2 * thread);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}
#endif

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
