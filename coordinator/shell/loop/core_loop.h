// The thread that owns the core. Each iteration drains the event queue, steps the core with each
// event, stores all changes in one transaction, and only then sends messages and replies.
//
// All other parts of the shell post events and receive answers on this thread. If the changes
// cannot be stored, the iteration sends nothing, because a decision that is not stored must not
// take effect. On a full disk the loop waits, because an operator can free space while the
// trainings continue; any other error stops the loop.
#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include <absl/status/status.h>

#include "coordinator/core/core.h"
#include "coordinator/shell/logs/log_store.h"
#include "coordinator/shell/loop/loop_backlog.h"
#include "coordinator/shell/loop/loop_life.h"
#include "coordinator/shell/loop/overload.h"
#include "coordinator/shell/metrics/metrics.h"
#include "coordinator/shell/storage/patient_storage.h"
#include "coordinator/shell/storage/storage.h"
#include "daemon/bounded_queue.h"

namespace muster::coordinator {

// The loop's interface to one worker's stream. Methods are called on the loop's thread and must not
// block.
class WorkerLink {
 public:
  virtual ~WorkerLink() = default;
  virtual void send(const WorkerPayload& payload) = 0;
  virtual void close(const absl::Status& status) = 0;
  // Returns whether the stream can still deliver messages.
  virtual bool is_open() { return true; }
  // Returns whether bytes of the worker have arrived that were not read yet.
  virtual bool has_unread() { return false; }
  // Completes a heartbeat when the loop takes it from the queue. A stream posts an empty event, and
  // merges heartbeats until then, so that they do not fill the queue of a loop that is late.
  virtual void fill(HeartbeatReceived& heartbeat) { (void)heartbeat; }
};

// Receives the changes of one job. Methods are called on the loop's thread and must not block.
// `job` is valid during the call.
class JobWatcher {
 public:
  virtual ~JobWatcher() = default;
  virtual void on_job(const Core& core, const Job& job, Instant now) = 0;
  // Called when the coordinator stops, or if there is no such job.
  virtual void on_end(const absl::Status& status) = 0;
};

// Returns whether the coordinator reads messages too late, if `unread` of `samples` connections
// hold a message that was not read. A message is normally read within a millisecond, and a worker
// sends at most four per second, so a few unread messages are chance: the fleets of one to three
// workers are never late.
bool is_late_reader(size_t unread, size_t samples);

class CoreLoop {
 public:
  // Receives the result of a request. `job` is null if the request does not concern a job. Called
  // once, on the loop's thread.
  using ReplyFn = std::function<void(const absl::Status& status, const Core& core, const Job* job,
                                     Instant now)>;
  // Receives the requested stacks. `dump` is null unless the status is OK. Called once, on the
  // loop's thread.
  using StacksFn = std::function<void(const absl::Status& status, const JobStackDump* dump)>;
  // Reads the core's state on the loop's thread. `core` is null if the loop stopped before the
  // query ran.
  using QueryFn = std::function<void(const Core* core, Instant now)>;
  // Reads the storage on the loop's thread. `storage` is null if the loop stopped before.
  using ReadFn = std::function<void(Storage* storage)>;

  // Requires that `storage`, `logs`, `metrics` and `reserve` outlive the loop. `on_fatal` is called
  // once, on the loop's thread, if the state cannot be stored. `reserve`: space for the last batch
  // of a loop that is stopped while the disk is full; null: none. `overload`: when reads are
  // refused. `check_leads` returns an error once another coordinator may decide; null: there is no
  // other.
  CoreLoop(Core core, Storage& storage, LogStore& logs, Metrics& metrics,
           std::function<void(absl::Status)> on_fatal, SpaceReserve* reserve = nullptr,
           OverloadLimits overload = {}, std::function<absl::Status()> check_leads = nullptr);
  // Stops as stop() does.
  ~CoreLoop();

  // Returns Unavailable if the loop is stuck: it has work, and has shown no sign of life for
  // kStuckAfter.
  // A loop that waits for the storage is not stuck. Thread-safe.
  absl::Status check_alive(Instant now) const { return life_.check(now); }
  // Returns the events that wait, and how late the loop handles them. Thread-safe.
  LoopLoad load(Instant now);
  // Returns ResourceExhausted if the loop is so late that it refuses to be read. Thread-safe.
  absl::Status admit_read(Instant now);
  // The time after which the caller of a refused read should repeat it.
  Duration retry_after() const { return overload_.retry_after(); }

  // The methods below are thread-safe. They return ResourceExhausted if the queue is full, and
  // Unavailable if the loop has stopped or, except post(), waits for space on the disk; then the
  // callbacks are not called.
  absl::Status submit(JobSubmitted event, ReplyFn reply);
  absl::Status cancel(JobCancelRequested event, ReplyFn reply);
  absl::Status checkpoint(JobCheckpointRequested event, ReplyFn reply);
  absl::Status update(JobUpdateRequested event, ReplyFn reply);
  absl::Status stacks(StacksRequested event, StacksFn reply);
  // Excludes a node from placement, or admits it. The reply has no job.
  absl::Status exclude_node(NodeExcludeRequested event, ReplyFn reply);
  absl::Status admit_node(NodeAdmitRequested event, ReplyFn reply);
  // Begins deep checks of idle nodes. The reply has no job.
  absl::Status check_nodes(NodeSweepRequested event, ReplyFn reply);
  absl::Status set_policy(QueuePolicyChanged event) { return push(std::move(event)); }
  absl::Status query(QueryFn query);
  absl::Status read(ReadFn read);
  absl::Status watch(JobId job, std::shared_ptr<JobWatcher> watcher);
  // Posts an event of a worker's stream. Drops events of a replaced stream.
  absl::Status post(Event event, std::shared_ptr<WorkerLink> link);

  // Stops the loop: answers pending requests with Unavailable, ends every stream and joins the
  // thread.
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
  using Item = std::variant<Request, QueuePolicyChanged, FleetEvent, Watch, QueryFn, ReadFn>;
  struct Queued {
    Item item;
    Instant arrived;
  };
  using LinkKey = std::pair<WorkerName, Incarnation>;

  void run();
  std::deque<Queued> take_items(std::optional<Instant> deadline);
  absl::Status push(Item item);
  void step(Event event, ActionList& actions);
  Tick tick();
  bool is_behind();
  void log_pace();
  void take(Item& item, ActionList& actions, std::vector<Item>& after);
  void register_worker(FleetEvent& item, ActionList& actions);
  bool belongs_to_current_stream(const FleetEvent& item);
  absl::Status persist(const StorageBatch& batch);
  void carry_out(ActionList& actions);
  template <class F>
  F waiting(RequestToken token);
  void refuse(const Answer& answer, const absl::Status& status);
  void publish(JobId id);
  void answer(Item& item);
  void log_decision(const PersistJob& decision);
  void log_incident(const Incident& incident);
  void log_node(const NodeDecision& change);
  void end_everything(const absl::Status& status, std::vector<Item>& items);

  Core core_;
  Storage& storage_;
  LogStore& logs_;
  Metrics& metrics_;
  std::function<void(absl::Status)> on_fatal_;
  const std::function<absl::Status()> check_leads_;
  PatientStorage patient_;
  LoopLife life_;
  LoopBacklog backlog_;
  Overload overload_;
  daemon::BoundedQueue<Queued> queue_;
  std::atomic<uint64_t> next_token_{1};

  // The members below are used only on the loop's thread.
  Instant now_{};
  Duration lag_{};  // from the arrival of the current event to its handling
  std::map<LinkKey, std::shared_ptr<WorkerLink>> links_;
  // Replaced streams, which are closed once the decision is stored.
  std::vector<std::pair<std::shared_ptr<WorkerLink>, absl::Status>> ending_;
  std::map<RequestToken, Answer> answers_;
  std::map<JobId, std::vector<std::weak_ptr<JobWatcher>>> watchers_;
  // The last logged line of each job that has not ended.
  std::map<JobId, std::string> logged_;
  IncidentId newest_incident_{0};  // the newest incident that was logged
  LinkKey sampled_;                // the link at which is_behind() continues
  // The interval of workers with ranks in the last pace that was observed; zero: none yet.
  Duration logged_busy_{};

  std::thread thread_;
};

}  // namespace muster::coordinator
