// Waits on a word of memory that threads or processes share. Internal to comm.
#pragma once

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <ctime>

#include <climits>

#include "common/time.h"

namespace muster::trainer {

// Sleeps while `word` equals `seen`, for at most `timeout`; may wake spuriously. The word may be
// mapped by several processes.
inline void futex_wait(const std::atomic<uint32_t>& word, uint32_t seen, Duration timeout) {
  constexpr int64_t kSecond = 1'000'000'000;
  const timespec relative{.tv_sec = timeout.count() / kSecond,
                          .tv_nsec = timeout.count() % kSecond};
  syscall(SYS_futex, &word, FUTEX_WAIT, seen, &relative, nullptr, 0);
}

inline void futex_wake(const std::atomic<uint32_t>& word) {
  syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

static_assert(sizeof(std::atomic<uint32_t>) == sizeof(uint32_t) &&
              std::atomic<uint32_t>::is_always_lock_free);

}  // namespace muster::trainer
