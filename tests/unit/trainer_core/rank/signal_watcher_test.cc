#include "trainer_core/rank/signal_watcher.h"

#include <unistd.h>

#include <chrono>
#include <csignal>
#include <functional>

#include <gtest/gtest.h>

namespace muster::trainer {
namespace {

std::atomic<int> ended_with{-1};

void remember_end(ExitCode code) { ended_with = to_int(code); }

bool soon(const std::function<bool()>& condition) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (!condition() && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
  return condition();
}

TEST(SignalWatcher, ASignalBeforeTrainingEndsTheProcess) {
  ended_with = -1;
  StopSignals signals;
  const SignalWatcher watcher(signals, remember_end);
  kill(getpid(), SIGTERM);
  EXPECT_TRUE(soon([] { return ended_with == to_int(ExitCode::kPreempted); }));
}

TEST(SignalWatcher, ACheckpointRequestDoesNotStopTheProcess) {
  ended_with = -1;
  StopSignals signals;
  const SignalWatcher watcher(signals, remember_end);
  for (const bool training : {false, true}) {
    signals.training = training;
    signals.checkpoint = false;
    kill(getpid(), SIGUSR2);
    EXPECT_TRUE(soon([&] { return signals.checkpoint.load(); }));
    EXPECT_FALSE(signals.stop);
    EXPECT_EQ(ended_with, -1);
  }
}

// A step that is left once its time is over.
class LongStep : public RunningStep {
 public:
  void leave(EndProcess end_process) override { end_process(ExitCode::kPreempted); }
  bool give_up(EndProcess) override { return false; }
};

// A step whose peers do not come.
class LonelyStep : public RunningStep {
 public:
  void leave(EndProcess) override {
    leaving = true;
    while (!gone) std::this_thread::yield();
  }
  bool give_up(EndProcess end_process) override {
    if (++requests < 3) return false;  // a save is in progress
    end_process(ExitCode::kPreempted);
    return true;
  }
  std::atomic<bool> leaving{false}, gone{false};
  std::atomic<int> requests{0};
};

TEST(SignalWatcher, AStepThatOutlastsTheWaitIsLeftOnce) {
  ended_with = -1;
  StopSignals signals;
  LongStep step;
  signals.training = true;
  signals.loop_begins(step, std::chrono::milliseconds(1));
  const SignalWatcher watcher(signals, remember_end);
  kill(getpid(), SIGTERM);
  EXPECT_TRUE(soon([] { return ended_with == to_int(ExitCode::kPreempted); }));
  EXPECT_TRUE(signals.stop);
  signals.loop_ends();
}

TEST(SignalWatcher, TheFirstSignalRequestsAStopAndASecondInterruptEndsTheProcess) {
  for (const int signal : {SIGTERM, SIGUSR1, SIGINT}) {
    ended_with = -1;
    StopSignals signals;
    LongStep step;
    signals.training = true;
    signals.loop_begins(step, std::chrono::hours(1));
    const SignalWatcher watcher(signals, remember_end, {.interrupt_repeat_max = Duration::zero()});
    kill(getpid(), signal);
    EXPECT_TRUE(soon([&] { return signals.stop.load(); }));
    EXPECT_EQ(ended_with, -1);
    kill(getpid(), SIGINT);
    EXPECT_TRUE(soon([] { return ended_with == to_int(ExitCode::kInterrupted); }));
    signals.loop_ends();
  }
}

TEST(SignalWatcher, GiveUpIsRetriedUntilItSucceeds) {
  ended_with = -1;
  StopSignals signals;
  LonelyStep step;
  signals.training = true;
  signals.loop_begins(step, std::chrono::milliseconds(1));
  {
    const SignalWatcher watcher(signals, remember_end, {.peers = std::chrono::milliseconds(2)});
    kill(getpid(), SIGTERM);
    EXPECT_TRUE(soon([] { return ended_with == to_int(ExitCode::kPreempted); }));
    EXPECT_TRUE(step.leaving);
    step.gone = true;
  }
  EXPECT_EQ(step.requests, 3);
  signals.loop_ends();
}

// Signals are handled while another thread leaves the step.
TEST(SignalWatcher, ASecondTermSignalEndsALeavingProcess) {
  for (const int second : {SIGTERM, SIGINT}) {
    ended_with = -1;
    StopSignals signals;
    LonelyStep step;
    signals.training = true;
    signals.loop_begins(step, std::chrono::milliseconds(1));
    {
      const SignalWatcher watcher(signals, remember_end,
                                  {.repeat_max = Duration::zero(),
                                   .interrupt_repeat_max = Duration::zero(),
                                   .peers = std::chrono::hours(1)});
      kill(getpid(), SIGTERM);
      EXPECT_TRUE(soon([&] { return step.leaving.load(); }));
      kill(getpid(), second);
      EXPECT_TRUE(soon([] { return ended_with != -1; }));
      EXPECT_EQ(ended_with,
                to_int(second == SIGTERM ? ExitCode::kPreempted : ExitCode::kInterrupted));
      step.gone = true;
    }
    signals.loop_ends();
  }
}

TEST(SignalWatcher, RepeatedSignalsAreOneRequestAndATimeLimitIsNotATermSignal) {
  ended_with = -1;
  StopSignals signals;
  LongStep step;
  signals.training = true;
  signals.loop_begins(step, std::chrono::hours(1));
  const auto send = [&](int signal) {
    kill(getpid(), signal);
    EXPECT_TRUE(soon([&] {
      sigset_t waiting;
      return sigpending(&waiting) == 0 && sigismember(&waiting, signal) == 0;
    }));
    kill(getpid(), SIGUSR2);  // is handled after the other one
    EXPECT_TRUE(soon([&] { return signals.checkpoint.load(); }));
    signals.checkpoint = false;
  };
  {
    const SignalWatcher watcher(
        signals, remember_end,
        {.repeat_max = std::chrono::hours(1), .interrupt_repeat_max = std::chrono::hours(1)});
    for (int i = 0; i < 3; ++i) send(SIGTERM);
    send(SIGINT);
    EXPECT_EQ(ended_with, -1) << "it came together with the others";
  }
  signals.stop = false;
  const SignalWatcher watcher(signals, remember_end, {.repeat_max = Duration::zero()});
  for (const int signal : {SIGUSR1, SIGUSR1, SIGTERM}) {
    send(signal);
    EXPECT_EQ(ended_with, -1);
  }
  send(SIGTERM);
  EXPECT_EQ(ended_with, to_int(ExitCode::kPreempted));
  signals.loop_ends();
}

}  // namespace
}  // namespace muster::trainer
