#include "cli/slurm/slurm_nodes.h"

#include <algorithm>
#include <utility>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>

#include "cli/slurm/slurm_commands.h"
#include "common/time/time.h"

namespace muster::cli {
namespace {

// These requests go to the job's own coordinator; while workers register, nothing else happens.
constexpr auto kWorkersPeriod = std::chrono::milliseconds(250);
constexpr size_t kNoticesMax = 100;  // more at once mean that the cluster is being shut down

std::string reason_of(const NodeMaintenance& maintenance) {
  return absl::StrCat("Slurm: reservation ", maintenance.reservation);
}

bool is_available(const v1::WorkerInfo& worker) { return worker.connected() && !worker.leaving(); }

}  // namespace

std::vector<NodeOrder> node_orders(const std::vector<SlurmNode>& nodes,
                                   const v1::ListWorkersResponse& workers, int32_t fewest,
                                   const std::map<std::string, std::string>& reported) {
  std::map<std::string, const v1::WorkerInfo*> known;
  for (const v1::WorkerInfo& worker : workers.workers()) known.emplace(worker.name(), &worker);
  std::vector<NodeOrder> orders;
  std::map<std::string, std::string> troubles;
  for (const SlurmNode& node : nodes) {
    if (const std::string trouble = node.trouble(); !trouble.empty()) troubles[node.name] = trouble;
  }
  const auto good = std::ranges::count_if(workers.workers(), [&](const v1::WorkerInfo& worker) {
    return is_available(worker) && !worker.has_exclusion() && !troubles.contains(worker.name());
  });
  for (const SlurmNode& node : nodes) {
    if (!known.contains(node.name)) continue;
    const auto trouble = troubles.find(node.name);
    if (trouble == troubles.end()) {
      if (reported.contains(node.name)) orders.push_back({node.name, NodeOrder::What::kAdmit, ""});
    } else if (!reported.contains(node.name)) {
      orders.push_back({node.name,
                        good >= fewest ? NodeOrder::What::kEvacuate : NodeOrder::What::kExclude,
                        trouble->second});
    }
  }
  return orders;
}

int32_t usable_workers(const v1::ListWorkersResponse& workers) {
  return static_cast<int32_t>(
      std::ranges::count_if(workers.workers(), [](const v1::WorkerInfo& worker) {
        return is_available(worker) && !worker.has_exclusion();
      }));
}

SlurmNodes::SlurmNodes(Options options, const CoordinatorTarget& coordinator)
    : options_(std::move(options)),
      client_(coordinator),
      awaited_(options_.job.node_names.begin(), options_.job.node_names.end()),
      launch_by_(monotonic_now() + options_.launch_time),
      staying_(static_cast<int32_t>(options_.job.node_names.size())) {
  thread_ = std::thread([this] { watch(); });
}

SlurmNodes::~SlurmNodes() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  client_.stop();
  thread_.join();
}

bool SlurmNodes::launched() const {
  const std::lock_guard lock(mutex_);
  return launched_;
}

int32_t SlurmNodes::staying() const {
  const std::lock_guard lock(mutex_);
  return staying_;
}

bool SlurmNodes::too_few() const {
  const std::lock_guard lock(mutex_);
  return launched_ && usable_ < options_.fewest;
}

bool SlurmNodes::coordinator_answers() const {
  const std::lock_guard lock(mutex_);
  return coordinator_answers_;
}

std::vector<std::string> SlurmNodes::take_events() {
  const std::lock_guard lock(mutex_);
  return std::exchange(notices_, {});
}

void SlurmNodes::report(std::string notice) {
  const std::lock_guard lock(mutex_);
  if (notices_.size() < kNoticesMax) notices_.push_back(std::move(notice));
}

bool SlurmNodes::wait(Duration time) {
  std::unique_lock lock(mutex_);
  return !changed_.wait_for(lock, time, [this] { return stop_; });
}

void SlurmNodes::watch() {
  Instant nodes_at = monotonic_now() + options_.nodes_period;
  Instant maintenance_at = nodes_at;
  do {
    poll_workers();
    if (monotonic_now() >= maintenance_at) {
      poll_maintenance();
      maintenance_at = monotonic_now() + options_.maintenance_period;
    }
    if (monotonic_now() >= nodes_at) {
      poll_nodes();
      nodes_at = monotonic_now() + options_.nodes_period;
    }
  } while (wait(launched() ? Duration(4 * kWorkersPeriod) : Duration(kWorkersPeriod)));
}

void SlurmNodes::give_up_waiting(const std::string& node, const std::string& reason) {
  if (awaited_.erase(node) > 0)
    report(absl::StrCat("no worker has registered from ", node,
                        "; no longer waiting for it: ", reason));
}

void SlurmNodes::poll_workers() {
  auto workers = client_.list_workers();
  if (!workers.ok()) {  // it is restarting
    const std::lock_guard lock(mutex_);
    coordinator_answers_ = false;
    return;
  }
  workers_.Clear();
  for (v1::WorkerInfo& worker : *workers->mutable_workers()) {
    if (std::ranges::find(options_.job.node_names, worker.name()) == options_.job.node_names.end())
      continue;
    if (is_available(worker)) awaited_.erase(worker.name());
    *workers_.add_workers() = std::move(worker);
  }
  if (monotonic_now() >= launch_by_) {
    for (const std::string& node : std::set<std::string>(awaited_))
      give_up_waiting(
          node, absl::StrCat(std::chrono::round<std::chrono::minutes>(options_.launch_time).count(),
                             " minutes have passed"));
  }
  const auto count = static_cast<int32_t>(std::ranges::count_if(workers_.workers(), is_available));
  const std::lock_guard lock(mutex_);
  coordinator_answers_ = true;
  launched_ = launched_ || awaited_.empty();
  if (launched_) staying_ = count;
  usable_ = usable_workers(workers_);
}

bool SlurmNodes::is_own_exclusion(const std::string& node) const {
  const auto worker = std::ranges::find(workers_.workers(), node, &v1::WorkerInfo::name);
  if (worker == workers_.workers().end() || !worker->has_exclusion()) return false;
  const std::string& reason = worker->exclusion().reason();
  const auto drained = drained_.find(node);
  const auto reported = reported_.find(node);
  return (drained != drained_.end() && reason == reason_of(drained->second)) ||
         (reported != reported_.end() && reason == reported->second);
}

void SlurmNodes::poll_maintenance() {
  const auto planned = query_slurm_maintenance(options_.job);
  if (!planned.ok()) return;  // the last plan stays valid
  const auto is_here = [&](const std::string& node) {
    return std::ranges::any_of(workers_.workers(),
                               [&](const v1::WorkerInfo& worker) { return worker.name() == node; });
  };
  const MaintenanceChanges changes = maintenance_changes(drained_, *planned);
  for (const auto& [node, maintenance] : changes.drained) {
    // The coordinator refuses times that are over.
    constexpr int64_t kSoonNs = 5'000'000'000;
    const int64_t at = std::max(maintenance.start_unix_ns, wall_clock_unix_ns() + kSoonNs);
    if (!is_here(node) || reported_.contains(node) ||
        !client_.exclude_worker(node, reason_of(maintenance), /*seconds=*/0, /*evacuate=*/false, at)
             .ok())
      continue;  // repeated at the next poll
    drained_[node] = maintenance;
    report(absl::StrCat(node, " is drained in time for Slurm's reservation ",
                        maintenance.reservation));
  }
  for (const std::string& node : changes.admitted) {
    // Another exclusion, by a user or for a fault, stays. One for a state of the node in Slurm is
    // requested again by the next poll of nodes.
    const bool is_own = is_own_exclusion(node);
    if (is_own && !client_.admit_worker(node).ok()) continue;
    drained_.erase(node);
    if (is_own) reported_.erase(node);
    report(absl::StrCat(node, " has no planned maintenance in Slurm any more"));
  }
}

void SlurmNodes::poll_nodes() {
  const auto nodes = query_slurm_nodes(absl::StrJoin(options_.job.node_names, ","));
  if (!nodes.ok()) return;  // without an answer of slurmctld the last state stays valid
  for (const SlurmNode& node : *nodes) {
    if (const std::string trouble = node.trouble(); !trouble.empty())
      give_up_waiting(node.name, trouble);
  }
  for (const NodeOrder& order : node_orders(*nodes, workers_, options_.fewest, reported_)) {
    const bool admits = order.what == NodeOrder::What::kAdmit;
    const auto done = admits ? client_.admit_worker(order.node)
                             : client_.exclude_worker(order.node, order.reason, /*seconds=*/0,
                                                      order.what == NodeOrder::What::kEvacuate);
    if (!done.ok()) continue;    // repeated at the next poll
    drained_.erase(order.node);  // a maintenance that is still planned is reported again
    if (admits) {
      reported_.erase(order.node);
      report(absl::StrCat(order.node, " is available again according to Slurm"));
    } else {
      reported_[order.node] = order.reason;
      report(absl::StrCat(
          order.node, " gets no more ranks (", order.reason, ")",
          order.what == NodeOrder::What::kEvacuate ? "; its jobs move to other nodes" : ""));
    }
  }
}

}  // namespace muster::cli
