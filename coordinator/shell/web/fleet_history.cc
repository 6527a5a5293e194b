#include "coordinator/shell/web/fleet_history.h"

#include <set>

namespace muster::coordinator {
namespace {

using nlohmann::json;

// Returns the lost seconds by the preceding fault, or by the activity without one.
std::map<std::string, double> lost_by_cause(const LossTable& table) {
  std::map<std::string, double> lost;
  for (size_t what = 0; what < kTimeClasses; ++what) {
    if (static_cast<TimeClass>(what) == TimeClass::kProductive) continue;
    for (size_t cause = 0; cause < kLossCauses; ++cause) {
      const Duration time = table.time[what][cause];
      if (time == Duration::zero()) continue;
      const bool has_cause = static_cast<LossCause>(cause) != LossCause::kNone;
      lost[std::string(has_cause ? loss_cause_name(static_cast<LossCause>(cause))
                                 : kTimeClassNames[what])] += to_seconds(time);
    }
  }
  return lost;
}

}  // namespace

void FleetHistory::add(const FleetSample& sample, Instant now) {
  added_at_ = now;
  const auto count = [&](JobState state) { return sample.jobs[static_cast<size_t>(state)]; };
  points_.push_back({.unix_ns = sample.unix_ns,
                     .gpus_used = sample.gpus.used,
                     .gpus_total = sample.gpus.total,
                     .running_jobs = count(JobState::kRunning) + count(JobState::kSuspect) +
                                     count(JobState::kDumping),
                     .queued_jobs = count(JobState::kQueued),
                     .tokens_per_second = sample.tokens_per_second,
                     .productive_seconds = to_seconds(sample.goodput.productive()),
                     .wall_seconds = to_seconds(sample.goodput.wall()),
                     .lost = lost_by_cause(sample.goodput)});
  if (points_.size() < kFleetPoints) return;
  for (size_t i = 0; 2 * i < points_.size(); ++i) points_[i] = points_[2 * i];
  points_.resize(points_.size() / 2);
  interval_ *= 2;
}

json FleetHistory::to_json() const {
  json columns = json::object();
  for (const char* name : {"unix_ns", "gpus_used", "gpus_total", "running_jobs", "queued_jobs",
                           "tokens_per_second", "productive_seconds", "wall_seconds"})
    columns[name] = json::array();
  std::set<std::string> causes;
  for (const Point& point : points_) {
    columns["unix_ns"].push_back(point.unix_ns);
    columns["gpus_used"].push_back(point.gpus_used);
    columns["gpus_total"].push_back(point.gpus_total);
    columns["running_jobs"].push_back(point.running_jobs);
    columns["queued_jobs"].push_back(point.queued_jobs);
    columns["tokens_per_second"].push_back(point.tokens_per_second);
    columns["productive_seconds"].push_back(point.productive_seconds);
    columns["wall_seconds"].push_back(point.wall_seconds);
    for (const auto& [cause, seconds] : point.lost) causes.insert(cause);
  }
  json losses = json::object();
  for (const std::string& cause : causes) {
    losses[cause] = json::array();
    for (const Point& point : points_) {
      const auto found = point.lost.find(cause);
      losses[cause].push_back(found == point.lost.end() ? 0.0 : found->second);
    }
  }
  return {{"interval_seconds", to_seconds(interval_)},
          {"columns", std::move(columns)},
          {"losses", std::move(losses)}};
}

}  // namespace muster::coordinator
