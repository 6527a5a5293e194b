// The real coordinator core in a simulated shell, which works as the daemon's loop
// (coordinator/shell/loop/core_loop.cc): events wait in a queue while an iteration is in progress;
// the next iteration takes all of them, then a due Tick, makes one queue pass, stores one batch
// (storage_batch.h) and carries out the actions. Heartbeats of a stream are merged until the loop
// takes them (merge_pages.h). The shell crashes at the worst moments: before a batch is on the
// disk, or after it is on the disk and before its messages are sent. The events of each run are
// recorded, and replayed at the end of the run. Now and then the shell gives the core an event of a
// worker's earlier incarnation, which must change nothing.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "coordinator/core/core.h"
#include "coordinator/shell/storage/storage_batch.h"
#include "tests/simulation/fake_network.h"
#include "worker/core/action.h"

namespace muster::simulation {

class World;

// Returns the worker that sent the event, and its incarnation; empty: no worker sent it.
std::pair<WorkerName, Incarnation> life_of(const coordinator::Event& event);

// The policy of each run of the coordinator (queueing.cc).
coordinator::QueuePolicy queue_policy();

class FakeCoordinator {
 public:
  explicit FakeCoordinator(World& world) : world_(world) {}

  void boot();
  void crash(Duration down);
  // Crashes and restarts with an empty disk: another state store, whose jobs are numbered from 1.
  void crash_and_lose_disk(Duration down);
  // Stalls as a process that is stopped or waits for its disk. Messages that arrive meanwhile are
  // processed at the end of the stall.
  void stall(Duration time);
  bool is_up() const { return core_.has_value(); }
  const coordinator::Core& core() const { return *core_; }
  const std::map<JobId, coordinator::Job>& disk() const { return disk_jobs_; }
  const std::map<std::string, JobId>& disk_request_ids() const { return disk_requests_; }
  const std::map<coordinator::IncidentId, coordinator::Incident>& disk_incidents() const {
    return disk_incidents_;
  }
  const std::map<WorkerName, coordinator::NodeRecord>& disk_nodes() const { return disk_nodes_; }
  int exclusions() const { return exclusions_; }
  // Returns the number of leases that continued because messages of their workers were unread.
  int64_t unread() const { return unread_; }
  // Returns the number of events that give_stale_event() has given to the core.
  int64_t stale_events() const { return stale_events_; }
  Instant born() const { return born_; }
  StoreId store() const { return store_; }
  // Returns the time at which this run of the coordinator last received a message from the
  // incarnation of `worker`, or the start of the run if it received none. Moves the time forward by
  // later stalls of the coordinator, so that stalls do not count as silence.
  Instant last_message_of(const WorkerName& worker, Incarnation incarnation) const;

  // Post requests of callers. `on_reply` is not called if the coordinator crashes first.
  void submit(const std::string& request_id, const JobSpec& spec,
              std::function<void(const coordinator::Reply&)> on_reply);
  void cancel(JobId job, bool force);
  void checkpoint(JobId job);
  void stacks(JobId job);
  // Changes the config of the job to `config`, or withdraws such a change.
  void update(JobId job, const std::string& config, coordinator::UpdateTime time);
  void withdraw_update(JobId job);
  // `drained_in`: the time until the node is drained as planned; nullopt: its ranks stay.
  void exclude(const WorkerName& worker, Duration time, std::optional<Duration> drained_in);
  void admit(const WorkerName& worker);
  // Begins deep checks of all idle nodes, and of the links between them.
  void check_nodes(bool links);

  // Receive events of streams from the network.
  void accept(StreamId stream, int host);
  void stream_broke(StreamId stream);
  void send_register(StreamId stream, const worker::SendRegister& message);
  void send_leaving(StreamId stream, const worker::SendLeaving& message);
  void send_heartbeat(StreamId stream, const worker::SendHeartbeat& message);
  void send_stack_report(StreamId stream, const worker::SendStackReport& message);
  void send_node_checked(StreamId stream, const worker::SendNodeChecked& message);
  void send_exit(StreamId stream, const worker::SendRankExited& message);

  // Replays this run's events through a new core. Returns "" if that core makes the same decisions,
  // and otherwise the difference.
  std::string replay() const;

 private:
  using Life = std::pair<WorkerName, Incarnation>;
  struct Peer {
    int host = 0;
    std::optional<Life> life;
    // Merged pages of a heartbeat that waits in the queue; nullopt: none waits.
    std::optional<std::vector<coordinator::RankProgress>> pages{};
  };
  // A call of the core: take() of an event, or place_jobs() (nullopt).
  struct Recorded {
    std::optional<coordinator::Event> event;
    Instant now;
    std::string actions;
  };
  // An event that waits for the loop. `stream`: the worker's stream; kNoStream: a caller's request.
  struct Item {
    StreamId stream = kNoStream;
    coordinator::Event event;
  };

  void post(StreamId stream, coordinator::Event event);
  void request(coordinator::Event event);
  void iterate();
  void take(Item item, coordinator::ActionList& actions);
  // Returns a Tick as the daemon's loop makes it.
  coordinator::Tick tick();
  // Keeps some of the latest events of workers for give_stale_event().
  void remember(const coordinator::Event& event);
  // Rarely gives the core a remembered event of an incarnation that is no longer the worker's.
  void give_stale_event(coordinator::ActionList& actions);
  void register_worker(Item item, coordinator::ActionList& actions);
  bool belongs_to_current_stream(const Item& item);
  void call_core(std::optional<coordinator::Event> event, coordinator::ActionList& actions);
  void commit(const coordinator::StorageBatch& batch);
  void carry_out(const coordinator::Action& action);
  void close(StreamId stream, const absl::Status& status);
  void plan_iteration();
  void forgive_stall();
  bool is_stalled() const;

  World& world_;
  uint64_t life_ = 0;
  StoreId store_{1};
  Epoch epoch_{0};
  Instant born_{};
  Instant silent_since_{};  // assumed last message of workers that have sent none to this run
  Instant stalled_until_{};
  Instant last_call_{};   // the last call of the core
  Instant busy_until_{};  // the end of the iteration in progress
  std::optional<Instant> next_iteration_;
  std::vector<Item> inbox_;
  std::deque<coordinator::Event> remembered_;
  uint64_t heartbeats_ = 0;
  int64_t unread_ = 0;
  int64_t stale_events_ = 0;
  // Streams that are closed once the decision is stored.
  std::vector<std::pair<StreamId, absl::Status>> ending_;
  std::optional<coordinator::Core> core_;
  std::map<StreamId, Peer> peers_;
  std::map<Life, StreamId> links_;
  std::map<Life, Instant> last_messages_;
  std::map<coordinator::RequestToken, std::function<void(const coordinator::Reply&)>> replies_;
  uint64_t next_token_ = 1;
  std::vector<Recorded> record_;
  coordinator::DurableState began_with_;

  std::map<JobId, coordinator::Job> disk_jobs_;
  std::map<std::string, JobId> disk_requests_;
  JobId disk_last_job_id_{0};
  std::map<coordinator::IncidentId, coordinator::Incident> disk_incidents_;
  std::map<WorkerName, coordinator::NodeRecord> disk_nodes_;
  std::map<coordinator::Party, coordinator::UsageRecord> disk_usages_;
  int exclusions_ = 0;
};

}  // namespace muster::simulation
