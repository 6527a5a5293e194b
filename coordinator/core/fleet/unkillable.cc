#include "coordinator/core/fleet/unkillable.h"

#include <algorithm>
#include <iterator>

#include <absl/strings/str_cat.h>

#include "coordinator/core/records/list_text.h"

namespace muster::coordinator {
namespace {

// Checks per heartbeat interval. Fewer checks would miss a short silence.
constexpr int32_t kChecks = 2;

std::string rank_id_text(const RankId& id) {
  return absl::StrCat("rank ", id.rank.value(), " of job ", id.job.value());
}

bool is_torn_down(const RankState& rank) {
  return rank.process_state == 'R' || rank.process_state == 'S';
}

}  // namespace

void KillDeadline::expect_ends(Duration grace, bool waits, const CoreOptions& options,
                               Instant now) {
  ordered_at = now;
  killed_at = first_killed_at = now + grace;
  waits_for_saves = waits;
  save = {};
  next_check = *killed_at + options.heartbeat_interval / kChecks;
}

void KillDeadline::extend_for_saves(const SaveProgress& newest, Duration grace,
                                    const CoreOptions& options, Instant now) {
  if (!killed_at || !waits_for_saves || save == newest) return;
  expect_ends(save_wait(newest, grace), /*waits=*/true, options, now);
  save = newest;
}

bool KillDeadline::is_overdue(bool order_pending, const CoreOptions& options, Instant now) {
  next_check = now + options.heartbeat_interval / kChecks;
  if (order_pending) killed_at = std::max(*killed_at, now);
  return *killed_at + options.reaped_within <= now;
}

void KillDeadline::excuse(Duration time, Instant now) {
  const Duration part = std::min(time, now - ordered_at);
  ordered_at += part;
  if (killed_at) *killed_at += part;
  first_killed_at += part;
  next_check += part;
}

bool is_order_pending(const Job& job, const RanksByWorker& ranks, const Fleet& fleet, Instant now) {
  return std::ranges::any_of(fleet.all(), [&](const auto& entry) {
    const Worker& worker = entry.second;
    return worker.connected && fleet.is_quiet(worker, now) && has_ranks(job, ranks, worker);
  });
}

std::vector<RankId> unkillable_ranks(const Job& job, const RanksByWorker& ranks,
                                     const KillDeadline& deadline, const Worker& worker,
                                     const CoreOptions& options) {
  std::vector<RankId> ids;
  if (!deadline.killed_at || !worker.connected || !has_ranks(job, ranks, worker)) return ids;
  for (const Rank rank : awaited_ranks(job, ranks, worker)) {
    const RankId id{job.id, job.attempt, rank};
    const bool runs = is_torn_down(job.ranks[static_cast<size_t>(rank.value())]);
    const Duration time = runs ? options.torn_down_within : options.reaped_within;
    if (*deadline.killed_at + time <= worker.last_message && !worker.missing.contains(id))
      ids.push_back(id);
  }
  return ids;
}

std::vector<std::pair<WorkerName, std::vector<RankId>>> check_kill(
    const Job& job, const RanksByWorker& ranks, KillDeadline& deadline, const Fleet& fleet,
    const CoreOptions& options, Instant now) {
  std::vector<std::pair<WorkerName, std::vector<RankId>>> unkillable;
  if (!deadline.check_is_due(now)) return unkillable;
  if (!deadline.is_overdue(is_order_pending(job, ranks, fleet, now), options, now))
    return unkillable;
  for (const auto& [name, worker] : fleet.all()) {
    std::vector<RankId> ids = unkillable_ranks(job, ranks, deadline, worker, options);
    if (!ids.empty()) unkillable.emplace_back(name, std::move(ids));
  }
  return unkillable;
}

std::vector<RankId> overdue_orphans(Worker& worker, const Fleet& fleet, const CoreOptions& options,
                                    Instant now) {
  std::vector<RankId> overdue;
  if (!worker.orphans_since || *worker.orphans_since + options.torn_down_within > now)
    return overdue;
  if (fleet.is_quiet(worker, now)) {
    worker.orphans_since = now;
    return overdue;
  }
  worker.orphans_since.reset();
  std::ranges::set_difference(worker.orphans, worker.stuck, std::back_inserter(overdue));
  return overdue;
}

int64_t stuck_ranks_of(const Job& job, const Fleet& fleet) {
  int64_t ranks = 0;
  for (const auto& [name, worker] : fleet.all())
    ranks += std::ranges::count_if(worker.stuck, [&](const RankId& id) {
      return id.job == job.id && id.attempt == job.attempt;
    });
  return ranks;
}

std::string unkillable_text(const std::vector<RankId>& ranks, const CoreOptions& options) {
  std::vector<std::string> names;
  for (const RankId& id : ranks) names.push_back(rank_id_text(id));
  return absl::StrCat(list_text(names, 1), " cannot be killed: ", to_seconds(options.reaped_within),
                      " s after SIGKILL the process is there");
}

std::string stuck_text(const Worker& worker) {
  return absl::StrCat(worker.name.value(), " (stuck process: ", rank_id_text(*worker.stuck.begin()),
                      " cannot be killed)");
}

}  // namespace muster::coordinator
