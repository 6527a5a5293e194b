// The stream of one worker, a call of Fleet.Connect: converts messages to events, and payloads to
// messages.
#pragma once

#include <condition_variable>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <google/protobuf/arena.h>
#include <grpcpp/grpcpp.h>

#include "common/job/ids.h"
#include "coordinator/shell/grpc/callers.h"
#include "coordinator/shell/grpc/payload_bytes.h"
#include "coordinator/shell/grpc/unread.h"
#include "coordinator/shell/logs/log_store.h"
#include "coordinator/shell/loop/core_loop.h"
#include "coordinator/shell/metrics/shell_metrics.h"
#include "muster/v1/muster.grpc.pb.h"

namespace muster::coordinator {

// Counts the calls that gRPC has not released. Thread-safe.
class OpenCalls {
 public:
  void enter();
  void leave();
  // Blocks until each call that was entered has left.
  void wait_until_none();

 private:
  std::mutex mutex_;
  std::condition_variable none_;
  int64_t open_ = 0;
};

// The objects that all streams of a service use.
struct FleetParts {
  CoreLoop& loop;
  LogStore& logs;
  std::shared_ptr<ShellMetrics> metrics;
  Callers& callers;
  Epoch epoch;
  std::shared_ptr<const OpenConnections> connections;  // null: unknown
  OpenCalls calls{};
  PayloadBytes bytes{epoch};  // used on the loop's thread only
};

class WorkerStream;

// An operation of a stream. Its address is the operation's tag in the completion queue.
struct StreamOperation {
  WorkerStream* stream;
  // Receives whether the operation succeeded, and an arena for the duration of the call.
  void (WorkerStream::*on_done)(bool ok, google::protobuf::Arena& arena);

  void complete(bool ok, google::protobuf::Arena& arena) { (stream->*on_done)(ok, arena); }
};

// One thread, that of the call's completion queue, completes the operations. The core loop's thread
// calls the functions of WorkerLink. The stream owns itself from begin() until gRPC has released
// the call; the loop's links may keep it alive longer.
class WorkerStream final : public WorkerLink,
                           public RevocableStream,
                           public std::enable_shared_from_this<WorkerStream> {
 public:
  // The stub of the service, whose messages are bytes.
  using Service = v1::Fleet::WithRawMethod_Connect<v1::Fleet::Service>;

  // Waits for a call on `queue`, which returns `tag` once. Requires that `parts` outlives the call.
  WorkerStream(FleetParts& parts, Service& service, grpc::ServerCompletionQueue& queue, void* tag);

  // Starts to read. Called once, when the queue has returned the tag successfully.
  void begin();
  // Ends the stream if the worker has not introduced itself within `budget`.
  void expire(Duration budget);

  void send(const WorkerPayload& payload) override;
  void close(const absl::Status& status) override;
  void revoke(const absl::Status& status) override { close(status); }
  bool is_open() override;
  bool has_unread() override;
  void fill(HeartbeatReceived& heartbeat) override;

 private:
  using Arena = google::protobuf::Arena;
  // Released when the call has ended, although the loop may still have the stream.
  struct Call {
    explicit Call(OpenCalls& calls) : open(calls) { open.enter(); }
    ~Call() {
      stream.reset();
      context.reset();
      open.leave();
    }
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;

    OpenCalls& open;
    std::optional<grpc::ServerContext> context{std::in_place};
    std::optional<grpc::ServerAsyncReaderWriter<grpc::ByteBuffer, grpc::ByteBuffer>> stream{
        std::in_place, &*context};
  };

  void on_read(bool ok, Arena& arena);
  void on_written(bool ok, Arena& arena);
  void on_finished(bool ok, Arena& arena);

  void handle(const v1::WorkerMessage& message);
  void on_register(const v1::Register& registration);
  void on_heartbeat(const v1::Heartbeat& heartbeat);
  void answer_heartbeat();
  void on_stack_report(const v1::StackReport& report);
  void on_log(const v1::LogData& log);
  template <class E>
  void post(E event);
  void post_as_is(Event event);
  // Reports once to the core that the stream is gone.
  void leave();
  // Releases the call if no operation is in progress and none can follow.
  void release_if_done();

  void enqueue(grpc::ByteBuffer message);
  void read_next_locked();
  void write_next_locked();
  void close_locked(const absl::Status& status);
  void finish_locked();

  FleetParts& parts_;
  std::string peer_;  // the address of the connection
  std::shared_ptr<WorkerStream> self_;
  std::optional<StreamCount> count_;
  std::unique_ptr<Call> call_;  // null once it was released; operations begin with the lock held
  StreamOperation read_{this, &WorkerStream::on_read};
  StreamOperation written_{this, &WorkerStream::on_written};
  StreamOperation finish_{this, &WorkerStream::on_finished};

  // Used on the queue's thread only.
  std::optional<std::pair<WorkerName, Incarnation>> identity_;
  grpc::ByteBuffer incoming_;
  bool left_ = false;
  bool log_trouble_logged_ = false;
  bool report_trouble_logged_ = false;

  std::mutex mutex_;
  Audit audit_;                         // the registration's, until the worker is admitted
  std::string audit_target_;            // "worker node3"
  bool admitted_ = false;               // the core has admitted this worker
  bool answers_heartbeats_ = false;     // the coordinator is one of several
  bool has_introduced_itself_ = false;  // the registration has been posted
  bool heartbeat_posted_ = false;       // the loop has not taken the posted heartbeat yet
  bool reading_ = false;
  bool writing_ = false;
  bool closing_ = false;                // `status_` is final
  bool finishing_ = false;              // Finish() was called
  bool finished_ = false;               // and has completed
  std::vector<RankProgress> pages_;     // progress of the ranks in the posted heartbeat
  std::list<grpc::ByteBuffer> outbox_;  // messages that gRPC does not have yet; small when empty
  absl::Status status_;
};

}  // namespace muster::coordinator
