// Model trainers: processes that wait for their peers, count steps, checkpoint, die by themselves or by signal, and
// notice when a peer is gone. Asked to leave they save when all of them are, and those that wait in vain leave without. They know
// nothing of coordinators.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "common/ids.h"
#include "tests/simulation/scheduler.h"
#include "worker/core/rank.h"

namespace muster::simulation {

// Job 1 of one state store is not job 1 of another.
using JobKey = std::pair<StoreId, JobId>;
using LaunchKey = std::pair<JobKey, Attempt>;

// How the trainers of a job behave; drawn when the job is submitted, and known when that is answered, which its ranks may not wait for.
struct JobNature {
  int64_t steps = 20;
  Duration step_time = std::chrono::milliseconds(100);
  int32_t bad_input_rank = -1;  // exits with kBadInput at its start
  int64_t nan_step = -1;        // rank 0 exits with kNotFinite there
  double crash_per_step = 0;
};

struct ProcessEnd {
  int32_t exit_code = 0;
  int32_t signal = 0;
  int64_t last_step = -1;
};

struct Process {
  int32_t pid = 0;
  int host = 0;
  StoreId store;
  int32_t world_size = 1;
  bool running = false;  // false while it is being reaped
  bool deaf = false;     // ignores SIGTERM
  bool asked = false;    // for a checkpoint after its next step
  bool leaving = false;  // was asked to leave, and waits for its peers
  int64_t step = -1;
  std::function<void(const ProcessEnd&)> on_reaped;
};

class Trainers {
 public:
  Trainers(Scheduler& scheduler, Random& random) : scheduler_(scheduler), random_(random) {}

  void set_nature(const JobKey& job, const JobNature& nature) { natures_[job] = nature; }
  void stop_crashing() { crashing_ = false; }

  int32_t spawn(int host, StoreId store, const worker::RankKey& key, int32_t world_size,
                std::function<void(const ProcessEnd&)> on_reaped);
  void signal(int host, const worker::RankKey& key, int signo);
  // The host's worker died: its ranks die with it, and nobody reaps them.
  void host_died(int host);
  // kill -9 of some running rank, if there is one.
  void kill_one();

  // Of running ranks and those not yet reaped.
  const std::map<std::pair<int, worker::RankKey>, Process>& processes() const { return processes_; }
  int64_t step_of(int host, const worker::RankKey& key) const;
  int64_t checkpoint_of(StoreId store, JobId job) const;
  int saved_on_request() const { return saved_on_request_; }
  // Attempts of several ranks whose ranks have left together.
  int left_together() const { return left_together_; }
  // Ranks of the launch that exited with code 0.
  const std::set<Rank>& succeeded(const LaunchKey& launch) { return succeeded_[launch]; }

 private:
  using ProcessKey = std::pair<int, worker::RankKey>;

  void tick(ProcessKey key, int32_t pid);
  void end(const ProcessKey& key, Process& process, ProcessEnd end, Duration reap_delay);
  Process* find(const ProcessKey& key, int32_t pid);
  bool all_up(const LaunchKey& launch, int32_t world_size) const;
  void leave(const ProcessKey& key, Process& process);

  Scheduler& scheduler_;
  Random& random_;
  bool crashing_ = true;
  int saved_on_request_ = 0;
  int left_together_ = 0;
  int32_t next_pid_ = 1000;
  std::map<JobKey, JobNature> natures_;
  std::map<JobKey, int64_t> checkpoints_;
  std::map<ProcessKey, Process> processes_;
  std::map<LaunchKey, std::set<Rank>> came_up_;
  std::set<LaunchKey> broken_;  // a rank of it is gone
  std::map<LaunchKey, std::set<Rank>> succeeded_;
};

}  // namespace muster::simulation
