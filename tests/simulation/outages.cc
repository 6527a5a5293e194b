// Outages of the coordinator's network.
#include <algorithm>

#include <absl/strings/str_cat.h>

#include "tests/simulation/world.h"

namespace muster::simulation {

// The coordinator's network is away for all workers, or for all but one, which may share its host.
// It is back for one worker after the other. A fleet of one worker waits less long. A proxy that
// fails closes all streams first; a fleet of one worker would count that as the worker's end.
void World::make_an_outage() {
  ++totals_.outages;
  const bool is_total = workers_.size() < 3 || random.chance(0.7);
  const bool is_short = !is_total || workers_.size() == 1;
  const Duration time = random.between_ms(500, is_short ? 12'000 : 40'000);
  const size_t reachable = is_total ? workers_.size() : random.below(workers_.size());
  const bool is_closed = is_total && workers_.size() > 1 && random.chance(0.3);
  note(absl::StrCat("the coordinator's network is away for ", to_seconds(time), " s, except for ",
                    reachable < workers_.size() ? absl::StrCat("node", reachable) : "no node",
                    is_closed ? ", and the streams break" : ""));
  for (size_t host = 0; host < workers_.size(); ++host) {
    if (host == reachable) continue;
    if (is_closed) network.cut_one_of(static_cast<int>(host));
    const Duration until_back = time + random.between_ms(0, 2'000);
    network.partition(static_cast<int>(host), until_back);
    outage_until_ = std::max(outage_until_, scheduler.now() + until_back);
  }
}

void World::judge_outages() {
  if (faults_ != Faults::kOutages) return;
  for (const auto& [id, job] : coordinator.core().jobs()) {
    require(job.attempt.value() <= 1 + static_cast<uint64_t>(job.resizes),
            "an attempt of a healthy job was ended: ",
            job.faults.empty() ? job.reason : job.faults.front().message);
    require(job.state != coordinator::JobState::kFailed, "a healthy job failed: ", job.reason);
  }
}

}  // namespace muster::simulation
