#include "coordinator/shell/grpc/worker_stream.h"

#include <utility>

#include <absl/strings/str_cat.h>
#include <spdlog/spdlog.h>

#include "common/job/limits.h"
#include "common/text/escape.h"
#include "coordinator/shell/grpc/grpc_status.h"
#include "coordinator/shell/grpc/merge_pages.h"
#include "coordinator/shell/messages/incident_messages.h"
#include "coordinator/shell/messages/job_and_worker_messages.h"
#include "coordinator/shell/messages/node_messages.h"
#include "daemon/limits.h"

namespace muster::coordinator {
namespace {

// The maximum number of pages in merged heartbeats: ranks that are being stopped may run beside
// their successors, and a node has at most kRanksPerNodeMax of each.
constexpr size_t kPagesMax = size_t{2} * kRanksPerNodeMax;

absl::Status register_first() {
  return absl::InvalidArgumentError("the first message of a stream must be register");
}

}  // namespace

void OpenCalls::enter() {
  const std::lock_guard lock(mutex_);
  ++open_;
}

void OpenCalls::leave() {
  const std::lock_guard lock(mutex_);
  if (--open_ == 0) none_.notify_all();
}

void OpenCalls::wait_until_none() {
  std::unique_lock lock(mutex_);
  none_.wait(lock, [&] { return open_ == 0; });
}

WorkerStream::WorkerStream(FleetParts& parts, Service& service, grpc::ServerCompletionQueue& queue,
                           void* tag)
    : parts_(parts), call_(std::make_unique<Call>(parts.calls)) {
  service.RequestConnect(&*call_->context, &*call_->stream, &queue, &queue, tag);
}

void WorkerStream::begin() {
  const std::lock_guard lock(mutex_);
  self_ = shared_from_this();
  peer_ = call_->context->peer();
  count_.emplace(parts_.metrics, "Connect");
  parts_.callers.watch(*call_->context, weak_from_this());
  audit_ = parts_.callers.audit(*call_->context, "Connect", "", /*is_change=*/true);
  read_next_locked();
}

void WorkerStream::expire(Duration budget) {
  const std::lock_guard lock(mutex_);
  // A registration that waits for the loop is not the worker's delay.
  if (admitted_ || has_introduced_itself_) return;
  close_locked(absl::DeadlineExceededError(
      absl::StrCat("the worker did not register within ", to_seconds(budget), " s")));
}

void WorkerStream::send(const WorkerPayload& payload) {
  if (const auto* registered = std::get_if<SendRegistered>(&payload)) {
    const std::lock_guard lock(mutex_);
    admitted_ = true;
    answers_heartbeats_ = registered->is_replicated;
    std::exchange(audit_, {}).finish(absl::OkStatus(), std::exchange(audit_target_, {}));
  }
  enqueue(parts_.bytes.of(payload));
}

void WorkerStream::close(const absl::Status& status) {
  const std::lock_guard lock(mutex_);
  close_locked(status);
}

bool WorkerStream::is_open() {
  const std::lock_guard lock(mutex_);
  return !closing_;
}

bool WorkerStream::has_unread() {
  return parts_.connections != nullptr && is_open() && parts_.connections->has_unread(peer_);
}

void WorkerStream::fill(HeartbeatReceived& heartbeat) {
  const std::lock_guard lock(mutex_);
  heartbeat.ranks = std::exchange(pages_, {});
  heartbeat_posted_ = false;
}

void WorkerStream::on_read(bool ok, Arena& arena) {
  if (ok && is_open()) {  // messages after the coordinator's end of the stream do not count
    // A heartbeat has several objects for each rank; the arena allocates and frees them together.
    auto* message = Arena::CreateMessage<v1::WorkerMessage>(&arena);
    if (grpc::SerializationTraits<v1::WorkerMessage>::Deserialize(&incoming_, message).ok()) {
      handle(*message);
    } else {
      close(absl::InvalidArgumentError("a message cannot be parsed"));
    }
  } else if (!ok) {
    leave();
    close(absl::CancelledError("the worker ended the stream"));
  }
  {
    const std::lock_guard lock(mutex_);
    reading_ = false;
    if (ok && !finishing_) read_next_locked();
  }
  release_if_done();
}

void WorkerStream::on_written(bool ok, Arena& arena) {
  (void)arena;
  {
    const std::lock_guard lock(mutex_);
    writing_ = false;
    if (!ok) close_locked(absl::CancelledError("the worker is gone"));
    if (closing_) {
      finish_locked();
    } else {
      write_next_locked();
    }
  }
  release_if_done();
}

void WorkerStream::on_finished(bool ok, Arena& arena) {
  (void)ok;
  (void)arena;
  {
    const std::lock_guard lock(mutex_);
    finished_ = true;
  }
  release_if_done();
}

void WorkerStream::release_if_done() {
  std::shared_ptr<WorkerStream> self;
  std::unique_ptr<Call> call;
  {
    const std::lock_guard lock(mutex_);
    if (!finished_ || reading_ || writing_) return;
    self = std::move(self_);
    call = std::move(call_);
    count_.reset();
  }
  leave();
}

void WorkerStream::handle(const v1::WorkerMessage& message) {
  switch (message.body_case()) {
    case v1::WorkerMessage::kRegister:
      return on_register(message.register_());
    case v1::WorkerMessage::kHeartbeat:
      return on_heartbeat(message.heartbeat());
    case v1::WorkerMessage::kRankExited:
      return post(exit_from_proto(message.rank_exited()));
    case v1::WorkerMessage::kLeaving:
      return post(leaving_from_proto(message.leaving()));
    case v1::WorkerMessage::kLog:
      return on_log(message.log());
    case v1::WorkerMessage::kStackReport:
      return on_stack_report(message.stack_report());
    case v1::WorkerMessage::kSymbols:
      return post(symbol_report_from_proto(message.symbols()));
    case v1::WorkerMessage::kNodeChecked:
      return post(node_checked_from_proto(message.node_checked()));
    case v1::WorkerMessage::BODY_NOT_SET:
      break;  // a later version's message
  }
}

void WorkerStream::on_register(const v1::Register& registration) {
  if (identity_) {
    close(absl::InvalidArgumentError(
        "register must be the first message of a stream, and come once"));
    return;
  }
  if (absl::Status status = parts_.callers.check_node(*call_->context, registration.worker());
      !status.ok()) {
    close(status);
    return;
  }
  WorkerRegistered event = registration_from_proto(registration);
  identity_.emplace(event.worker, event.incarnation);
  {
    const std::lock_guard lock(mutex_);
    has_introduced_itself_ = true;
    audit_target_ = absl::StrCat("worker ", registration.worker());
  }
  post_as_is(std::move(event));
}

// Merges the heartbeat with an earlier one that the loop has not taken yet.
void WorkerStream::on_heartbeat(const v1::Heartbeat& heartbeat) {
  answer_heartbeat();
  HeartbeatReceived event = heartbeat_from_proto(heartbeat);
  {
    const std::lock_guard lock(mutex_);
    if (heartbeat_posted_) return merge_pages(pages_, event.ranks, kPagesMax);
    heartbeat_posted_ = true;
    pages_ = std::move(event.ranks);
    if (pages_.size() > kPagesMax) pages_.resize(kPagesMax);
  }
  post(HeartbeatReceived{});
}

// Does not wait for the loop: an answer shows that this process runs. A leader whose loop waits for
// the store loses its lease and ends.
void WorkerStream::answer_heartbeat() {
  {
    const std::lock_guard lock(mutex_);
    if (!answers_heartbeats_) return;
  }
  v1::CoordinatorMessage message;
  message.set_epoch(parts_.epoch.value());
  message.mutable_heartbeat_answer();
  const grpc::Slice bytes(message.SerializeAsString());
  enqueue({&bytes, 1});
}

// Drops an invalid tree: the dump ends by its deadline, and the stream stays open.
void WorkerStream::on_stack_report(const v1::StackReport& report) {
  auto event = stack_report_from_proto(report);
  if (event.ok()) return post(*std::move(event));
  if (std::exchange(report_trouble_logged_, true)) return;
  spdlog::warn("stack reports of worker {} are dropped: {}",
               identity_ ? printable(identity_->first.value(), kNameBytesMax) : "?",
               std::string(event.status().message()));
}

template <class E>
void WorkerStream::post(E event) {
  if (!identity_) return close(register_first());
  event.worker = identity_->first;
  event.incarnation = identity_->second;
  post_as_is(std::move(event));
}

// If the loop's queue is full, ends the stream: the worker reconnects, and repeats all reports that
// were not acknowledged.
void WorkerStream::post_as_is(Event event) {
  const absl::Status status = parts_.loop.post(std::move(event), shared_from_this());
  if (!status.ok()) close(status);
}

void WorkerStream::on_log(const v1::LogData& log) {
  if (!identity_) return close(register_first());
  {
    const std::lock_guard lock(mutex_);
    if (closing_) return;
    if (!admitted_) {
      close_locked(absl::InvalidArgumentError("log came before the worker was registered"));
      return;
    }
  }
  const LogWriter writer{identity_->first, identity_->second};
  const auto settled = parts_.logs.append(writer, JobId(log.job_id()), Attempt(log.attempt()),
                                          Rank(log.rank()), log.offset(), log.data());
  uint64_t offset = log.offset() + log.data().size();
  if (settled.ok()) {
    offset = *settled;
  } else if (!std::exchange(log_trouble_logged_, true)) {
    // The data is acknowledged nevertheless: repetitions would fail, too, and the worker has the
    // rank's own file.
    spdlog::warn("output of worker {} is dropped: {}", identity_->first.value(),
                 std::string(settled.status().message()));
  }
  v1::CoordinatorMessage message;
  message.set_epoch(parts_.epoch.value());
  v1::LogAck& ack = *message.mutable_log_ack();
  ack.set_job_id(log.job_id());
  ack.set_attempt(log.attempt());
  ack.set_rank(log.rank());
  ack.set_offset(offset);
  const grpc::Slice bytes(message.SerializeAsString());
  enqueue({&bytes, 1});
}

void WorkerStream::leave() {
  if (!identity_ || std::exchange(left_, true)) return;
  // The loop refuses the event only if the coordinator stops or is overloaded; then the worker's
  // lease expires instead.
  parts_.loop.post(WorkerDisconnected{identity_->first, identity_->second}, shared_from_this())
      .IgnoreError();
}

void WorkerStream::enqueue(grpc::ByteBuffer message) {
  const std::lock_guard lock(mutex_);
  if (closing_) return;
  if (outbox_.size() >= daemon::kOutboxMax) {
    close_locked(absl::ResourceExhaustedError("the worker does not read its stream"));
    return;
  }
  outbox_.push_back(std::move(message));
  write_next_locked();
}

void WorkerStream::read_next_locked() {
  reading_ = true;
  call_->stream->Read(&incoming_, &read_);
}

// A message with a successor waits for it, so that one packet has them all.
void WorkerStream::write_next_locked() {
  if (writing_ || outbox_.empty()) return;
  writing_ = true;
  const grpc::ByteBuffer message = std::move(outbox_.front());
  outbox_.pop_front();
  grpc::WriteOptions options;
  if (!outbox_.empty()) options.set_buffer_hint();
  call_->stream->Write(message, options, &written_);
}

void WorkerStream::close_locked(const absl::Status& status) {
  if (closing_) return;
  closing_ = true;
  status_ = status;
  outbox_.clear();
  if (!writing_) return finish_locked();
  // The write of a worker that does not read would never end.
  const bool waits = !absl::IsResourceExhausted(status) && !absl::IsUnauthenticated(status);
  if (!waits && call_ != nullptr) call_->context->TryCancel();
}

void WorkerStream::finish_locked() {
  if (finishing_) return;
  finishing_ = true;
  count_->count_end(status_);
  call_->stream->Finish(to_grpc(status_), &finish_);
}

}  // namespace muster::coordinator
