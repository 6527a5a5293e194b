#include "coordinator/core/incident/recovery_times.h"

#include <algorithm>

namespace muster::coordinator {
namespace {

bool trains(Phase phase, uint64_t steps_made) {
  return phase == Phase::kData || phase == Phase::kStep || steps_made > 0;
}

}  // namespace

AttemptWatch::News AttemptWatch::observe(size_t rank, Phase phase, int64_t step,
                                         uint64_t steps_made) {
  News news;
  newest_ = std::max(newest_, step);
  if (base_ < 0 && step >= 0)
    base_ = step - static_cast<int64_t>(std::min(steps_made, static_cast<uint64_t>(step)));
  if (rank < loaded_.size() && !loaded_[rank] && trains(phase, steps_made)) {
    loaded_[rank] = true;
    news.loaded = ++count_ == loaded_.size();
  }
  if (!made_a_step_ && steps_made > 0) news.first_step = made_a_step_ = true;
  return news;
}

void mark(Recovery& recovery, RecoveryMoment moment, int64_t unix_ns) {
  const auto index = static_cast<size_t>(moment);
  if (recovery.unix_ns[index] != 0) return;
  for (size_t earlier = 0; earlier < index; ++earlier)
    unix_ns = std::max(unix_ns, recovery.unix_ns[earlier]);
  recovery.unix_ns[index] = unix_ns;
}

void begin_attempt(Recovery& recovery, int64_t unix_ns) {
  for (auto at = static_cast<size_t>(RecoveryMoment::kStarted); at < kRecoveryMoments; ++at)
    recovery.unix_ns[at] = 0;
  ++recovery.attempts;
  mark(recovery, RecoveryMoment::kStarted, unix_ns);
}

}  // namespace muster::coordinator
