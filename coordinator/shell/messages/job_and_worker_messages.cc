#include "coordinator/shell/messages/job_and_worker_messages.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "common/job/limits.h"
#include "common/text/escape.h"
#include "coordinator/core/records/sizes.h"
#include "coordinator/shell/messages/account_messages.h"
#include "coordinator/shell/messages/incident_messages.h"
#include "coordinator/shell/messages/node_messages.h"
#include "coordinator/shell/messages/revision_messages.h"
#include "coordinator/shell/messages/sweep_messages.h"
#include "daemon/evidence_messages.h"
#include "daemon/gpu_messages.h"
#include "daemon/job_spec_messages.h"

namespace muster::coordinator {
namespace {

constexpr int64_t kNsPerMs = 1'000'000;
// The bound of a grace: a day is longer than any checkpoint takes.
constexpr int64_t kGraceMsMax = 86'400'000;

v1::JobState state_to_proto(JobState state) {
  switch (state) {
    case JobState::kQueued:
      return v1::QUEUED;
    case JobState::kStarting:
      return v1::STARTING;
    case JobState::kRunning:
      return v1::RUNNING;
    case JobState::kSuspect:
      return v1::SUSPECT;
    case JobState::kDumping:
      return v1::DUMPING;
    case JobState::kRestarting:
      return v1::RESTARTING;
    case JobState::kSucceeded:
      return v1::SUCCEEDED;
    case JobState::kFailed:
      return v1::FAILED;
    case JobState::kCancelled:
      return v1::CANCELLED;
  }
  return v1::JOB_STATE_UNSPECIFIED;
}

void placement_to_proto(const RankPlacement& rank, v1::RankPlacement& proto) {
  proto.set_rank(rank.rank.value());
  proto.set_worker(rank.worker.value());
  proto.set_local_rank(rank.local_rank);
}

void rank_to_proto(const RankPlacement& placed, const RankState& state, Instant now,
                   v1::RankStatus& proto) {
  proto.set_rank(placed.rank.value());
  proto.set_worker(placed.worker.value());
  proto.set_pid(state.pid);
  proto.set_phase(std::string(phase_name(state.phase)));
  proto.set_step(state.step);
  proto.set_loss(state.loss);
  proto.set_grad_norm(state.grad_norm);
  proto.set_step_seconds(state.step_seconds);
  proto.set_tokens_per_second(state.tokens_per_second);
  proto.set_checkpoint_step(state.checkpoint_step);
  v1::CheckpointTimes& checkpoints = *proto.mutable_checkpoints();
  checkpoints.set_saved(state.checkpoints.saved);
  checkpoints.set_failed(state.checkpoints.failed);
  checkpoints.set_seconds(state.checkpoints.seconds);
  checkpoints.set_stall_seconds(state.checkpoints.stall_seconds);
  checkpoints.set_on_request(state.checkpoints.on_request != 0);
  checkpoints.set_saving_mib(state.checkpoints.saving_mib);
  checkpoints.set_written_mib(state.checkpoints.written_mib);
  if (state.device_peak_tflops > 0)
    proto.set_mfu(std::min(state.tflops_per_device / state.device_peak_tflops, 1.0));
  if (state.last_progress != Instant{}) {
    proto.set_last_progress_age_seconds(to_seconds(now - state.last_progress));
  }
}

void fault_to_proto(const Fault& fault, v1::Fault& proto) {
  proto.set_rank(fault.rank.value());
  proto.set_worker(fault.worker.value());
  proto.set_signal(fault.signal);
  proto.set_exit_code(fault.exit_code);
  proto.set_last_step(fault.last_step);
  proto.set_message(fault.message);
  proto.set_unix_ns(fault.unix_ns);
  proto.set_kind(std::string(kIncidentKindNames[static_cast<size_t>(fault.kind)]));
}

// Converts the job with the placement of at most `ranks_max` ranks, and the figures of at most
// `figures_max` of them.
v1::Job convert_job(const Core& core, const Job& job, Instant now, size_t first_rank,
                    size_t ranks_max, size_t figures_max) {
  v1::Job proto;
  proto.set_id(job.id.value());
  daemon::job_spec_to_proto(job.spec, *proto.mutable_spec());
  // Tokens and passwords are visible only to the submitter and the ranks.
  for (auto& [key, value] : *proto.mutable_spec()->mutable_environment()) value = "***";
  for (v1::Smaller& size : *proto.mutable_spec()->mutable_smaller()) size.clear_train_config_json();
  if (bytes_of(job.spec) > core.options().limits.spec_bytes_max) {
    // Earlier versions accepted larger specs, whose texts leave no room for the ranks.
    proto.mutable_spec()->clear_train_config_json();
    proto.mutable_spec()->clear_settings_json();
    proto.mutable_spec()->clear_environment();
  }
  proto.set_state(state_to_proto(job.state));
  proto.set_reason(job.reason);
  proto.set_attempt(job.attempt.value());
  const size_t end = std::min(job.placement.size(), first_rank + ranks_max);
  size_t bytes = 0;
  for (size_t i = first_rank; i < end && bytes < kRanksBytesMax; ++i) {
    placement_to_proto(job.placement[i], *proto.add_placement());
    bytes += proto.placement().rbegin()->ByteSizeLong();
    if (i >= job.ranks.size() || i - first_rank >= figures_max) continue;
    rank_to_proto(job.placement[i], job.ranks[i], now, *proto.add_ranks());
    bytes += proto.ranks().rbegin()->ByteSizeLong();
  }
  proto.set_rank_count(static_cast<int32_t>(std::ssize(job.placement)));
  for (const Fault& fault : job.faults) fault_to_proto(fault, *proto.add_faults());
  proto.set_submitted_unix_ns(job.submitted_unix_ns);
  proto.set_started_unix_ns(job.started_unix_ns);
  proto.set_finished_unix_ns(job.finished_unix_ns);
  proto.set_exit_code(job.exit_code);
  proto.set_is_futile(job.is_futile);
  proto.set_tokens_per_second(tokens_per_second(job));
  if (job.incident.id != IncidentId(0)) {
    proto.mutable_incident()->set_id(job.incident.id.value());
    proto.mutable_incident()->set_sentence(job.incident.sentence);
  }
  goodput_to_proto(core.account_of(job, now), *proto.mutable_goodput());
  proto.set_nodes(nodes_now(job));
  int64_t newest_step = job.faults.empty() ? -1 : job.faults.back().job_step;
  for (const RankState& rank : job.ranks) newest_step = std::max(newest_step, rank.step);
  proto.set_newest_step(newest_step);
  for (const JobDependency& dependency : job.waits_for)
    daemon::dependency_to_proto(dependency, *proto.add_waits_for());
  revisions_to_proto(job, proto);
  size_t held_bytes = 0;
  for (size_t i = 0; i < job.held.size() && held_bytes < kHeldBytesMax; ++i) {
    proto.add_held(job.held[i].value());
    held_bytes += job.held[i].value().size();
  }
  return proto;
}

// Sanitises rates and durations. Loss and gradient norm are not sanitised, because users must see a
// NaN.
double finite_or_zero(double value) { return std::isfinite(value) ? value : 0; }

// Converts step times. Ignores the counts if their number differs from the number of buckets.
StepTimes step_times_from_proto(const v1::StepTimes& proto) {
  StepTimes times;
  if (proto.counts_size() != std::ssize(times.counts)) return times;
  std::copy(proto.counts().begin(), proto.counts().end(), times.counts.begin());
  times.seconds = finite_or_zero(proto.seconds());
  return times;
}

CheckpointTimes checkpoints_from_proto(const v1::CheckpointTimes& proto) {
  return {.saved = proto.saved(),
          .failed = proto.failed(),
          .seconds = finite_or_zero(proto.seconds()),
          .stall_seconds = finite_or_zero(proto.stall_seconds()),
          .on_request = proto.on_request() ? 1U : 0U,
          .saving_mib = proto.saving_mib(),
          .written_mib = proto.written_mib()};
}

}  // namespace

WorkerRegistered registration_from_proto(const v1::Register& proto) {
  WorkerRegistered event;
  event.worker = WorkerName(proto.worker());
  event.incarnation = Incarnation(proto.incarnation());
  event.version = proto.version();
  event.host = proto.host();
  event.slots = proto.slots();
  event.rendezvous_address = proto.rendezvous_address();
  event.program_ports = {proto.program_ports().first(), proto.program_ports().count()};
  event.place = {.switches = proto.switches(), .domain = proto.domain()};
  for (const v1::Gpu& gpu : proto.gpus()) event.gpus.push_back(daemon::gpu_from_proto(gpu));
  event.no_gpus_because = proto.no_gpus_because();
  event.labels = {.labels = {proto.labels().begin(), proto.labels().end()},
                  .taints = {proto.taints().begin(), proto.taints().end()}};
  event.addresses.assign(proto.addresses().begin(), proto.addresses().end());
  event.store = StoreId(proto.store_id());
  if (proto.has_leaving()) event.leaving = leaving_from_proto(proto.leaving()).grace;
  for (const v1::RunningRank& rank : proto.running()) {
    event.running.push_back(
        {JobId(rank.job_id()), Attempt(rank.attempt()), Rank(rank.rank()), rank.pid()});
  }
  return event;
}

WorkerLeaving leaving_from_proto(const v1::Leaving& proto) {
  WorkerLeaving event;
  event.grace = std::chrono::milliseconds(std::clamp<int64_t>(proto.grace_ms(), 0, kGraceMsMax));
  return event;
}

HeartbeatReceived heartbeat_from_proto(const v1::Heartbeat& proto) {
  HeartbeatReceived event;
  event.ranks.reserve(static_cast<size_t>(proto.ranks_size()));
  for (const v1::RankProgress& rank : proto.ranks()) {
    RankProgress& progress = event.ranks.emplace_back();
    progress.job = JobId(rank.job_id());
    progress.attempt = Attempt(rank.attempt());
    progress.rank = Rank(rank.rank());
    progress.pid = rank.pid();
    progress.phase = static_cast<Phase>(rank.phase());
    progress.step = std::clamp<int64_t>(rank.step(), -1, kStepMax);
    progress.loss = rank.loss();
    progress.grad_norm = rank.grad_norm();
    progress.learning_rate = finite_or_zero(rank.learning_rate());
    progress.step_seconds = finite_or_zero(rank.step_seconds());
    progress.tokens_per_second = finite_or_zero(rank.tokens_per_second());
    progress.tflops_per_device = finite_or_zero(rank.tflops_per_device());
    progress.device_peak_tflops = finite_or_zero(rank.device_peak_tflops());
    progress.last_progress_age = daemon::age_from(rank.last_progress_age_ns());
    progress.checkpoint_step = rank.checkpoint_step();
    progress.step_times = step_times_from_proto(rank.step_times());
    progress.checkpoints = checkpoints_from_proto(rank.checkpoints());
    progress.phase_age = daemon::age_from(rank.phase_age_ns());
    progress.collective_wait_seconds = finite_or_zero(rank.collective_wait_seconds());
    progress.data_wait_seconds = finite_or_zero(rank.data_wait_seconds());
    progress.process_state = daemon::process_state_from(rank.process_state());
    progress.main_thread = {rank.main_thread_samples(),
                            std::min(rank.main_thread_awake(), rank.main_thread_samples())};
    for (const v1::StalledLink& link : rank.stalled_links()) {
      if (progress.stalled_links.size() == kStalledLinksMax) break;
      progress.stalled_links.push_back({printable(link.host(), kHostAddressBytesMax), link.port(),
                                        link.is_connecting(), link.repetitions()});
    }
  }
  return event;
}

RankExited exit_from_proto(const v1::RankExited& proto) {
  RankExited event;
  event.report_id = proto.report_id();
  event.job = JobId(proto.job_id());
  event.attempt = Attempt(proto.attempt());
  event.rank = Rank(proto.rank());
  event.exit_code = proto.exit_code();
  event.signal = proto.signal();
  event.last_step = proto.last_step();
  event.detail = proto.detail();
  if (proto.cause() == static_cast<uint32_t>(ExitCause::kOutOfMemory))
    event.cause = ExitCause::kOutOfMemory;
  if (proto.cause() == static_cast<uint32_t>(ExitCause::kGpuFault))
    event.cause = ExitCause::kGpuFault;
  if (proto.cause() == static_cast<uint32_t>(ExitCause::kNodeFault))
    event.cause = ExitCause::kNodeFault;
  if (proto.cause() == static_cast<uint32_t>(ExitCause::kWorkerStalled))
    event.cause = ExitCause::kWorkerStalled;
  if (proto.evidence_size() > 0) {
    auto evidence = std::make_shared<EndEvidence>();
    evidence->rank = daemon::evidence_from_proto(proto.evidence(), 1).front();
    evidence->kernel_messages = daemon::lines_from_proto(proto.kernel_messages(),
                                                         kKernelMessagesMax, kEvidenceLineBytesMax);
    event.evidence = std::move(evidence);
  }
  event.stop_ordered = proto.told_to_stop();
  event.output_incomplete = proto.output_incomplete();
  event.lost_link = proto.lost_link();
  event.link_is_down = proto.link_is_down();
  return event;
}

v1::Job job_to_proto(const Core& core, const Job& job, Instant now, size_t first_rank,
                     size_t ranks_max) {
  return convert_job(core, job, now, std::min(first_rank, job.placement.size()),
                     std::min(ranks_max, kRanksPageMax), kRanksPageMax);
}

v1::Job job_summary_to_proto(const Core& core, const Job& job, Instant now) {
  v1::Job proto = convert_job(core, job, now, 0, kRanksPageMax, 1);
  proto.mutable_spec()->clear_train_config_json();
  proto.mutable_spec()->clear_settings_json();
  proto.mutable_spec()->clear_environment();
  proto.mutable_spec()->clear_command();
  return proto;
}

v1::WorkerInfo worker_to_proto(const Worker& worker, const NodeRecord* node, const WorkerUse& use,
                               Instant now) {
  v1::WorkerInfo proto;
  proto.set_name(worker.name.value());
  proto.set_host(worker.host);
  proto.set_slots(worker.slots);
  proto.set_slots_used(use.slots);
  proto.set_slots_held(use.slots_held);
  for (const Gpu& gpu : worker.gpus) daemon::gpu_to_proto(gpu, *proto.add_gpus());
  proto.set_gpus_used(use.gpus);
  proto.set_no_gpus_because(worker.no_gpus_because);
  proto.set_switches(worker.place.switches);
  proto.set_domain(worker.place.domain);
  for (const auto& [name, value] : worker.labels.labels) (*proto.mutable_labels())[name] = value;
  proto.mutable_taints()->Assign(worker.labels.taints.begin(), worker.labels.taints.end());
  proto.set_version(worker.version);
  proto.set_connected(worker.connected);
  proto.set_leaving(worker.leaving);
  proto.set_heartbeat_age_seconds(to_seconds(now - worker.last_message));
  if (node != nullptr) node_to_proto(*node, proto);
  return proto;
}

v1::CoordinatorMessage message_to_proto(const WorkerPayload& payload, Epoch epoch) {
  v1::CoordinatorMessage message;
  message.set_epoch(epoch.value());
  struct Visitor {
    v1::CoordinatorMessage& message;

    void operator()(const SendRegistered& p) const {
      v1::Registered& registered = *message.mutable_registered();
      registered.set_epoch(message.epoch());
      registered.set_heartbeat_interval_ms(p.heartbeat_interval.count() / kNsPerMs);
      registered.set_store_id(p.store.value());
      registered.set_lease_ms(p.lease.count() / kNsPerMs);
      registered.set_busy_interval_ms(p.busy_interval.count() / kNsPerMs);
      registered.set_reconnect_spread_ms(p.spread.count() / kNsPerMs);
      registered.set_replicated(p.is_replicated);
      registered.set_left_at_epoch(p.left_at.value());
      for (const JobId job : p.unfinished) registered.add_unfinished_job_ids(job.value());
    }
    void operator()(const SendPace& p) const {
      v1::SetPace& pace = *message.mutable_set_pace();
      pace.set_heartbeat_interval_ms(p.heartbeat_interval.count() / kNsPerMs);
      pace.set_busy_interval_ms(p.busy_interval.count() / kNsPerMs);
      pace.set_lease_ms(p.lease.count() / kNsPerMs);
      pace.set_reconnect_spread_ms(p.spread.count() / kNsPerMs);
    }
    void operator()(const SendStartRanks& p) const {
      v1::StartRanks& start = *message.mutable_start_ranks();
      start.set_job_id(p.job.value());
      start.set_attempt(p.attempt.value());
      for (const RankPlacement& rank : p.ranks) placement_to_proto(rank, *start.add_ranks());
      start.set_rendezvous_address(p.rendezvous_address);
      start.set_program_port(p.program_port);
      start.set_checkpoint_step(p.checkpoint_step);
      start.set_rendezvous_ms(p.rendezvous_time.count() / kNsPerMs);
    }
    void operator()(const SendStopRanks& p) const {
      v1::StopRanks& stop = *message.mutable_stop_ranks();
      stop.set_job_id(p.job.value());
      stop.set_attempt(p.attempt.value());
      stop.set_grace_ms(p.grace.count() / kNsPerMs);
      stop.set_reason(p.reason);
      for (const Rank rank : p.ranks) stop.add_ranks(rank.value());
      stop.set_waits_for_save(p.waits_for_save);
    }
    void operator()(const SendSaveCheckpoint& p) const {
      v1::SaveCheckpoint& save = *message.mutable_save_checkpoint();
      save.set_job_id(p.job.value());
      save.set_attempt(p.attempt.value());
      save.set_rank(p.rank.value());
    }
    void operator()(const SendDumpStacks& p) const {
      dump_request_to_proto(p, *message.mutable_dump_stacks());
    }
    void operator()(const SendSymbolize& p) const {
      symbolize_to_proto(p, *message.mutable_symbolize());
    }
    void operator()(const SendCheckNode& p) const {
      check_order_to_proto(p, *message.mutable_check_node());
    }
    void operator()(const SendJobEnded& p) const {
      message.mutable_job_ended()->set_job_id(p.job.value());
    }
    void operator()(const SendReportAck& p) const {
      message.mutable_report_ack()->set_report_id(p.report_id);
    }
  };
  std::visit(Visitor{message}, payload);
  return message;
}

v1::CoordinatorMessage spec_to_proto(const JobSpec& spec) {
  v1::CoordinatorMessage message;
  daemon::job_spec_to_proto(spec, *message.mutable_start_ranks()->mutable_spec());
  return message;
}

}  // namespace muster::coordinator
