// Waiting for a word in memory that threads or processes share. Internal to comm.
#pragma once

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <ctime>

#include <climits>

#include "common/time/time.h"

namespace muster::trainer {

// Sleeps until a futex_wake() of `word`, for at most `timeout`; returns at once if `word` differs
// from `seen`. May return spuriously. Several processes may map the word.
inline void futex_wait(const std::atomic<uint32_t>& word, uint32_t seen, Duration timeout) {
  constexpr int64_t kSecond = 1'000'000'000;
  const timespec relative{.tv_sec = timeout.count() / kSecond,
                          .tv_nsec = timeout.count() % kSecond};
  syscall(SYS_futex, &word, FUTEX_WAIT, seen, &relative, nullptr, 0);
}

// Wakes all threads that sleep on `word`.
inline void futex_wake(const std::atomic<uint32_t>& word) {
  syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

static_assert(sizeof(std::atomic<uint32_t>) == sizeof(uint32_t) &&
              std::atomic<uint32_t>::is_always_lock_free);

}  // namespace muster::trainer
