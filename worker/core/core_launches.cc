// Finished launches and their folders.
#include <algorithm>

#include "worker/core/core.h"

namespace muster::worker {

void Core::on(const LogSettled& event, Instant, ActionList& out) {
  if (unsettled_.erase(event.key) > 0) end_launch(event.key.launch(), out);
}

// The logs of an earlier run of the worker are not needed any more: its ranks died with it, and
// this run's registration reported that to the coordinator.
void Core::on(const LaunchesFound& event, Instant, ActionList& out) {
  for (const LaunchKey& launch : event.oldest_first) {
    const bool known = unfinished_.contains(launch) ||
                       std::find(finished_.begin(), finished_.end(), launch) != finished_.end();
    if (!known) finished_.push_back(launch);
  }
  prune_launches(out);
}

void Core::on(const JobEnded& event, Instant, ActionList& out) {
  if (!is_stale(event.epoch, "job's end", out)) out.push_back(DropLocalCopies{*store_, event.job});
}

void Core::end_launch(const LaunchKey& launch, ActionList& out) {
  const auto is_its = [&](const RankKey& key) { return key.launch() == launch; };
  const bool waits =
      std::any_of(ranks_.begin(), ranks_.end(), [&](const auto& e) { return is_its(e.first); }) ||
      std::any_of(reports_.begin(), reports_.end(),
                  [&](const auto& e) { return is_its(e.second.key); }) ||
      std::any_of(unsettled_.begin(), unsettled_.end(), is_its);
  // A launch that is not unfinished never had a folder.
  if (waits || unfinished_.erase(launch) == 0) return;
  finished_.push_back(launch);
  prune_launches(out);
}

void Core::prune_launches(ActionList& out) {
  while (finished_.size() > options_.launches_kept_max) {
    const LaunchKey oldest = finished_.front();
    finished_.pop_front();
    // The launch's end is acknowledged and thereby stored: no coordinator requests it again.
    const auto seen = seen_.find(oldest.job);
    if (seen != seen_.end() && seen->second.attempt == oldest.attempt &&
        keys_of(oldest.job).empty()) {
      seen_.erase(seen);
    }
    out.push_back(RemoveLaunch{oldest});
  }
}

}  // namespace muster::worker
