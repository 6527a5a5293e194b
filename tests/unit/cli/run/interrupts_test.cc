#include "cli/run/interrupts.h"

#include <signal.h>

#include <thread>

#include <gtest/gtest.h>

namespace muster::cli {
namespace {

TEST(Interrupts, CountsRequestsToLeave) {
  const auto interrupts = Interrupts::block();
  ASSERT_TRUE(interrupts.ok()) << interrupts.status();
  EXPECT_EQ((*interrupts)->take(), 0);
  raise(SIGHUP);
  EXPECT_EQ((*interrupts)->take(), 1);
  raise(SIGHUP);
  EXPECT_EQ((*interrupts)->take(), 1) << "a closed terminal sends two";
  std::this_thread::sleep_for(kSameStopRequest);
  raise(SIGHUP);
  EXPECT_EQ((*interrupts)->take(), 1) << "however far apart";
  raise(SIGINT);
  EXPECT_EQ((*interrupts)->take(), 2);
  (*interrupts)->release();
}

TEST(Interrupts, SignalsThatComeTogetherAreOneRequest) {
  const auto interrupts = Interrupts::block();
  ASSERT_TRUE(interrupts.ok()) << interrupts.status();
  for (const int signal : {SIGTERM, SIGTERM, SIGINT}) {
    raise(signal);
    EXPECT_EQ((*interrupts)->take(), 1);
  }
  (*interrupts)->add_request();
  EXPECT_EQ((*interrupts)->take(), 1) << "Ctrl-C has also ended the reader of our output";
  std::this_thread::sleep_for(kSameStopRequest);
  raise(SIGTERM);
  EXPECT_EQ((*interrupts)->take(), 2);
  (*interrupts)->release();
}

TEST(Interrupts, NohupIsRespected) {
  signal(SIGHUP, SIG_IGN);
  const auto interrupts = Interrupts::block();
  ASSERT_TRUE(interrupts.ok()) << interrupts.status();
  raise(SIGHUP);
  EXPECT_EQ((*interrupts)->take(), 0);
  (*interrupts)->release();
  signal(SIGHUP, SIG_DFL);
}

}  // namespace
}  // namespace muster::cli
