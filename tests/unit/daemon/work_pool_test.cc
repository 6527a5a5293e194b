#include "daemon/work_pool.h"

#include <atomic>
#include <future>

#include <gtest/gtest.h>

namespace muster::daemon {
namespace {

TEST(WorkPool, RefusesTasksWhenFullButNotThoseThatMustRun) {
  std::atomic<int> runs = 0;
  WorkPool pool(1, 2);
  std::promise<void> go;
  std::promise<void> last;
  EXPECT_TRUE(pool.post([&, waits = go.get_future().share()] {
    waits.wait();
    ++runs;
  }));
  EXPECT_TRUE(pool.post([&] { ++runs; }));
  EXPECT_FALSE(pool.post([&] { ++runs; })) << "one runs and one waits";
  pool.post_always([&] {
    ++runs;
    last.set_value();
  });
  EXPECT_FALSE(pool.post([&] { ++runs; }));
  go.set_value();
  last.get_future().wait();
  EXPECT_EQ(runs, 3);
}

TEST(WorkPool, DropsWaitingTasksWhenItStops) {
  WorkPool pool(1, 8);
  pool.stop();
  bool has_run = false;
  EXPECT_TRUE(pool.post([&] { has_run = true; }));
  pool.post_always([&] { has_run = true; });
  EXPECT_FALSE(has_run);
}

}  // namespace
}  // namespace muster::daemon
