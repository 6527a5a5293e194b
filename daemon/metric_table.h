// Every metric that Muster exports, in one table. `muster metrics` prints it, docs/metrics.md is
// generated from it, and tests compare scrapes with it. Families are created from it
// (daemon/metric_families.h), so a metric that is missing here does not compile.
//
//   muster_job_…{job_id, name}                   a job, from its ranks' heartbeats
//   muster_jobs, muster_workers, muster_slots    counts by state
//   muster_fleet_…{worker}                       a worker, as seen by the coordinator
//   muster_coordinator_…, process_…              the coordinator itself
//   muster_rank_…{job_id, name, attempt, rank}   one rank of a worker, from its progress page
//   muster_worker_…                              the worker itself
//   muster_gpu_…{gpu}                            a GPU of the worker, from NVML
//   muster_network_…{device}                     a network device of the worker, from sysfs
//
// daemon/metric_words.h bounds the labels' values. A job's number is `job_id`, because Prometheus
// adds a label `job` of its own to each series. Training metrics end in the same words everywhere:
// step, step_seconds, tokens_per_second, mfu_ratio, loss, grad_norm. Their series begin with the
// first completed step: before the first step there is no loss, not even 0.
#pragma once

#include <algorithm>
#include <array>
#include <string_view>

namespace muster::daemon {

enum class MetricType { kCounter, kGauge, kHistogram };
constexpr std::array<std::string_view, 3> kMetricTypeNames = {"counter", "gauge", "histogram"};

enum class MetricSource { kCoordinator, kWorker };
constexpr std::array<std::string_view, 2> kMetricSourceNames = {"coordinator", "worker"};

struct Metric {
  MetricSource source;
  MetricType type;
  std::string_view name;
  // in alphabetical order, separated by spaces; a histogram also has `le`
  std::string_view labels;
  std::string_view help;
};

namespace metric_rows {

using enum MetricType;
constexpr MetricSource kC = MetricSource::kCoordinator;
constexpr MetricSource kW = MetricSource::kWorker;

// clang-format off
constexpr Metric kRows[] = {
    {kC, kGauge, "muster_coordinator_build_info", "version", "1, with the version as a label."},
    {kC, kGauge, "muster_coordinator_epoch", "", "How many times the coordinator was started with this state."},
    {kC, kGauge, "muster_coordinator_leader", "", "1 while this coordinator holds the state and decides."},
    {kC, kGauge, "muster_coordinator_disk_bytes", "", "Size of the disk with the state folder."},
    {kC, kGauge, "muster_coordinator_disk_free_bytes", "", "Free space of that disk in bytes."},
    {kC, kHistogram, "muster_coordinator_loop_lag_seconds", "", "Time from an event's arrival in the core loop's queue until the loop handles it."},
    {kC, kGauge, "muster_coordinator_oldest_event_age_seconds", "", "Age of the oldest event that the core loop has not handled completely; 0 if there is none."},
    {kC, kGauge, "muster_coordinator_event_queue_length", "", "Events that the core loop has not handled yet, including those that it has taken from the queue."},
    {kC, kGauge, "muster_coordinator_event_queue_limit", "", "Maximum number of waiting events. Beyond it, requests are refused and workers' streams are closed."},
    {kC, kCounter, "muster_coordinator_events_total", "event", "Events that the core loop has handled, by kind."},
    {kC, kHistogram, "muster_coordinator_transaction_seconds", "", "Time to store the changes of an iteration of the core loop, including waits for space."},
    {kC, kCounter, "muster_coordinator_transaction_failures_total", "reason", "Failed attempts to store changes: no_space, which is repeated, or other, which ends the coordinator."},
    {kC, kCounter, "muster_coordinator_registrations_total", "result", "Registrations of workers, by result: new; reconnected, if the worker process was registered already; refused."},
    {kC, kCounter, "muster_coordinator_rpcs_total", "code method", "Ended RPCs and calls of the page's API, by method and status code; streams included, those of the page when they begin."},
    {kC, kHistogram, "muster_coordinator_rpc_seconds", "method", "Time to answer an RPC, without streams."},
    {kC, kGauge, "muster_coordinator_streams", "method", "Open streams: Connect (workers), WatchJob, FollowLogs, BackupState and TakeProfile."},
    {kC, kGauge, "muster_coordinator_overloaded", "", "1 while reads are refused because the core loop is late."},
    {kC, kCounter, "muster_coordinator_shed_reads_total", "method", "Reads that were refused because the core loop was late. method=metrics: scrapes that were answered without jobs and workers."},
    {kC, kGauge, "muster_coordinator_queue_policy_valid", "", "1: the file of --queue-policy is valid, or none is given. 0: it is not, and its last valid version is in force."},
    {kC, kCounter, "muster_coordinator_audit_lost_total", "", "Lines of the audit log that could not be written."},
    {kC, kCounter, "process_cpu_seconds_total", "", "User and system CPU time of the coordinator's process."},
    {kC, kGauge, "process_resident_memory_bytes", "", "Resident memory of the coordinator's process."},
    {kC, kGauge, "process_virtual_memory_bytes", "", "Virtual memory of the coordinator's process."},
    {kC, kGauge, "process_open_fds", "", "Open file descriptors of the coordinator's process."},
    {kC, kGauge, "process_max_fds", "", "Limit of open file descriptors of the coordinator's process."},
    {kC, kGauge, "process_start_time_seconds", "", "When the coordinator's process was started, in Unix time."},
    {kC, kGauge, "muster_jobs", "state", "Jobs by state."},
    {kC, kGauge, "muster_jobs_without_series", "", "Jobs with ranks that have no series of their own, because other jobs already have all of them."},
    {kC, kGauge, "muster_job_state", "job_id name state", "1 for the state that the job is in."},
    {kC, kGauge, "muster_job_start_timestamp_seconds", "job_id name", "When the job was first started, in Unix time."},
    {kC, kGauge, "muster_job_attempt", "job_id name", "Launches of the job so far."},
    {kC, kGauge, "muster_job_ranks", "job_id name", "Ranks of the job's current attempt."},
    {kC, kGauge, "muster_job_step", "job_id name", "Steps completed by rank 0."},
    {kC, kGauge, "muster_job_tokens_per_second", "job_id name", "Tokens per second, summed over the job's ranks; no series between attempts."},
    {kC, kGauge, "muster_job_mfu_ratio", "job_id name", "Model FLOPs utilisation, mean over the job's ranks; no series between attempts."},
    {kC, kGauge, "muster_job_loss", "job_id name", "Loss of the last step."},
    {kC, kGauge, "muster_job_grad_norm", "job_id name", "Global L2 norm of the last step's gradient, before clipping."},
    {kC, kHistogram, "muster_job_step_seconds", "job_id name", "Time of each step that rank 0 completed, over all attempts."},
    {kC, kCounter, "muster_job_step_part_seconds_total", "job_id name part", "Step time of rank 0, by part: computation, and waits for communication and for data. part=checkpoint: waits for checkpoints between steps."},
    {kC, kGauge, "muster_job_planned_step_seconds", "job_id name", "Step time by the job's plan; no series if the plan has none."},
    {kC, kGauge, "muster_job_planned_communication_seconds", "job_id name", "The part of the planned step time in which a rank waits for communication."},
    {kC, kGauge, "muster_job_planned_data_seconds", "job_id name", "The part of the planned step time in which a rank waits for data; 0 if the speed of the storage is not planned."},
    {kC, kGauge, "muster_job_planned_checkpoint_seconds", "job_id name", "Stalls for checkpoints by the plan, per step and beside it; 0 if they are not planned."},
    {kC, kGauge, "muster_job_planned_memory_bytes", "job_id name", "Planned memory of the rank that needs the most: device memory, or host memory for ranks on CPUs."},
    {kC, kCounter, "muster_job_restarts_total", "job_id name", "Launches of the job after a fault."},
    {kC, kGauge, "muster_job_checkpoint_step", "job_id name", "Steps in the job's newest complete checkpoint."},
    {kC, kGauge, "muster_job_checkpoint_timestamp_seconds", "job_id name", "When that checkpoint was first reported, in Unix time. Before the first checkpoint of a job that declares checkpoints: when the job was first started."},
    {kC, kGauge, "muster_job_suspect", "job_id name", "1 while the job is suspected of a hang (SUSPECT or DUMPING)."},
    {kC, kGauge, "muster_job_straggler_score", "job_id name rank", "For the slowest ranks: the time of a step without waits, divided by that of the median rank."},
    {kC, kCounter, "muster_job_incidents_total", "job_id kind name", "Incidents of the job, by kind."},
    {kC, kGauge, "muster_job_incident_timestamp_seconds", "incident job_id kind name rank worker", "When the job's newest incident of the kind was opened, in Unix time. incident is its number for `muster incident show`; rank and worker are those of the first suspect, or empty."},
    {kC, kHistogram, "muster_job_detection_seconds", "job_id name", "Time from the first sign of a fault until its incident was opened; for a hang, from the last progress."},
    {kC, kCounter, "muster_job_accounted_seconds_total", "job_id name", "Time since the job's first start that has been counted as productive or lost."},
    {kC, kCounter, "muster_job_productive_seconds_total", "job_id name", "Time in which the job completed steps that it had not completed before."},
    {kC, kCounter, "muster_job_lost_seconds_total", "cause class job_id name", "Time since the job's first start that was not productive, by the fault before it (cause) and by what it was spent on (class). A new series is 0 for a minute, so that increase() counts its first loss."},
    {kC, kGauge, "muster_job_goodput_ratio", "job_id name", "Productive time over all time since the first start (ETTR)."},
    {kC, kGauge, "muster_workers", "state", "Workers by state: connected; away, while the stream is closed; lost, for an hour after the lease has ended, unless the worker returns or has left."},
    {kC, kGauge, "muster_slots", "state", "Slots of all workers: used, with ranks or held for a job; and free."},
    {kC, kGauge, "muster_fleet_heartbeat_age_max_seconds", "", "The longest time since a worker's last message, without lost workers; no series without workers."},
    {kC, kGauge, "muster_fleet_heartbeat_age_seconds", "worker", "Time since the worker's last message; also for lost workers."},
    {kC, kGauge, "muster_fleet_connected", "worker", "1 while the worker's stream is open."},
    {kC, kGauge, "muster_fleet_slots", "worker", "Ranks that the worker can run at once."},
    {kC, kGauge, "muster_fleet_slots_used", "worker", "Slots of the worker with ranks, or held for a job."},
    {kC, kGauge, "muster_fleet_excluded", "cause", "Excluded nodes, which get no ranks, by cause."},
    {kC, kCounter, "muster_fleet_exclusions_total", "cause", "Exclusions of nodes since the coordinator was started, by cause."},
    {kC, kCounter, "muster_fleet_checks_total", "result", "Checks of nodes since the coordinator was started, by result."},
    {kC, kCounter, "muster_fleet_incidents_total", "kind", "Incidents of all jobs since the coordinator was started, by kind."},
    {kC, kCounter, "muster_fleet_productive_seconds_total", "", "Productive time of all jobs since the coordinator was started: they completed steps that they had not completed before."},
    {kC, kCounter, "muster_fleet_lost_seconds_total", "cause class", "Time of all jobs since the coordinator was started that was not productive, by cause and class as in muster_job_lost_seconds_total."},

    {kW, kGauge, "muster_worker_build_info", "version worker", "1, with the version and the worker's name as labels."},
    {kW, kGauge, "muster_worker_slots", "", "Ranks that this worker can run at once."},
    {kW, kGauge, "muster_worker_ranks_running", "", "Ranks that have a process now."},
    {kW, kGauge, "muster_worker_registered", "", "1 while the coordinator has accepted this worker's stream."},
    {kW, kGauge, "muster_worker_exit_reports_waiting", "", "Reports of ended ranks that the coordinator has not acknowledged."},
    {kW, kCounter, "muster_worker_heartbeats_sent_total", "", "Heartbeats sent to the coordinator."},
    {kW, kGauge, "muster_worker_heartbeat_age_seconds", "", "Time since the last heartbeat was sent to the coordinator."},
    {kW, kCounter, "muster_worker_connections_total", "", "Attempts to open a stream to the coordinator."},
    {kW, kCounter, "muster_worker_log_shipped_bytes_total", "", "Bytes of rank output sent to the coordinator, including repetitions."},
    {kW, kCounter, "muster_worker_rank_exits_total", "how", "Ends of ranks, by kind."},
    {kW, kCounter, "muster_worker_stack_traces_total", "", "Periodic stack traces of ranks that were written or sent."},
    {kW, kCounter, "muster_worker_stack_traces_dropped_total", "", "Periodic stack traces of ranks that were lost."},
    {kW, kHistogram, "muster_worker_step_seconds", "", "Time of each step that a rank of this worker completed."},
    {kW, kCounter, "muster_worker_checkpoints_total", "outcome", "Checkpoints that ranks of this worker wrote, by outcome."},
    {kW, kCounter, "muster_worker_checkpoint_stall_seconds_total", "", "Training time that ranks of this worker lost to checkpoints."},
    {kW, kGauge, "muster_worker_disk_bytes", "", "Size of the disk with the worker's folder."},
    {kW, kGauge, "muster_worker_disk_free_bytes", "", "Free space of that disk in bytes."},
    {kW, kGauge, "muster_worker_progress_age_max_seconds", "job_id name", "The longest time since a rank of the job on this worker made progress, as of the last heartbeat."},
    {kW, kGauge, "muster_worker_gpus", "", "GPUs of this worker."},
    {kW, kGauge, "muster_worker_gpus_used", "", "GPUs that ranks own exclusively."},
    {kW, kGauge, "muster_worker_gpu_answer_age_seconds", "", "Time since NVML last answered. Several seconds mean that a GPU or its driver hangs."},
    {kW, kGauge, "muster_gpu_info", "gpu model uuid", "1, with the GPU's model and UUID as labels; gpu is the driver's index."},
    {kW, kGauge, "muster_gpu_healthy", "gpu", "0 once the GPU is lost or needs a reset; nothing starts on it then."},
    {kW, kGauge, "muster_gpu_memory_bytes", "gpu", "Size of the GPU's memory."},
    {kW, kGauge, "muster_gpu_memory_used_bytes", "gpu", "Used memory of the GPU."},
    {kW, kGauge, "muster_gpu_utilization_ratio", "gpu", "Fraction of NVML's last sampling period in which a kernel ran."},
    {kW, kGauge, "muster_gpu_temperature_celsius", "gpu", "Temperature of the GPU's core."},
    {kW, kGauge, "muster_gpu_power_watts", "gpu", "Power that the GPU draws."},
    {kW, kGauge, "muster_gpu_clock_hertz", "clock gpu", "Current clock frequency of the multiprocessors (sm) and of the memory."},
    {kW, kGauge, "muster_gpu_throttled", "gpu reason", "1 while the GPU is throttled for the reason: power_cap, thermal, power_brake, or hardware (thermal or power_brake)."},
    {kW, kCounter, "muster_gpu_ecc_errors_total", "gpu type", "Memory errors, corrected and uncorrected, since the driver was loaded."},
    {kW, kGauge, "muster_gpu_row_remap_failed", "gpu", "1 if bad memory could not be remapped."},
    {kW, kCounter, "muster_gpu_xid_errors_total", "gpu xid", "Errors reported by the driver since the worker started, by Xid."},
    {kW, kGauge, "muster_network_reading_age_seconds", "", "Time since the network devices were last read completely; it grows while a driver does not answer."},
    {kW, kGauge, "muster_network_up", "device kind", "1 while the network device has a link; kind is infiniband, roce or ethernet. EFA does not report it."},
    {kW, kGauge, "muster_network_healthy", "device", "0 while a network device that ranks need is down after it was up, or has been up again for less than 30 s, or an InfiniBand port is slower than it was since the worker started; the node's check fails then."},
    {kW, kGauge, "muster_network_rate_bits_per_second", "device", "Nominal rate of the network device's link; 0 while it is down."},
    {kW, kCounter, "muster_network_bytes_total", "device direction", "Data that the network device has sent and received, by its own counters."},
    {kW, kCounter, "muster_network_errors_total", "device type", "Errors of the network device by its own counters: damaged, dropped and retransmitted packets, timeouts without an acknowledgement, and lost links. Those of InfiniBand end at 65,535 (lost links: 255) until they are reset."},
    {kW, kGauge, "muster_rank_step", "attempt job_id name rank", "Steps completed by the rank."},
    {kW, kGauge, "muster_rank_last_step_seconds", "attempt job_id name rank", "Duration of the rank's last step."},
    {kW, kGauge, "muster_rank_tokens_per_second", "attempt job_id name rank", "Tokens per second of the rank's last step."},
    {kW, kGauge, "muster_rank_mfu_ratio", "attempt job_id name rank", "Model FLOPs utilisation of the rank's last step."},
    {kW, kGauge, "muster_rank_loss", "attempt job_id name rank", "Loss of the rank's last step."},
    {kW, kGauge, "muster_rank_grad_norm", "attempt job_id name rank", "Global gradient norm of the rank's last step, before clipping."},
    {kW, kGauge, "muster_rank_eval_loss", "attempt job_id name rank", "Loss of the job's last evaluation."},
    {kW, kCounter, "muster_rank_data_wait_seconds_total", "attempt job_id name rank", "Time that the rank's steps waited for data."},
    {kW, kGauge, "muster_rank_progress_age_seconds", "attempt job_id name rank", "Time since the rank's last progress, as of the last heartbeat."},
    {kW, kGauge, "muster_rank_checkpoint_step", "attempt job_id name rank", "Steps in the newest complete checkpoint that the rank reports."},
    {kW, kGauge, "muster_rank_last_checkpoint_seconds", "attempt job_id name rank", "Duration of the rank's last checkpoint write."},
};
// clang-format on

}  // namespace metric_rows

inline constexpr const auto& kMetrics = metric_rows::kRows;

// Returns the row of a metric; null if there is no metric of this name.
constexpr const Metric* find_metric(std::string_view name) {
  const auto* const end = std::end(kMetrics);
  const auto* const it = std::find_if(std::begin(kMetrics), end,
                                      [&](const Metric& metric) { return metric.name == name; });
  return it == end ? nullptr : it;
}

}  // namespace muster::daemon
