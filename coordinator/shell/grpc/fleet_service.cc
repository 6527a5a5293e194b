#include "coordinator/shell/grpc/fleet_service.h"

#include <algorithm>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <absl/strings/str_cat.h>
#include <google/protobuf/arena.h>
#include <grpc/support/time.h>
#include <grpcpp/alarm.h>
#include <spdlog/spdlog.h>

#include "common/job/limits.h"
#include "common/text/escape.h"
#include "coordinator/shell/grpc/grpc_status.h"
#include "coordinator/shell/grpc/merge_pages.h"
#include "coordinator/shell/messages/incident_messages.h"
#include "coordinator/shell/messages/job_and_worker_messages.h"
#include "coordinator/shell/messages/node_messages.h"
#include "daemon/limits.h"
#include "daemon/valid_texts.h"

namespace muster::coordinator {
namespace {

// The maximum number of pages in merged heartbeats: ranks that are being stopped may run beside
// their successors, and a node has at most kRanksPerNodeMax of each.
constexpr size_t kPagesMax = size_t{2} * kRanksPerNodeMax;

// The stream of one worker. gRPC calls each of the On…() functions on one thread at a time; the
// core loop's thread calls send() and close(). The stream owns itself until gRPC calls OnDone();
// the loop's links may keep it alive longer.
class WorkerStream final
    : public grpc::ServerBidiReactor<v1::WorkerMessage, v1::CoordinatorMessage>,
      public WorkerLink,
      public std::enable_shared_from_this<WorkerStream> {
 public:
  WorkerStream(CoreLoop& loop, LogStore& logs, std::shared_ptr<ShellMetrics> metrics, Epoch epoch,
               std::shared_ptr<const OpenConnections> connections, std::string peer)
      : loop_(loop),
        logs_(logs),
        count_(std::move(metrics), "Connect"),
        epoch_(epoch),
        connections_(std::move(connections)),
        peer_(std::move(peer)) {}

  void begin(Duration registration_budget) {
    self_ = shared_from_this();
    alarm_.Set(gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC),
                            gpr_time_from_nanos(registration_budget.count(), GPR_TIMESPAN)),
               [stream = weak_from_this(), registration_budget](bool in_time) {
                 const auto alive = stream.lock();
                 if (in_time && alive != nullptr) alive->expire(registration_budget);
               });
    read_next();
  }

  void send(const WorkerPayload& payload) override {
    if (std::holds_alternative<SendRegistered>(payload)) {
      const std::lock_guard lock(mutex_);
      admitted_ = true;
    }
    enqueue(message_to_proto(payload, epoch_));
  }

  void close(const absl::Status& status) override {
    const std::lock_guard lock(mutex_);
    close_locked(status);
  }

  bool is_open() override {
    const std::lock_guard lock(mutex_);
    return !closing_;
  }

  bool has_unread() override {
    return connections_ != nullptr && is_open() && connections_->has_unread(peer_);
  }

  void fill(HeartbeatReceived& heartbeat) override {
    const std::lock_guard lock(mutex_);
    heartbeat.ranks = std::exchange(pages_, {});
    heartbeat_posted_ = false;
  }

  void OnReadDone(bool ok) override {
    if (!ok) {
      leave();
      close(absl::CancelledError("the worker ended the stream"));
      return;
    }
    handle();
    const std::lock_guard lock(mutex_);
    if (!finished_) read_next();
  }

  void OnWriteDone(bool ok) override {
    const std::lock_guard lock(mutex_);
    writing_ = false;
    if (!outbox_.empty()) outbox_.pop_front();
    if (!ok) close_locked(absl::CancelledError("the worker is gone"));
    if (closing_) {
      finish_locked();
    } else {
      write_next_locked();
    }
  }

  void OnDone() override {
    leave();
    self_.reset();
  }

 private:
  void read_next() {
    arena_.Reset();
    incoming_ = google::protobuf::Arena::CreateMessage<v1::WorkerMessage>(&arena_);
    StartRead(incoming_);
  }

  void handle() {
    switch (incoming_->body_case()) {
      case v1::WorkerMessage::kRegister:
        return on_register();
      case v1::WorkerMessage::kHeartbeat:
        return on_heartbeat();
      case v1::WorkerMessage::kRankExited:
        return post(exit_from_proto(incoming_->rank_exited()));
      case v1::WorkerMessage::kLeaving:
        return post(leaving_from_proto(incoming_->leaving()));
      case v1::WorkerMessage::kLog:
        return on_log(incoming_->log());
      case v1::WorkerMessage::kStackReport:
        return on_stack_report();
      case v1::WorkerMessage::kSymbols:
        return post(symbol_report_from_proto(incoming_->symbols()));
      case v1::WorkerMessage::kNodeChecked:
        return post(node_checked_from_proto(incoming_->node_checked()));
      case v1::WorkerMessage::BODY_NOT_SET:
        break;  // a later version's message
    }
  }

  void on_register() {
    if (identity_) {
      close(absl::InvalidArgumentError(
          "register must be the first message of a stream, and come once"));
      return;
    }
    WorkerRegistered event = registration_from_proto(incoming_->register_());
    identity_.emplace(event.worker, event.incarnation);
    {
      const std::lock_guard lock(mutex_);
      has_introduced_itself_ = true;
    }
    post_as_is(std::move(event));
  }

  // Merges the heartbeat with an earlier one that the loop has not taken yet.
  void on_heartbeat() {
    HeartbeatReceived event = heartbeat_from_proto(incoming_->heartbeat());
    {
      const std::lock_guard lock(mutex_);
      if (heartbeat_posted_) return merge_pages(pages_, event.ranks, kPagesMax);
      heartbeat_posted_ = true;
      pages_ = std::move(event.ranks);
      if (pages_.size() > kPagesMax) pages_.resize(kPagesMax);
    }
    post(HeartbeatReceived{});
  }

  // Drops an invalid tree: the dump ends by its deadline, and the stream stays open.
  void on_stack_report() {
    auto event = stack_report_from_proto(incoming_->stack_report());
    if (event.ok()) return post(*std::move(event));
    if (std::exchange(report_trouble_logged_, true)) return;
    spdlog::warn("stack reports of worker {} are dropped: {}",
                 identity_ ? printable(identity_->first.value(), kNameBytesMax) : "?",
                 std::string(event.status().message()));
  }

  template <class E>
  void post(E event) {
    if (!identity_) {
      close(absl::InvalidArgumentError("the first message of a stream must be register"));
      return;
    }
    event.worker = identity_->first;
    event.incarnation = identity_->second;
    post_as_is(std::move(event));
  }

  // Posts the event. If the loop's queue is full, ends the stream: the worker reconnects, and
  // repeats all reports that were not acknowledged.
  void post_as_is(Event event) {
    if (const absl::Status status = loop_.post(std::move(event), shared_from_this()); !status.ok())
      close(status);
  }

  void on_log(const v1::LogData& log) {
    if (!identity_) {
      close(absl::InvalidArgumentError("the first message of a stream must be register"));
      return;
    }
    {
      const std::lock_guard lock(mutex_);
      if (closing_) return;
      if (!admitted_) {
        close_locked(absl::InvalidArgumentError("log came before the worker was registered"));
        return;
      }
    }
    const LogWriter writer{identity_->first, identity_->second};
    const auto settled = logs_.append(writer, JobId(log.job_id()), Attempt(log.attempt()),
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
    message.set_epoch(epoch_.value());
    v1::LogAck& ack = *message.mutable_log_ack();
    ack.set_job_id(log.job_id());
    ack.set_attempt(log.attempt());
    ack.set_rank(log.rank());
    ack.set_offset(offset);
    enqueue(std::move(message));
  }

  void expire(Duration budget) {
    const std::lock_guard lock(mutex_);
    // A registration that waits for the loop is not the worker's delay.
    if (admitted_ || has_introduced_itself_) return;
    close_locked(absl::DeadlineExceededError(
        absl::StrCat("the worker did not register within ", to_seconds(budget), " s")));
  }

  void enqueue(v1::CoordinatorMessage message) {
    const std::lock_guard lock(mutex_);
    if (closing_) return;
    if (outbox_.size() >= daemon::kOutboxMax) {
      close_locked(absl::ResourceExhaustedError("the worker does not read its stream"));
      return;
    }
    daemon::make_texts_valid(message);
    outbox_.push_back(std::move(message));
    write_next_locked();
  }

  void write_next_locked() {
    if (writing_ || outbox_.empty()) return;
    writing_ = true;
    StartWrite(&outbox_.front());
  }

  void close_locked(const absl::Status& status) {
    if (closing_) return;
    closing_ = true;
    status_ = status;
    if (!writing_) finish_locked();
  }

  void finish_locked() {
    if (finished_) return;
    finished_ = true;
    count_.count_end(status_);
    Finish(to_grpc(status_));
  }

  // Reports once to the core that the stream is gone.
  void leave() {
    if (!identity_ || std::exchange(left_, true)) return;
    // The loop refuses the event only if the coordinator stops or is overloaded; then the worker's
    // lease expires instead.
    loop_.post(WorkerDisconnected{identity_->first, identity_->second}, shared_from_this())
        .IgnoreError();
  }

  CoreLoop& loop_;
  LogStore& logs_;
  const StreamCount count_;
  const Epoch epoch_;
  const std::shared_ptr<const OpenConnections> connections_;
  const std::string peer_;  // the address of the connection
  std::shared_ptr<WorkerStream> self_;

  // Used by gRPC's reading callbacks.
  // A heartbeat has several objects for each rank; the arena allocates and frees them together.
  google::protobuf::Arena arena_;
  v1::WorkerMessage* incoming_ = nullptr;  // in the arena
  std::optional<std::pair<WorkerName, Incarnation>> identity_;
  bool left_ = false;
  bool log_trouble_logged_ = false;
  bool report_trouble_logged_ = false;

  grpc::Alarm alarm_;  // set before the first callback, never again

  std::mutex mutex_;
  bool admitted_ = false;               // the core has admitted this worker
  bool has_introduced_itself_ = false;  // the registration has been posted
  bool heartbeat_posted_ = false;       // the loop has not taken the posted heartbeat yet
  std::vector<RankProgress> pages_;     // progress of the ranks in the posted heartbeat
  // gRPC writes the first message while writing_ is true
  std::deque<v1::CoordinatorMessage> outbox_;
  bool writing_ = false;
  bool closing_ = false;
  bool finished_ = false;
  absl::Status status_;
};

}  // namespace

grpc::ServerBidiReactor<v1::WorkerMessage, v1::CoordinatorMessage>* FleetService::Connect(
    grpc::CallbackServerContext* context) {
  const auto stream =
      std::make_shared<WorkerStream>(loop_, logs_, metrics_, epoch_, connections_, context->peer());
  stream->begin(registration_budget_);
  return stream.get();
}

}  // namespace muster::coordinator
