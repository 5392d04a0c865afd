#include "runtime/task_runs.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <numeric>

#include "runtime/threads.h"

namespace qkv {
namespace {

using testing::ElementsAre;

TEST(TaskRuns, ThreadsTakeTheirOwnFromTheFrontThenOthersFromTheBack) {
  TaskRuns runs(3);
  runs.Set(0, 0, 2);
  runs.Set(1, 2, 2);
  runs.Set(2, 2, 6);
  std::vector<uint32_t> taken;
  for (int thread : {0, 1, 0, 0, 2, 2}) taken.push_back(runs.Take(thread));
  EXPECT_THAT(taken, ElementsAre(0, 5, 1, 4, 2, 3));
}

TEST(TaskRuns, AreSharedAsEvenlyAsCanBe) {
  TaskRuns runs(3);
  runs.Share(7);
  std::vector<uint32_t> first;
  for (int thread : {0, 1, 2}) first.push_back(runs.Take(thread));
  EXPECT_THAT(first, ElementsAre(0, 2, 4));
}

TEST(TaskRuns, EachNumberIsTakenOnce) {
  const int before = Threads();
  for (int threads : {1, 2, 5}) {
    SetThreads(threads);
    constexpr uint32_t kEach = 2000;
    TaskRuns runs(threads);
    runs.Share(static_cast<uint32_t>(threads) * kEach);
    std::vector<uint32_t> taken(static_cast<size_t>(threads) * kEach), all(taken.size());
    ParallelFor(static_cast<int64_t>(taken.size()),
                [&](int64_t task, int thread) { taken[static_cast<size_t>(task)] = runs.Take(thread); });
    std::sort(taken.begin(), taken.end());
    std::iota(all.begin(), all.end(), 0u);
    EXPECT_EQ(taken, all);
  }
  SetThreads(before);
}

}  // namespace
}  // namespace qkv
