// One node: the real worker core, with model trainers as its processes. The worker crashes (its
// ranks then die, too), receives shutdown requests, and restarts as a new incarnation, as under an
// init system.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "coordinator/core/action.h"
#include "tests/simulation/fake_network.h"
#include "tests/simulation/scheduler.h"
#include "tests/simulation/trainers.h"
#include "worker/core/core.h"

namespace muster::simulation {

class World;

class FakeWorker {
 public:
  FakeWorker(World& world, int host, int32_t slots);

  void boot();
  void crash(Duration down);
  void request_shutdown();

  void deliver(StreamId stream, const coordinator::WorkerPayload& payload, StoreId store,
               Epoch epoch);
  void stream_ended(StreamId stream, worker::StreamEnd end, const std::string& reason);

  int host() const { return host_; }
  int32_t slots() const { return slots_; }
  bool is_up() const { return core_.has_value(); }
  // Returns whether two processes on the node own the same GPU exclusively.
  bool shares_a_gpu() const;
  const WorkerName& name() const { return name_; }
  Incarnation incarnation() const { return incarnation_; }
  // Returns whether the host's memory contains checkpoint copies of any job of the store.
  bool has_copies_of(StoreId store) const;

 private:
  void step(const worker::Event& event);
  void carry_out(const worker::Action& action);
  void plan_tick();
  void connect(Duration within);
  void try_to_connect(uint64_t attempt, Instant deadline, Duration wait);
  void end_connecting(const std::string& reason);
  void spawn(const worker::SpawnRank& action);
  void read_pages(const worker::ReadPages& action);
  void read_stacks(const worker::ReadStacks& action);
  void check_node();
  void check_deeply(const worker::DeepCheckOrder& order);
  void stop_deep_check();
  void end_deep_check_after(Duration time, const worker::DeepCheckDone& done);
  void spares_the_deep_check() const;
  void reboot_after(Duration down);
  void send_heartbeat(const worker::SendHeartbeat& heartbeat);
  void drop_copies(StoreId store, const std::set<JobId>& kept);

  World& world_;
  const int host_;
  const int32_t slots_;
  const WorkerName name_;
  Incarnation incarnation_{0};
  uint64_t life_ = 0;  // number of the run; events scheduled by earlier runs are ignored
  std::optional<worker::Core> core_;
  std::optional<StreamId> stream_;
  // the attempt to connect in progress; attempts of all runs are numbered
  std::optional<uint64_t> connecting_;
  uint64_t attempts_ = 0;
  std::optional<Instant> leave_requested_at_;    // time of the shutdown request
  std::optional<Instant> waits_until_;           // deadline for the coordinator to stop the ranks
  std::map<worker::LaunchKey, StoreId> stores_;  // store of each launch
  // checkpoint copies in the host's memory, which outlive the worker
  std::set<std::pair<StoreId, JobId>> copies_;
  std::optional<uint64_t> deep_check_;  // the number of the check that runs, or is being killed
  std::optional<Instant> deep_stopped_at_;
  uint64_t deep_checks_ = 0;
};

}  // namespace muster::simulation
