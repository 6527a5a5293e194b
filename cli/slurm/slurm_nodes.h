// Keeps the coordinator told of what Slurm knows of an allocation's nodes: who is drained or dead gets no ranks any more, and what runs
// there moves when there is another place for it.
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

namespace muster::cli {

struct NodeOrder {
  enum class What { kExclude, kEvacuate, kAdmit };
  std::string node;
  What what = What::kExclude;
  std::string reason;
};

// What is to be said of the nodes. `fewest`: how many nodes the job can go on with; `told`: of whom a trouble was told before. Pure.
std::vector<NodeOrder> node_orders(const std::vector<SlurmNode>& nodes,
                                   const v1::ListWorkersResponse& workers, int32_t fewest,
                                   const std::map<std::string, std::string>& told);

// Workers that ranks can be placed on. Pure.
int32_t usable_workers(const v1::ListWorkersResponse& workers);

// Until workers are there, an image to be unpacked on each node included.
constexpr Duration kLaunchTime = std::chrono::minutes(15);

// A thread of its own asks Slurm and the coordinator. Everything public is for the owner's thread.
class SlurmNodes {
 public:
  struct Options {
    std::vector<std::string> names;  // the allocation's nodes; a fleet has others, too
    int32_t fewest = 1;              // that the job can go on with
    Duration launch_time = kLaunchTime;
  };
  SlurmNodes(Options options, const CoordinatorTarget& coordinator);
  // Ends its calls.
  ~SlurmNodes();
  SlurmNodes(const SlurmNodes&) = delete;
  SlurmNodes& operator=(const SlurmNodes&) = delete;

  // Every worker has been heard of, but for those that are not waited for: of nodes that are drained or dead, and late ones.
  bool launched() const;
  // Workers that are there and stay; before launched() all of them.
  int32_t staying() const;
  // There are too few workers for the job. False before launched().
  bool too_few() const;
  // The coordinator has answered the last question.
  bool coordinator_answers() const;
  // One sentence for each thing that was told to the coordinator since, and for who is not waited for.
  std::vector<std::string> take_news();

 private:
  void watch();
  void look_at_workers();
  void look_at_nodes();
  void give_up_waiting(const std::string& node, const std::string& reason);
  void tell(std::string news);
  bool wait(Duration time);

  const Options options_;
  Client client_;
  // Of the thread:
  v1::ListWorkersResponse workers_;
  std::map<std::string, std::string> told_;
  std::set<std::string> awaited_;  // nodes whose workers have not come yet
  const Instant launch_by_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool stop_ = false;
  bool launched_ = false;
  bool coordinator_answers_ = true;
  int32_t staying_;
  int32_t usable_ = 0;
  std::vector<std::string> news_;

  std::thread thread_;
};

}  // namespace muster::cli
