#include "worker/shell/stream/translate.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <type_traits>
#include <utility>

#include <absl/strings/str_cat.h>

#include "common/job/limits.h"
#include "common/text/escape.h"
#include "daemon/evidence_messages.h"
#include "daemon/gpu_messages.h"
#include "daemon/job_spec_messages.h"

namespace muster::worker {
namespace {

constexpr size_t kTextBytesMax = 1'024;   // reasons and details: a sentence or a line
constexpr size_t kAddressBytesMax = 512;  // host:port
// a day: beyond any interval or grace, far from overflow
constexpr int64_t kIntervalMsMax = 86'400'000;

Duration milliseconds(int64_t ms) {
  return std::chrono::milliseconds(std::clamp<int64_t>(ms, 0, kIntervalMsMax));
}

// Returns whether a text or list of the job is longer than the coordinator allows.
bool exceeds_bounds(const JobSpec& spec) {
  bool exceeds = spec.environment.size() > kEnvironmentEntriesMax;
  for_each_job_field([&](const JobField& field, auto member) {
    const auto& value = spec.*member;
    using Value = std::remove_cvref_t<decltype(value)>;
    if constexpr (std::is_same_v<Value, std::string>) {
      const auto* rule = std::get_if<TextRule>(&field.rule);
      exceeds |= rule != nullptr && value.size() > rule->bytes_max;
    } else if constexpr (std::is_same_v<Value, std::vector<std::string>>) {
      const auto* rule = std::get_if<ListRule>(&field.rule);
      exceeds |= rule != nullptr && value.size() > rule->words_max;
    }
  });
  return exceeds;
}

absl::StatusOr<Event> start_ranks(Epoch epoch, const v1::StartRanks& message) {
  JobSpec spec = daemon::job_spec_from_proto(message.spec());
  if (exceeds_bounds(spec) || message.rendezvous_address().size() > kAddressBytesMax ||
      message.program_port() < 0 || message.program_port() > kPortMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("StartRanks of job ", message.job_id(), " has a field over its bound"));
  }
  StartRanks event;
  event.epoch = epoch;
  event.launch.job = JobId(message.job_id());
  event.launch.attempt = Attempt(message.attempt());
  event.launch.rendezvous_address = message.rendezvous_address();
  event.launch.spec = std::move(spec);
  event.launch.program_port = message.program_port();
  event.launch.checkpoint_step = message.checkpoint_step();
  event.launch.rendezvous_time = milliseconds(message.rendezvous_ms());
  for (const v1::RankPlacement& rank : message.ranks()) {
    event.launch.ranks.push_back({Rank(rank.rank()), rank.local_rank()});
  }
  return event;
}

v1::Leaving leaving(Duration grace) {
  v1::Leaving message;
  message.set_grace_ms(std::chrono::floor<std::chrono::milliseconds>(grace).count());
  return message;
}

DumpStacks dump_stacks(Epoch epoch, const v1::DumpStacks& message) {
  DumpStacks event;
  event.epoch = epoch;
  event.launch = {JobId(message.job_id()), Attempt(message.attempt())};
  event.dump = message.dump_id();
  event.samples = message.samples();
  event.apart = milliseconds(message.apart_ms());
  event.deadline = milliseconds(message.deadline_ms());
  for (const int32_t rank : message.ranks()) event.ranks.emplace_back(rank);
  return event;
}

Symbolize symbolize(Epoch epoch, const v1::Symbolize& message) {
  Symbolize event;
  event.epoch = epoch;
  event.launch = {JobId(message.job_id()), Attempt(message.attempt())};
  event.dump = message.dump_id();
  event.module = daemon::module_from_proto(message.module());
  event.addresses.assign(message.addresses().begin(), message.addresses().end());
  return event;
}

CheckNode check_node(Epoch epoch, const v1::CheckNode& message) {
  CheckNode event{epoch, message.check_id()};
  if (!message.has_deep()) return event;
  const v1::DeepCheckOrder& order = message.deep();
  DeepCheckOrder& deep = event.deep.emplace();
  deep.seconds = std::isfinite(order.seconds()) ? order.seconds() : 1;
  deep.deadline = milliseconds(order.deadline_ms());
  deep.storage_folder = order.storage_folder().substr(0, kTextBytesMax);
  deep.group_rank = order.group_rank();
  deep.group_size = order.group_size();
  deep.rendezvous_address = order.rendezvous_address().substr(0, kAddressBytesMax);
  deep.group_id = order.group_id();
  return event;
}

void set_identity(const RankKey& key, auto* message) {
  message->set_job_id(key.job.value());
  message->set_attempt(key.attempt.value());
  message->set_rank(key.rank.value());
}

}  // namespace

absl::StatusOr<Event> to_event(const v1::CoordinatorMessage& message) {
  const Epoch epoch(message.epoch());
  switch (message.body_case()) {
    case v1::CoordinatorMessage::kRegistered: {
      const v1::Registered& registered = message.registered();
      Registered event{Epoch(registered.epoch()), milliseconds(registered.heartbeat_interval_ms()),
                       StoreId(registered.store_id())};
      for (const uint64_t job : registered.unfinished_job_ids()) event.unfinished.emplace(job);
      event.busy_interval = milliseconds(registered.busy_interval_ms());
      event.spread = milliseconds(registered.reconnect_spread_ms());
      event.is_replicated = registered.replicated();
      event.left_at = Epoch(registered.left_at_epoch());
      return event;
    }
    case v1::CoordinatorMessage::kSetPace: {
      const v1::SetPace& pace = message.set_pace();
      return PaceChanged{epoch, milliseconds(pace.heartbeat_interval_ms()),
                         milliseconds(pace.busy_interval_ms()),
                         milliseconds(pace.reconnect_spread_ms())};
    }
    case v1::CoordinatorMessage::kStartRanks:
      return start_ranks(epoch, message.start_ranks());
    case v1::CoordinatorMessage::kStopRanks: {
      const v1::StopRanks& stop = message.stop_ranks();
      StopRanks event{epoch, JobId(stop.job_id()), Attempt(stop.attempt()),
                      milliseconds(stop.grace_ms()), printable(stop.reason(), kTextBytesMax)};
      for (const int32_t rank : stop.ranks()) event.ranks.emplace_back(rank);
      event.waits_for_save = stop.waits_for_save();
      return event;
    }
    case v1::CoordinatorMessage::kSaveCheckpoint: {
      const v1::SaveCheckpoint& save = message.save_checkpoint();
      return SaveCheckpoint{epoch,
                            {JobId(save.job_id()), Attempt(save.attempt()), Rank(save.rank())}};
    }
    case v1::CoordinatorMessage::kDumpStacks:
      return dump_stacks(epoch, message.dump_stacks());
    case v1::CoordinatorMessage::kSymbolize:
      return symbolize(epoch, message.symbolize());
    case v1::CoordinatorMessage::kCheckNode:
      return check_node(epoch, message.check_node());
    case v1::CoordinatorMessage::kJobEnded:
      return JobEnded{epoch, JobId(message.job_ended().job_id())};
    case v1::CoordinatorMessage::kReportAck:
      return ReportAcked{message.report_ack().report_id()};
    case v1::CoordinatorMessage::kHeartbeatAnswer:
      return HeartbeatAnswered{};
    case v1::CoordinatorMessage::kLogAck:
    case v1::CoordinatorMessage::BODY_NOT_SET:
      break;
  }
  return absl::InvalidArgumentError("a message without a known body");
}

v1::WorkerMessage to_message(const SendRegister& action) {
  v1::WorkerMessage message;
  v1::Register* body = message.mutable_register_();
  body->set_worker(action.worker.value());
  body->set_incarnation(action.incarnation.value());
  body->set_version(action.version);
  body->set_host(action.host);
  body->set_slots(action.slots);
  body->set_rendezvous_address(action.rendezvous_address);
  body->mutable_program_ports()->set_first(action.program_ports.first);
  body->mutable_program_ports()->set_count(action.program_ports.count);
  body->set_switches(action.switches);
  body->set_domain(action.domain);
  for (const auto& [name, value] : action.labels.labels) (*body->mutable_labels())[name] = value;
  body->mutable_taints()->Assign(action.labels.taints.begin(), action.labels.taints.end());
  for (const Gpu& gpu : action.gpus) daemon::gpu_to_proto(gpu, *body->add_gpus());
  body->set_no_gpus_because(action.no_gpus_because);
  for (const std::string& address : action.addresses) body->add_addresses(address);
  body->set_store_id(action.store.value());
  for (const RunningRank& rank : action.running) {
    v1::RunningRank* running = body->add_running();
    set_identity(rank.key, running);
    running->set_pid(rank.pid);
  }
  if (action.leaving) *body->mutable_leaving() = leaving(*action.leaving);
  return message;
}

v1::WorkerMessage to_message(const SendLeaving& action) {
  v1::WorkerMessage message;
  *message.mutable_leaving() = leaving(action.grace);
  return message;
}

v1::WorkerMessage to_message(const SendHeartbeat& action) {
  v1::WorkerMessage message;
  v1::Heartbeat* body = message.mutable_heartbeat();
  for (const RankProgress& rank : action.ranks) {
    v1::RankProgress* progress = body->add_ranks();
    set_identity(rank.key, progress);
    progress->set_pid(rank.pid);
    progress->set_phase(static_cast<uint32_t>(rank.figures.phase));
    progress->set_step(rank.figures.step);
    progress->set_loss(rank.figures.loss);
    progress->set_grad_norm(rank.figures.grad_norm);
    progress->set_learning_rate(rank.figures.learning_rate);
    progress->set_step_seconds(rank.figures.step_seconds);
    progress->set_tokens_per_second(rank.figures.tokens_per_second);
    progress->set_tflops_per_device(rank.figures.tflops_per_device);
    progress->set_device_peak_tflops(rank.figures.device_peak_tflops);
    progress->set_last_progress_age_ns(rank.last_progress_age.count());
    progress->set_checkpoint_step(rank.figures.checkpoint_step);
    progress->set_phase_age_ns(rank.phase_age.count());
    progress->set_collective_wait_seconds(rank.figures.collective_wait_seconds);
    progress->set_data_wait_seconds(rank.figures.data_wait_seconds);
    progress->set_process_state(static_cast<unsigned char>(rank.figures.process_state));
    progress->set_main_thread_samples(rank.figures.main_thread.count);
    progress->set_main_thread_awake(rank.figures.main_thread.awake);
    for (const StalledLink& link : rank.figures.stalled_links) {
      v1::StalledLink& stalled = *progress->add_stalled_links();
      stalled.set_host(link.host);
      stalled.set_port(link.port);
      stalled.set_is_connecting(link.is_connecting);
      stalled.set_repetitions(link.repetitions);
    }
    const StepTimes& times = rank.figures.step_times;
    v1::StepTimes& step_times = *progress->mutable_step_times();
    step_times.mutable_counts()->Add(times.counts.begin(), times.counts.end());
    step_times.set_seconds(times.seconds);
    const CheckpointTimes& saves = rank.figures.checkpoints;
    v1::CheckpointTimes& checkpoints = *progress->mutable_checkpoints();
    checkpoints.set_saved(saves.saved);
    checkpoints.set_failed(saves.failed);
    checkpoints.set_seconds(saves.seconds);
    checkpoints.set_stall_seconds(saves.stall_seconds);
    checkpoints.set_on_request(saves.on_request != 0);
    checkpoints.set_saving_mib(saves.saving_mib);
    checkpoints.set_written_mib(saves.written_mib);
  }
  return message;
}

v1::WorkerMessage to_message(const SendStackReport& action) {
  v1::WorkerMessage message;
  v1::StackReport* body = message.mutable_stack_report();
  body->set_job_id(action.launch.job.value());
  body->set_attempt(action.launch.attempt.value());
  body->set_dump_id(action.dump);
  body->set_sample(action.sample);
  if (action.stacks != nullptr) {
    daemon::stack_tree_to_proto(*action.stacks, daemon::kStackTreeBytesMax,
                                *body->mutable_stacks());
  }
  daemon::evidence_to_proto(action.ranks, daemon::kEvidenceBytesMax, *body->mutable_ranks());
  daemon::lines_to_proto(action.kernel_messages, kKernelMessagesMax, kEvidenceLineBytesMax,
                         *body->mutable_kernel_messages());
  return message;
}

v1::WorkerMessage to_message(const SendSymbols& action) {
  v1::WorkerMessage message;
  v1::Symbols* body = message.mutable_symbols();
  body->set_dump_id(action.dump);
  daemon::module_to_proto(action.module, *body->mutable_module());
  size_t bytes = 0;
  for (const auto& [address, symbol] : action.symbols) {
    v1::FrameSymbol* added = body->add_symbols();
    added->set_address(address);
    v1::FrameSymbol named = *added;
    daemon::symbol_to_proto(symbol, named);
    bytes += named.ByteSizeLong();
    if (bytes <= daemon::kStackTreeBytesMax) *added = std::move(named);
  }
  return message;
}

v1::WorkerMessage to_message(const SendNodeChecked& action) {
  v1::WorkerMessage message;
  v1::NodeChecked* body = message.mutable_node_checked();
  body->set_check_id(action.check);
  body->set_passed(action.passed);
  body->set_seconds(action.seconds);
  body->set_sentence(printable(action.sentence, kTextBytesMax));
  body->set_details(printable(action.details, kTextBytesMax));
  if (!action.deep) return message;
  body->mutable_deep()->set_kind(printable(action.deep->kind, kTextBytesMax));
  body->mutable_deep()->set_stopped(action.deep->stopped);
  body->mutable_deep()->set_wrong(action.deep->wrong);
  for (const CheckMeasurement& measurement : action.deep->measurements) {
    v1::Measurement& added = *body->mutable_deep()->add_measurements();
    added.set_name(measurement.name);
    added.set_value(measurement.value);
    added.set_unit(measurement.unit);
  }
  return message;
}

v1::WorkerMessage to_message(const SendRankExited& action) {
  v1::WorkerMessage message;
  v1::RankExited* body = message.mutable_rank_exited();
  body->set_report_id(action.report_id);
  set_identity(action.key, body);
  body->set_exit_code(action.exit_code);
  body->set_signal(action.signal);
  body->set_last_step(action.last_step);
  body->set_detail(printable(action.detail, kTextBytesMax));
  body->set_cause(static_cast<uint32_t>(action.cause));
  body->set_lost_link(printable(action.lost_link, kTextBytesMax));
  body->set_link_is_down(action.link_is_down);
  body->set_told_to_stop(action.told_to_stop);
  body->set_output_incomplete(action.output_incomplete);
  if (action.evidence != nullptr) {
    daemon::evidence_to_proto({action.evidence->rank}, daemon::kEvidenceBytesMax,
                              *body->mutable_evidence());
    daemon::lines_to_proto(action.evidence->kernel_messages, kKernelMessagesMax,
                           kEvidenceLineBytesMax, *body->mutable_kernel_messages());
  }
  return message;
}

v1::WorkerMessage to_message(LogChunk&& chunk) {
  v1::WorkerMessage message;
  v1::LogData* body = message.mutable_log();
  set_identity(chunk.key, body);
  body->set_offset(chunk.offset);
  body->set_data(std::move(chunk.data));
  return message;
}

RankKey key_of(const v1::LogAck& ack) {
  return {JobId(ack.job_id()), Attempt(ack.attempt()), Rank(ack.rank())};
}

}  // namespace muster::worker
