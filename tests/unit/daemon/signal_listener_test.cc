#include <signal.h>
#include <unistd.h>

#include <gtest/gtest.h>

#include "daemon/bounded_queue.h"
#include "daemon/process.h"

namespace muster::daemon {
namespace {

TEST(SignalListener, CallsForEachSignalAndRestoresTheDefault) {
  BoundedQueue<int> seen(8);
  {
    const auto listener = SignalListener::start(
        {SIGUSR1, SIGUSR2}, [&](int signo) { (void)seen.try_push(int{signo}); });
    for (const int signo : {SIGUSR1, SIGUSR2, SIGUSR1}) {
      kill(getpid(), signo);
      EXPECT_EQ(seen.pop_all(monotonic_now() + std::chrono::seconds(10)), (std::deque<int>{signo}));
    }
  }
  struct sigaction action {};
  sigaction(SIGUSR1, nullptr, &action);
  EXPECT_EQ(action.sa_handler, SIG_DFL);
}

}  // namespace
}  // namespace muster::daemon
