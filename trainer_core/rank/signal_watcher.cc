#include "trainer_core/rank/signal_watcher.h"

#include <pthread.h>

#include <algorithm>
#include <csignal>
#include <optional>

#include "common/time/time.h"

namespace muster::trainer {
namespace {

sigset_t watched_signals() {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : {SIGTERM, SIGINT, SIGUSR1, SIGUSR2}) sigaddset(&set, signal);
  return set;
}

// The interval at which give_up() is retried until it succeeds.
constexpr Duration kGiveUpRetry = std::chrono::milliseconds(50);

// Returns the next signal; nullopt if `deadline` passes first.
std::optional<int> next_signal(const sigset_t& set, Instant deadline) {
  while (true) {
    const Duration left = std::max(deadline - monotonic_now(), Duration::zero());
    const auto seconds = std::chrono::floor<std::chrono::seconds>(left);
    const timespec timeout{.tv_sec = seconds.count(), .tv_nsec = (left - seconds).count()};
    const int signal = sigtimedwait(&set, nullptr, &timeout);
    if (signal > 0) return signal;
    if (left == Duration::zero()) return std::nullopt;
  }
}

}  // namespace

SignalWatcher::SignalWatcher(StopSignals& signals, EndProcess end_process, const SignalWaits& waits)
    : signals_(signals), end_process_(end_process), waits_(waits) {
  const sigset_t set = watched_signals();
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  thread_ = std::thread([this] { watch(); });
}

SignalWatcher::~SignalWatcher() {
  done_ = true;
  pthread_kill(thread_.native_handle(), SIGUSR1);  // ends the wait
  thread_.join();
  if (leaving_.joinable()) leaving_.join();
}

void SignalWatcher::watch() {
  const sigset_t set = watched_signals();
  while (true) {
    const std::optional<int> signal = next_signal(set, std::min(leave_at_, give_up_at_));
    if (done_) return;
    if (signal) {
      take(*signal, monotonic_now());
    } else {
      act(monotonic_now());
    }
  }
}

void SignalWatcher::take(int signal, Instant now) {
  if (signal == SIGUSR2) {
    signals_.checkpoint = true;
    return;
  }
  if (!signals_.training) end_process_(ExitCode::kPreempted);
  const bool again = signals_.stop.exchange(true);
  if (!again) {
    stop_requested_at_ = now;
    leave_at_ = now + signals_.vote_wait();
    give_up_at_ = now + waits_.peers;
  } else if (signal == SIGINT && now - stop_requested_at_ >= waits_.interrupt_repeat_max) {
    end_process_(ExitCode::kInterrupted);
  } else if (signal == SIGTERM && first_end_signal_ &&
             now - *first_end_signal_ >= waits_.repeat_max) {
    end_process_(ExitCode::kPreempted);
  }
  if (signal != SIGUSR1 && !first_end_signal_) first_end_signal_ = now;
}

void SignalWatcher::act(Instant now) {
  if (leave_at_ <= now) {
    leave_at_ = Instant::max();
    leaving_ = std::thread([this] { signals_.leave_step(end_process_); });
  }
  if (give_up_at_ <= now)
    give_up_at_ = signals_.give_up(end_process_) ? Instant::max() : now + kGiveUpRetry;
}

}  // namespace muster::trainer
