#include "worker/shell/evidence/oom_kill_history.h"

#include <utility>

namespace muster::worker {

OomKillHistory::OomKillHistory(OomKillCounter counter, Instant now) : counter_(std::move(counter)) {
  samples_.push_back({now, counter_.count()});
}

void OomKillHistory::add(int64_t count, Instant at) {
  if (count < 0 || samples_.empty() || at < samples_.back().at) return;
  if (samples_.back().count >= 0 && count != samples_.back().count) samples_.push_back({at, count});
  while (samples_.size() > 1 && samples_[1].at + kOomKillAge <= at) samples_.pop_front();
}

int64_t OomKillHistory::count_before(Instant now) const {
  int64_t count = samples_.empty() ? -1 : samples_.front().count;
  for (const Sample& sample : samples_)
    if (sample.at + kOomKillAge <= now) count = sample.count;
  return count;
}

}  // namespace muster::worker
