// Reports Slurm's node states to the coordinator: the coordinator places no more ranks on a drained
// or dead node, and moves the node's jobs if other nodes can run them. It drains nodes with a
// planned maintenance in time for its start.
#pragma once

#include <condition_variable>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "cli/client.h"
#include "cli/slurm/slurm_job.h"
#include "cli/slurm/slurm_maintenance.h"

namespace muster::cli {

// A change of a node's exclusion that the coordinator should make.
struct NodeOrder {
  enum class What { kExclude, kEvacuate, kAdmit };
  std::string node;
  What what = What::kExclude;
  std::string reason;
};

// Returns the changes that `nodes` require. `fewest`: the number of nodes that the job needs;
// `reported`: reasons that were sent to the coordinator earlier, by node. Pure.
std::vector<NodeOrder> node_orders(const std::vector<SlurmNode>& nodes,
                                   const v1::ListWorkersResponse& workers, int32_t fewest,
                                   const std::map<std::string, std::string>& reported);

// Returns the number of workers on which ranks may be placed. Pure.
int32_t usable_workers(const v1::ListWorkersResponse& workers);

// Time limit for the workers to start, which includes unpacking a container image on each node.
constexpr Duration kLaunchTime = std::chrono::minutes(15);

// slurmctld serves the whole cluster and can take a few requests a minute from each job.
constexpr Duration kNodesPeriod = std::chrono::seconds(5);
constexpr Duration kMaintenancePeriod = std::chrono::minutes(1);

// Queries Slurm and the coordinator on its own thread. Public members are called on the owner's
// thread only.
class SlurmNodes {
 public:
  struct Options {
    SlurmJob job;        // its node_names: the allocation's nodes; a fleet may have further nodes
    int32_t fewest = 1;  // number of nodes that the job needs
    Duration launch_time = kLaunchTime;
    // The intervals between queries of Slurm's nodes and reservations.
    Duration nodes_period = kNodesPeriod;
    Duration maintenance_period = kMaintenancePeriod;
  };
  SlurmNodes(Options options, const CoordinatorTarget& coordinator);
  // Cancels running calls to the coordinator.
  ~SlurmNodes();
  SlurmNodes(const SlurmNodes&) = delete;
  SlurmNodes& operator=(const SlurmNodes&) = delete;

  // Returns whether all awaited workers have registered. Workers on drained or dead nodes, and
  // workers that did not register within launch_time, are no longer awaited.
  bool launched() const;
  // Returns the number of workers that are registered and not about to leave; before launched(),
  // the number of the allocation's nodes.
  int32_t staying() const;
  // Returns whether there are too few workers for the job; false before launched().
  bool too_few() const;
  // Returns whether the coordinator has answered the last request.
  bool coordinator_answers() const;
  // Returns sentences about the events since the last call: each change that was sent to the
  // coordinator, and each worker that is no longer awaited.
  std::vector<std::string> take_events();

 private:
  void watch();
  void poll_workers();
  void poll_nodes();
  void poll_maintenance();
  // Returns whether the node's exclusion is one that this process has requested.
  bool is_own_exclusion(const std::string& node) const;
  void give_up_waiting(const std::string& node, const std::string& reason);
  void report(std::string notice);
  bool wait(Duration time);

  const Options options_;
  Client client_;
  // Used by the thread only:
  v1::ListWorkersResponse workers_;
  std::map<std::string, std::string> reported_;
  MaintenanceByNode drained_;      // the planned maintenance that was reported
  std::set<std::string> awaited_;  // nodes whose workers have not registered yet
  const Instant launch_by_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool stop_ = false;
  bool launched_ = false;
  bool coordinator_answers_ = true;
  int32_t staying_;
  int32_t usable_ = 0;
  std::vector<std::string> notices_;

  std::thread thread_;
};

}  // namespace muster::cli
