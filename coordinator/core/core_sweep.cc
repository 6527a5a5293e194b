// Deep checks of idle nodes, on request and on a schedule. sweep/sweep.h contains the rules.
#include <algorithm>
#include <utility>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>

#include "coordinator/core/core.h"

namespace muster::coordinator {
namespace {

constexpr double kSweepSecondsMin = 0.1;
constexpr double kSweepSecondsMax = 600;
constexpr double kSweepSecondsDefault = 1;
// Nodes to check are searched this often in each interval of the schedule, but not more often than
// kIdleVisitMin, because a search visits all workers.
constexpr int kVisitsPerInterval = 16;
constexpr Duration kIdleVisitMin = std::chrono::seconds(2);

absl::Status check_sweep_request(const NodeSweepRequested& event, const InputLimits& limits) {
  if (event.seconds != 0 &&
      !(event.seconds >= kSweepSecondsMin && event.seconds <= kSweepSecondsMax)) {
    return absl::InvalidArgumentError(absl::StrFormat("seconds is %g; it must be from %g to %g",
                                                      event.seconds, kSweepSecondsMin,
                                                      kSweepSecondsMax));
  }
  const std::string& folder = event.storage_folder;
  if (!folder.empty() && (!folder.starts_with('/') || folder.size() > limits.detail_bytes_max)) {
    return absl::InvalidArgumentError(
        absl::StrCat("storage_folder is \"", one_line(folder, limits.detail_bytes_max),
                     "\"; it must be an absolute path of at most ", limits.detail_bytes_max,
                     " bytes, on every node"));
  }
  return absl::OkStatus();
}

}  // namespace

// Returns why the node cannot be checked now; empty: it can.
std::string Core::why_busy(const Worker& worker, const NodeUses& uses) const {
  if (!worker.connected || worker.given_up) return "its worker is not connected";
  if (worker.leaving) return "its worker is shutting down";
  if (!fleet_.takes_ranks(worker))
    return absl::StrCat("its worker has version ", worker.version, ", the coordinator ",
                        options_.version);
  if (worker.check.id != 0) return "a short check is in progress";
  if (!worker.orphans.empty() || !worker.missing.empty()) return "ranks of an earlier attempt run";
  const auto use = uses.find(worker.name);
  if (use != uses.end() && use->second.slots > 0) return "it has ranks, or is reserved for a job";
  return "";
}

void Core::on(const NodeSweepRequested& event) {
  actions_.push_back(Reply{event.token, begin_sweep(event, false), JobId{}});
  advance_sweep();
}

absl::Status Core::begin_sweep(const NodeSweepRequested& event, bool scheduled) {
  if (auto status = check_sweep_request(event, options_.limits); !status.ok()) return status;
  if (sweep_ && !sweep_->is_over()) {
    return absl::FailedPreconditionError(absl::StrCat("sweep ", sweep_->id(),
                                                      " is running: ", sweep_->stage_text(),
                                                      "; repeat the request when it has ended"));
  }
  const NodeUses uses = use_by_worker();
  std::vector<WorkerName> idle;
  std::vector<std::pair<WorkerName, std::string>> busy;
  const auto sort = [&](const Worker& worker) {
    std::string why = why_busy(worker, uses);
    if (why.empty())
      idle.push_back(worker.name);
    else
      busy.emplace_back(worker.name, std::move(why));
  };
  for (const WorkerName& name : std::set(event.workers.begin(), event.workers.end())) {
    const Worker* worker = fleet_.find(name);
    if (worker == nullptr) {
      return absl::NotFoundError(absl::StrCat(
          "there is no worker \"", one_line(name.value(), options_.limits.name_bytes_max),
          "\"; `muster node list` shows those there are"));
    }
    sort(*worker);
  }
  if (event.workers.empty()) {
    for (const auto& [name, worker] : fleet_.all())
      if (nodes_.is_sound(name)) sort(worker);
  }
  if (idle.empty()) {
    return absl::FailedPreconditionError(
        busy.empty() ? "there is no node that is not excluded; name the nodes to check"
                     : absl::StrCat("no node is idle; ", busy.front().first.value(), ": ",
                                    busy.front().second));
  }
  // Ids must differ from those before a restart of the coordinator, because the rendezvous stores
  // of workers refuse the groups that have ended. The clock exceeds the number of groups by far.
  constexpr int64_t kIdTime = 100'000;  // ns; 32 bits of an id then repeat after five days
  const uint64_t first =
      std::max(sweep_ ? sweep_->next_id() : 1, static_cast<uint64_t>(time_.unix_ns / kIdTime));
  const uint64_t id = sweep_ ? sweep_->id() + 1 : 1;
  sweep_.emplace(id,
                 SweepRequest{event.seconds == 0 ? kSweepSecondsDefault : event.seconds,
                              event.storage_folder, event.links, scheduled},
                 idle, first, time_.unix_ns);
  for (auto& [name, why] : busy) sweep_->skip(name, std::move(why));
  return absl::OkStatus();
}

// Begins a sweep of the idle nodes whose last deep check is too old. Nodes that would be due soon
// join them, so that the links between many nodes are tested. A job that waits does not prevent
// it: the job may need other nodes, and a check ends when ranks need its node.
void Core::sweep_idle_nodes() {
  const Duration every = options_.idle_check_every;
  if (every <= Duration::zero() || time_.now < next_idle_visit_) return;
  next_idle_visit_ = time_.now + std::max(every / kVisitsPerInterval, kIdleVisitMin);
  if (fleet_.is_cut_off() || (sweep_ && !sweep_->is_over())) return;
  const NodeUses uses = use_by_worker();
  NodeSweepRequested request;
  bool is_due = false;
  for (const auto& [name, worker] : fleet_.all()) {
    const int64_t age = time_.unix_ns - deep_checks_.newest_unix_ns(name);
    if (age < every.count() / 2 || !nodes_.is_sound(name) || !why_busy(worker, uses).empty())
      continue;
    request.workers.push_back(name);
    is_due = is_due || age >= every.count();
  }
  if (!is_due || !begin_sweep(request, true).ok()) return;
  advance_sweep();
}

// Ends the checks that are late. A worker is late if it has reported after the deadline and no
// message of it waits to be read: its answer would have come first.
void Core::expire_sweep(const Tick& event) {
  if (!sweep_ || event.is_behind || fleet_.is_cut_off()) return;
  sweep_->expire(
      [&](const WorkerName& name, Instant deadline) {
        const Worker* worker = fleet_.find(name);
        return worker != nullptr && worker->last_heartbeat > deadline &&
               std::ranges::find(event.unread, name) == event.unread.end();
      },
      time_.now, time_.unix_ns);
}

// The node's part of the sweep shows nothing.
void Core::leave_sweep(const WorkerName& name) {
  if (!sweep_) return;
  sweep_->skip_pending(name, "its worker was lost");
  advance_sweep();
}

// Sends the next orders of the sweep, unless answers are awaited, and carries out its decisions.
void Core::advance_sweep() {
  if (!sweep_) return;
  const auto address_of = [this](const WorkerName& name) {
    const Worker* worker = fleet_.find(name);
    return worker == nullptr ? "" : worker->rendezvous_address;
  };
  record_swept_nodes();
  exclude_swept_nodes();
  while (!sweep_->is_over() && !sweep_->is_waiting()) {
    for (SweepOrder& order : sweep_->advance(deep_checks_, address_of, time_.now, time_.unix_ns)) {
      const Worker* worker = fleet_.find(order.worker);
      if (worker != nullptr && worker->connected)
        actions_.push_back(
            send_action(*worker, SendCheckNode{order.check, std::move(order.order)}));
      else
        sweep_->skip_pending(order.worker, "its worker was lost");
    }
    record_swept_nodes();
    exclude_swept_nodes();
  }
}

// Excludes the nodes that have failed, as long as enough of the fleet remains: separate sweeps may
// find the same common cause.
void Core::exclude_swept_nodes() {
  const std::vector<SweepExclusion> exclusions = sweep_->take_exclusions();
  if (exclusions.empty()) return;
  auto excluded =
      static_cast<size_t>(std::ranges::count_if(nodes_.unsound(), [this](const auto& name) {
        const NodeRecord& node = *nodes_.find(name);
        return node.excluded && node.suspicion == Suspicion::kDeepCheckFailed;
      }));
  for (const SweepExclusion& exclusion : exclusions) {
    const NodeRecord* known = nodes_.find(exclusion.worker);
    const bool is_out = known != nullptr && known->excluded && known->until_unix_ns == 0;
    if (!is_out && excluded >= excluded_max(fleet_.all().size())) {
      sweep_->add_finding(absl::StrCat(
          exclusion.worker.value(), " is not excluded for its deep check, because ", excluded,
          " of ", fleet_.all().size(), " nodes are excluded for theirs: ", exclusion.reason));
      continue;
    }
    if (!is_out) ++excluded;
    suspect_node(exclusion.worker, {Suspicion::kDeepCheckFailed, exclusion.reason});
  }
}

// Stores the results that have become final.
void Core::record_swept_nodes() {
  for (const WorkerName& name : sweep_->take_final()) {
    const SweptNode& node = sweep_->nodes().at(name);
    deep_checks_.add(name, *node.record);
    const bool passed = node.outcome == NodeOutcome::kPassed;
    actions_.push_back(NodeDecision{
        name, passed ? NodeDecision::What::kCheckPassed : NodeDecision::What::kCheckFailed,
        Suspicion::kDeepCheckFailed,
        absl::StrFormat("%s its deep check in %.2f s: %s", passed ? "has passed" : "has failed",
                        node.record->seconds, node.sentence)});
  }
}

}  // namespace muster::coordinator
