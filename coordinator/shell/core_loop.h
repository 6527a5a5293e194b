// The thread that owns the core: drain the queue → step → one storage transaction → only then send and reply.
//
// Everything else in the shell hands events in and gets answers back on this thread. When the state cannot be
// stored, nothing of that drain is sent: what is not stored must not be acted on. A full disk is waited for, because somebody makes room on it
// while trainings go on; of anything else the loop stops.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include <absl/status/status.h>

#include "coordinator/core/core.h"
#include "coordinator/shell/log_store.h"
#include "coordinator/shell/metrics.h"
#include "coordinator/shell/storage.h"
#include "daemon/bounded_queue.h"

namespace muster::coordinator {

// One worker's stream, as the loop sees it. Called on the loop's thread; must not block.
class WorkerLink {
 public:
  virtual ~WorkerLink() = default;
  virtual void send(const WorkerPayload& payload) = 0;
  virtual void close(const absl::Status& status) = 0;
};

// Called on the loop's thread; must not block. `job` is valid during the call.
class JobWatcher {
 public:
  virtual ~JobWatcher() = default;
  virtual void on_job(const Core& core, const Job& job, Instant now) = 0;
  // The coordinator stops, or there is no such job.
  virtual void on_end(const absl::Status& status) = 0;
};

class CoreLoop {
 public:
  // `job` is null unless there is one to tell about. Called once, on the loop's thread.
  using ReplyFn = std::function<void(const absl::Status& status, const Core& core, const Job* job,
                                     Instant now)>;
  // `dump` is null unless the status is OK. Called once, on the loop's thread.
  using StacksFn = std::function<void(const absl::Status& status, const StackDump* dump)>;
  // `core` is null when the loop stopped before the query's turn.
  using QueryFn = std::function<void(const Core* core, Instant now)>;
  // The same, for what lies in the storage and not in the core.
  using ReadFn = std::function<void(Storage* storage)>;

  // `storage`, `logs` and `metrics` must outlive the loop. `on_fatal` is called once, on the loop's thread,
  // when the state cannot be stored.
  CoreLoop(Core core, Storage& storage, LogStore& logs, Metrics& metrics,
           std::function<void(absl::Status)> on_fatal);
  // Stops as stop() does.
  ~CoreLoop();

  // The rest may be called from any thread. ResourceExhausted when the queue is full, Unavailable when the
  // loop stops; then the callbacks are not called.
  absl::Status submit(JobSubmitted event, ReplyFn reply);
  absl::Status cancel(JobCancelRequested event, ReplyFn reply);
  absl::Status checkpoint(JobCheckpointRequested event, ReplyFn reply);
  absl::Status stacks(StacksRequested event, StacksFn reply);
  // Their replies have no job.
  absl::Status exclude_node(NodeExcludeRequested event, ReplyFn reply);
  absl::Status admit_node(NodeAdmitRequested event, ReplyFn reply);
  absl::Status query(QueryFn query);
  absl::Status read(ReadFn read);
  absl::Status watch(JobId job, std::shared_ptr<JobWatcher> watcher);
  // An event of a worker's stream. Events of a stream that another has replaced are dropped.
  absl::Status post(Event event, std::shared_ptr<WorkerLink> link);

  // Answers what waits with Unavailable, ends every stream and joins the thread.
  void stop();

 private:
  using Answer = std::variant<ReplyFn, StacksFn>;
  struct Request {
    Event event;
    Answer answer;
  };
  struct FleetEvent {
    Event event;
    std::shared_ptr<WorkerLink> link;
  };
  struct Watch {
    JobId job;
    std::shared_ptr<JobWatcher> watcher;
  };
  using Item = std::variant<Request, FleetEvent, Watch, QueryFn, ReadFn>;
  using LinkKey = std::pair<WorkerName, Incarnation>;

  void run();
  absl::Status push(Item item);
  void step(Event event, ActionList& actions);
  void take(Item& item, ActionList& actions, std::vector<Item>& after);
  void register_worker(FleetEvent& item, ActionList& actions);
  bool belongs_to_current_stream(const FleetEvent& item);
  StorageBatch batch_of(const ActionList& actions) const;
  absl::Status persist(const StorageBatch& batch);
  void carry_out(ActionList& actions);
  template <class F>
  F waiting(RequestToken token);
  void refuse(const Answer& answer, const absl::Status& status);
  void publish(JobId id);
  void answer(Item& item);
  void log_decision(const PersistJob& decision);
  void tell_incident(const Incident& incident);
  void tell_node(const NodeTold& told);
  void end_everything(const absl::Status& status, std::vector<Item>& items);

  Core core_;
  Storage& storage_;
  LogStore& logs_;
  Metrics& metrics_;
  std::function<void(absl::Status)> on_fatal_;
  daemon::BoundedQueue<Item> queue_;
  std::atomic<uint64_t> next_token_{1};

  // Of the loop's thread.
  Instant now_{};
  std::map<LinkKey, std::shared_ptr<WorkerLink>> links_;
  // Streams that are nobody's any more, to be closed once the decision is stored.
  std::vector<std::pair<std::shared_ptr<WorkerLink>, absl::Status>> ending_;
  std::map<RequestToken, Answer> answers_;
  std::map<JobId, std::vector<std::weak_ptr<JobWatcher>>> watchers_;
  std::map<JobId, std::string> logged_;  // the last line of each job that has not ended
  IncidentId newest_incident_{0};        // that was logged

  std::thread thread_;
};

}  // namespace muster::coordinator
