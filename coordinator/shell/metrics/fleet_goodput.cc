#include "coordinator/shell/metrics/fleet_goodput.h"

#include <utility>

#include "coordinator/shell/metrics/metric_label.h"
#include "daemon/metric_families.h"

namespace muster::coordinator {
using daemon::counters;

namespace {

prometheus::Labels labels_of(size_t what, size_t cause) {
  return {{"cause", metric_label(loss_cause_name(static_cast<LossCause>(cause)))},
          {"class", metric_label(kTimeClassNames[what])}};
}

}  // namespace

FleetGoodput::FleetGoodput(prometheus::Registry& registry)
    : productive_(counters<"muster_fleet_productive_seconds_total">(registry).Add({})) {
  auto& lost = counters<"muster_fleet_lost_seconds_total">(registry);
  // Starts at 0: Prometheus sees no increase if a series begins with a value.
  for (size_t what = 1; what < kTimeClasses; ++what) {
    for (size_t cause = 0; cause < kLossCauses; ++cause)
      lost_[what][cause] = &lost.Add(labels_of(what, cause));
  }
}

void FleetGoodput::begin(const Core& core) {
  if (std::exchange(begun_, true)) return;
  for (const auto& [id, job] : core.jobs()) counted_[id] = job.account.settled;
}

void FleetGoodput::update(const Core& core, Instant now) {
  begin(core);
  std::erase_if(counted_, [&](const auto& entry) { return !core.jobs().contains(entry.first); });
  LossTable added;
  for (const auto& [id, job] : core.jobs()) {
    if (job.attempt == Attempt(0)) continue;
    const LossTable settled = core.account_of(job, now).settled;
    LossTable& counted = counted_[id];
    for (size_t what = 0; what < kTimeClasses; ++what) {
      for (size_t cause = 0; cause < kLossCauses; ++cause) {
        const Duration more = settled.time[what][cause] - counted.time[what][cause];
        if (more <= Duration::zero()) continue;
        counted.time[what][cause] += more;
        added.time[what][cause] += more;
      }
    }
  }
  for (const Duration time : added.time[static_cast<size_t>(TimeClass::kProductive)])
    productive_.Increment(to_seconds(time));
  for (size_t what = 1; what < kTimeClasses; ++what) {
    for (size_t cause = 0; cause < kLossCauses; ++cause)
      lost_[what][cause]->Increment(to_seconds(added.time[what][cause]));
  }
}

}  // namespace muster::coordinator
