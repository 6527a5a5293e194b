#include "coordinator/shell/metrics/incident_metrics.h"

#include <algorithm>
#include <string>
#include <tuple>

#include "coordinator/shell/metrics/job_metrics.h"
#include "coordinator/shell/metrics/metric_label.h"
#include "daemon/metric_families.h"
#include "daemon/metric_words.h"

namespace muster::coordinator {
namespace {

std::string kind_label(IncidentKind kind) {
  return metric_label(kIncidentKindNames[static_cast<size_t>(kind)]);
}

// Returns the time of the verdict if the incident has ended an attempt. Otherwise returns the time
// of the newest update, which is close to it, or of the first one for slower steps: such an
// incident may be open for days.
int64_t verdict_time(const Incident& incident) {
  const int64_t decided = incident.recovery ? incident.recovery->at(RecoveryMoment::kDecided) : 0;
  if (decided != 0) return decided;
  if (incident.moments.empty()) return 0;
  const bool is_of_steps = incident.kind == IncidentKind::kSlowerThanPlan ||
                           incident.kind == IncidentKind::kSlowerThanBefore;
  return (is_of_steps ? incident.moments.front() : incident.moments.back()).unix_ns;
}

}  // namespace

IncidentMetrics::IncidentMetrics(prometheus::Registry& registry)
    : total_(daemon::counters<"muster_fleet_incidents_total">(registry)),
      times_(daemon::gauges<"muster_job_incident_timestamp_seconds">(registry)) {
  // Starts at 0: Prometheus sees no increase if a series begins with 1.
  for (size_t i = 0; i < kIncidentKindNames.size(); ++i)
    total_.Add({{"kind", kind_label(static_cast<IncidentKind>(i))}});
}

void IncidentMetrics::count(const Core& core, const Incident& incident, int64_t unix_ns) {
  total_.Add({{"kind", kind_label(incident.kind)}}).Increment();
  const auto job = core.jobs().find(incident.job);
  if (job != core.jobs().end()) show(job->second, incident, unix_ns);
}

void IncidentMetrics::restore(const Core& core, const Incident& incident) {
  const auto job = core.jobs().find(incident.job);
  if (job != core.jobs().end()) show(job->second, incident, verdict_time(incident));
}

void IncidentMetrics::show(const Job& job, const Incident& incident, int64_t unix_ns) {
  Shown& shown = shown_[{job.id, incident.kind}];
  if (shown.time != nullptr && shown.id > incident.id) return;
  if (shown.time != nullptr) times_.Remove(shown.time);
  const bool named = !incident.suspects.empty();
  const bool has_rank = named && incident.suspects[0].rank.value() >= 0;
  daemon::MetricLabels labels = daemon::job_labels(job.id, job.spec.name);
  labels.emplace("kind", kind_label(incident.kind));
  labels.emplace("incident", std::to_string(incident.id.value()));
  labels.emplace("rank", has_rank ? std::to_string(incident.suspects[0].rank.value()) : "");
  labels.emplace("worker", named ? incident.suspects[0].worker.value() : "");
  shown = {incident.id, unix_ns, &times_.Add(labels)};
  shown.time->Set(static_cast<double>(unix_ns) / 1e9);

  if (shown_.size() <= kIncidentsShown) return;
  const auto oldest =
      std::min_element(shown_.begin(), shown_.end(), [](const auto& a, const auto& b) {
        return std::tie(a.second.unix_ns, a.second.id) < std::tie(b.second.unix_ns, b.second.id);
      });
  times_.Remove(oldest->second.time);
  shown_.erase(oldest);
}

void IncidentMetrics::update(const Core& core, int64_t unix_ns) {
  std::erase_if(shown_, [&](const auto& entry) {
    const auto job = core.jobs().find(entry.first.first);
    const bool is_over = job == core.jobs().end() || ended_long_ago(job->second, unix_ns);
    if (!is_over || unix_ns - entry.second.unix_ns <= kIncidentShownFor.count()) return false;
    times_.Remove(entry.second.time);
    return true;
  });
}

}  // namespace muster::coordinator
