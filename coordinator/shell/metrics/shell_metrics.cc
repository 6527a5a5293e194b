#include "coordinator/shell/metrics/shell_metrics.h"

#include <type_traits>

#include "daemon/disk_gauges.h"
#include "daemon/limits.h"
#include "daemon/metric_families.h"
#include "daemon/metric_words.h"
#include "daemon/metrics_text.h"

namespace muster::coordinator {
namespace {

using daemon::counters;
using daemon::gauges;
using daemon::histograms;
using Buckets = prometheus::Histogram::BucketBoundaries;

// From an idle loop to one that workers count as silent.
const Buckets kLagSeconds = {0.001, 0.005, 0.025, 0.1, 0.25, 0.5, 1, 2, 5, 10, 30};
// From a disk that caches to one that hangs.
const Buckets kTransactionSeconds = {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1,
                                     0.25,  0.5,    1,     2.5,  5,     10,   60};
// Commands wait for 5 s.
const Buckets kRpcSeconds = {0.001, 0.005, 0.025, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30};

// The methods of all services.
constexpr std::array kUnaryMethods = {
    "SubmitJob",    "ListJobs",       "GetJob",        "CancelJob",      "CheckpointJob",
    "UpdateJob",    "ListWorkers",    "ExcludeWorker", "AdmitWorker",    "ListIncidents",
    "GetIncident",  "GetJobHistory",  "DumpJobStacks", "GetCoordinator", "CheckNodes",
    "GetNodeSweep", "ListNodeChecks", "ListShares"};
constexpr std::array kStreamMethods = {"Connect", "WatchJob", "FollowLogs", "BackupState",
                                       "TakeProfile"};
// Reads that a late loop refuses, and the page of metrics, which is then shortened.
constexpr std::array kShedMethods = {
    "ListJobs",       "GetJob",        "ListWorkers", "ListIncidents", "GetIncident",
    "GetJobHistory",  "DumpJobStacks", "WatchJob",    "FollowLogs",    "GetNodeSweep",
    "ListNodeChecks", "ListShares",    "metrics"};

// Returns the label of an event. Does not compile for an event without a label.
struct EventLabel {
  const char* operator()(const JobSubmitted&) const { return "job_submitted"; }
  const char* operator()(const JobCancelRequested&) const { return "job_cancel_requested"; }
  const char* operator()(const JobCheckpointRequested&) const { return "job_checkpoint_requested"; }
  const char* operator()(const JobUpdateRequested&) const { return "job_update_requested"; }
  const char* operator()(const WorkerRegistered&) const { return "worker_registered"; }
  const char* operator()(const WorkerDisconnected&) const { return "worker_disconnected"; }
  const char* operator()(const WorkerLeaving&) const { return "worker_leaving"; }
  const char* operator()(const HeartbeatReceived&) const { return "heartbeat"; }
  const char* operator()(const RankExited&) const { return "rank_exited"; }
  const char* operator()(const StacksRequested&) const { return "stacks_requested"; }
  const char* operator()(const StackReportReceived&) const { return "stack_report"; }
  const char* operator()(const SymbolsReceived&) const { return "symbols"; }
  const char* operator()(const NodeChecked&) const { return "node_checked"; }
  const char* operator()(const NodeExcludeRequested&) const { return "node_exclude_requested"; }
  const char* operator()(const NodeAdmitRequested&) const { return "node_admit_requested"; }
  const char* operator()(const NodeSweepRequested&) const { return "node_sweep_requested"; }
  const char* operator()(const QueuePolicyChanged&) const { return "queue_policy_changed"; }
  const char* operator()(const Tick&) const { return "tick"; }
};

template <size_t... kinds>
void add_events(prometheus::Family<prometheus::Counter>& family,
                std::array<prometheus::Counter*, std::variant_size_v<Event>>& events,
                std::index_sequence<kinds...>) {
  ((events[kinds] =
        &family.Add({{"event", EventLabel()(std::variant_alternative_t<kinds, Event>{})}})),
   ...);
}

const char* label_of(Registration registration) {
  switch (registration) {
    case Registration::kNew:
      return "new";
    case Registration::kReconnected:
      return "reconnected";
    case Registration::kRefused:
      return "refused";
  }
  return "?";
}

}  // namespace

ShellMetrics::ShellMetrics()
    : lag_(histograms<"muster_coordinator_loop_lag_seconds">(registry_).Add({}, kLagSeconds)),
      oldest_event_age_(gauges<"muster_coordinator_oldest_event_age_seconds">(registry_).Add({})),
      queue_length_(gauges<"muster_coordinator_event_queue_length">(registry_).Add({})),
      transactions_(histograms<"muster_coordinator_transaction_seconds">(registry_).Add(
          {}, kTransactionSeconds)),
      failed_transactions_(counters<"muster_coordinator_transaction_failures_total">(registry_)),
      registrations_(counters<"muster_coordinator_registrations_total">(registry_)),
      rpcs_(counters<"muster_coordinator_rpcs_total">(registry_)),
      rpc_seconds_(histograms<"muster_coordinator_rpc_seconds">(registry_)),
      streams_(gauges<"muster_coordinator_streams">(registry_)),
      disk_bytes_(gauges<"muster_coordinator_disk_bytes">(registry_)),
      disk_free_(gauges<"muster_coordinator_disk_free_bytes">(registry_)),
      epoch_(gauges<"muster_coordinator_epoch">(registry_)),
      leader_(gauges<"muster_coordinator_leader">(registry_).Add({})),
      overloaded_(gauges<"muster_coordinator_overloaded">(registry_).Add({})),
      shed_(counters<"muster_coordinator_shed_reads_total">(registry_)),
      policy_valid_(gauges<"muster_coordinator_queue_policy_valid">(registry_).Add({})),
      lost_audit_(counters<"muster_coordinator_audit_lost_total">(registry_).Add({})),
      process_(registry_) {
  show_policy(true);
  gauges<"muster_coordinator_event_queue_limit">(registry_).Add({}).Set(
      static_cast<double>(daemon::kEventQueueMax));
  add_events(counters<"muster_coordinator_events_total">(registry_), events_,
             std::make_index_sequence<std::variant_size_v<Event>>());
  // Starts at 0: Prometheus sees no increase if a series begins with 1.
  for (const char* reason : {"no_space", "other"}) failed_transactions_.Add({{"reason", reason}});
  for (const Registration result :
       {Registration::kNew, Registration::kReconnected, Registration::kRefused})
    registrations_.Add({{"result", label_of(result)}});
  for (const char* method : kUnaryMethods) {
    rpcs_.Add({{"code", "OK"}, {"method", method}});
    rpc_seconds_.Add({{"method", method}}, kRpcSeconds);
  }
  for (const char* method : kShedMethods) shed_.Add({{"method", method}});
  for (const char* method : kStreamMethods) {
    rpcs_.Add({{"code", "OK"}, {"method", method}});
    streams_.Add({{"method", method}});
  }
}

void ShellMetrics::count_event(const Event& event, Duration lag) {
  events_.at(event.index())->Increment();
  lag_.Observe(to_seconds(lag));
}

void ShellMetrics::count_transaction(Duration time) { transactions_.Observe(to_seconds(time)); }

void ShellMetrics::count_failed_transaction(const absl::Status& status) {
  failed_transactions_.Add({{"reason", absl::IsResourceExhausted(status) ? "no_space" : "other"}})
      .Increment();
}

void ShellMetrics::count_registration(Registration registration) {
  registrations_.Add({{"result", label_of(registration)}}).Increment();
}

void ShellMetrics::count_rpc(std::string_view method, const absl::Status& status) {
  rpcs_.Add({{"code", absl::StatusCodeToString(status.code())}, {"method", std::string(method)}})
      .Increment();
}

void ShellMetrics::time_rpc(std::string_view method, Duration time) {
  rpc_seconds_.Add({{"method", std::string(method)}}, kRpcSeconds).Observe(to_seconds(time));
}

void ShellMetrics::count_shed(std::string_view method) {
  shed_.Add({{"method", std::string(method)}}).Increment();
}

prometheus::Gauge& ShellMetrics::open_streams(std::string_view method) {
  return streams_.Add({{"method", std::string(method)}});
}

void ShellMetrics::show_disk(const std::string& state_dir) {
  {
    const std::lock_guard lock(mutex_);
    state_dir_ = state_dir;
  }
  read_disk();
}

void ShellMetrics::read_disk() {
  std::string state_dir;
  {
    const std::lock_guard lock(mutex_);
    state_dir = state_dir_;
  }
  daemon::set_disk_gauges(state_dir, disk_bytes_, disk_free_);
}

void ShellMetrics::begin_epoch(Epoch epoch) {
  epoch_.Add({}).Set(static_cast<double>(epoch.value()));
}

std::string ShellMetrics::render(const LoopLoad& load) {
  const std::lock_guard lock(mutex_);
  queue_length_.Set(static_cast<double>(load.queued));
  oldest_event_age_.Set(to_seconds(load.oldest_event_age));
  // Only a process that holds the lock of the state has a loop.
  leader_.Set(load.decides ? 1 : 0);
  overloaded_.Set(load.overloaded ? 1 : 0);
  process_.update();
  return daemon::metrics_text(registry_.Collect());
}

}  // namespace muster::coordinator
