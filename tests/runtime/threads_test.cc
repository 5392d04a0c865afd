#include "runtime/threads.h"

#include <gtest/gtest.h>
#include <omp.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <thread>
#include <vector>

#include "qkv/error.h"

namespace qkv {
namespace {

class ThreadsTest : public testing::TestWithParam<int> {
 protected:
  ThreadsTest() : before_(Threads()) { SetThreads(GetParam()); }
  ~ThreadsTest() override { SetThreads(before_); }

 private:
  const int before_;
};

TEST_P(ThreadsTest, RunsEachTaskOnce) {
  for (int64_t tasks : {0, 1, 2, 3, 1000}) {
    std::vector<std::atomic<int>> runs(static_cast<size_t>(tasks));
    std::atomic<int> strangers{0};
    ParallelFor(tasks, [&](int64_t task, int thread) {
      ++runs[static_cast<size_t>(task)];
      if (thread < 0 || thread >= Threads()) ++strangers;
    });
    for (const auto& count : runs) EXPECT_EQ(count, 1);
    EXPECT_EQ(strangers, 0);
  }
}

TEST_P(ThreadsTest, OneThreadNumberIsUsedByOneThreadAtATime) {
  std::vector<std::atomic<int>> busy(static_cast<size_t>(GetParam()));
  std::atomic<int> shared{0};
  ParallelFor(200, [&](int64_t, int thread) {
    if (busy[static_cast<size_t>(thread)]++ != 0) ++shared;
    std::this_thread::yield();
    --busy[static_cast<size_t>(thread)];
  });
  EXPECT_EQ(shared, 0);
}

TEST_P(ThreadsTest, OneThreadLimitsOpenMpCodeOfTheCallerOnly) {
  {
    const OneThread one;
    EXPECT_EQ(omp_get_max_threads(), 1);
    std::thread([] {
      EXPECT_EQ(Threads(), GetParam());
      EXPECT_EQ(omp_get_max_threads(), GetParam());
    }).join();
    std::atomic<int> team{0};
    ParallelFor(GetParam(), [&](int64_t, int) { team = omp_get_num_threads(); });
    EXPECT_EQ(team, GetParam());
    EXPECT_EQ(omp_get_max_threads(), 1);
  }
  EXPECT_EQ(omp_get_max_threads(), GetParam());
}

TEST_P(ThreadsTest, ReportsProgressFromTheCallingThread) {
  const auto caller = std::this_thread::get_id();
  int reports = 0;
  int64_t last = 0;
  ParallelFor(
      40, [](int64_t, int) { std::this_thread::sleep_for(std::chrono::milliseconds(20)); },
      [&](int64_t done, int64_t total) {
        EXPECT_EQ(std::this_thread::get_id(), caller);
        EXPECT_EQ(total, 40);
        EXPECT_GT(done, last);
        EXPECT_LE(done, total);
        last = done;
        ++reports;
        return true;
      });
  EXPECT_GT(reports, 0);
}

TEST_P(ThreadsTest, CancelStopsHandingOutTasks) {
  std::atomic<int64_t> started{0};
  constexpr int64_t kTasks = 100'000;
  const auto slow = [&](int64_t, int) {
    ++started;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  };
  try {
    ParallelFor(kTasks, slow, [](int64_t, int64_t) { return false; });
    ADD_FAILURE() << "not cancelled";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kCancelled);
  }
  EXPECT_LT(started, kTasks / 10);
}

INSTANTIATE_TEST_SUITE_P(Counts, ThreadsTest, testing::Values(1, 2, 7));

TEST(Threads, CountsBelowOneAreRefused) {
  const int before = Threads();
  EXPECT_THROW(SetThreads(0), Error);
  EXPECT_THROW(SetThreads(-3), Error);
  EXPECT_EQ(Threads(), before);
}

// The environment is read once, so each case needs a process of its own: a death test's, run again from the
// start.
class ThreadsDeathTest : public testing::Test {
 protected:
  ThreadsDeathTest() { GTEST_FLAG_SET(death_test_style, "threadsafe"); }

  static int CountWith(const char* qkv, const char* omp) {
    setenv("QKV_NUM_THREADS", qkv, 1);
    setenv("OMP_NUM_THREADS", omp, 1);
    return Threads();
  }
};

TEST_F(ThreadsDeathTest, TheEnvironmentChooses) {
  EXPECT_EXIT(std::exit(CountWith("3", "5")), testing::ExitedWithCode(3), "");
  EXPECT_EXIT(std::exit(CountWith("", "5")), testing::ExitedWithCode(5), "");
}

TEST_F(ThreadsDeathTest, NumbersThatAreNoneAreIgnored) {
  for (const char* text : {"0", "-2", "many", "99999999999999999999"}) {
    EXPECT_EXIT(std::exit(CountWith(text, "5")), testing::ExitedWithCode(5), "") << text;
  }
}

}  // namespace
}  // namespace qkv
