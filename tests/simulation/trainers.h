// Model trainers: processes that wait for their peers in each step, evaluate, checkpoint, hang,
// straggle, die by themselves or by signal, and detect lost peers. Trainers that receive SIGTERM
// save together. Trainers that train save and exit after the step in which one of them votes to
// stop; trainers that do not train yet exit when all of them have received SIGTERM. A trainer whose
// peers do not follow exits without a checkpoint. The model does not include the coordinator.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/job/ids.h"
#include "common/job/rank_evidence.h"
#include "common/progress/step_times.h"
#include "common/stacks/stack_frame.h"
#include "tests/simulation/fake_network.h"
#include "tests/simulation/scheduler.h"
#include "worker/core/rank.h"

namespace muster::simulation {

// Identifies a job. Job 1 of one state store is not job 1 of another store.
using JobKey = std::pair<StoreId, JobId>;
using LaunchKey = std::pair<JobKey, Attempt>;

enum class Hang {
  kNone,
  kStopped,  // as by SIGSTOP
  kSkips,    // enters another collective than its peers
  kLoops,    // computes forever
  kSleeps,   // waits for a lock
};

// The behaviour of a job's trainers, drawn at random at the submission.
struct JobNature {
  int64_t steps = 20;
  Duration step_time = std::chrono::milliseconds(100);
  int32_t bad_input_rank = -1;  // exits with kBadInput at its start
  int64_t nan_step = -1;        // rank 0 exits with kNotFinite at this step
  double crash_per_step = 0;
  Hang hang = Hang::kNone;
  int64_t hang_step = -1;  // the first attempt that reaches this step hangs there
  int32_t hang_rank = -1;
  int32_t slow_rank = -1;
  double slow_factor = 1;  // factor on the duration of the slow rank's steps
  double growth = 1;       // ratio of each step's time to the previous one
  // number of steps between evaluations, and between long checkpoints; 0: none
  int64_t pause_every = 0;
  Duration pause{};
};

// The truth about a hang, independent of any detection.
struct HangTruth {
  StoreId store;
  JobId job;
  Attempt attempt;
  Rank rank;
  Instant began{};
  Duration longest_step{};  // longest step of the rank's launch so far
  uint64_t steps = 0;       // steps that the launch had completed before
  // The length of the launch's evaluations and long saves. During one, other ranks continue, and a
  // detector has fewer steps from which to estimate the step time.
  Duration pause{};
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
  bool running = false;  // false after the end of the process, until it is reaped
  bool ignores_sigterm = false;
  bool checkpoint_requested = false;  // after its next step
  bool leaving = false;               // has received SIGTERM, and waits for its peers
  bool stuck = false;                 // was killed, and stays in the kernel for a long time
  int64_t step = -1;
  bool waits = false;  // has entered the collective of its next step
  Hang hung = Hang::kNone;
  int32_t fails_after = -1;  // number of steps of this launch; -1: it does not
  Phase phase = Phase::kLoad;
  Instant phase_start{};
  Instant last_progress{};
  Instant step_began{};
  Instant entered{};
  StepTimes times;
  double waited = 0;  // time waited for peers, in seconds
  double step_seconds = 0;
  std::function<void(const ProcessEnd&)> on_reaped;
};

inline LaunchKey launch_of(const Process& process, const worker::RankKey& key) {
  return {{process.store, key.job}, key.attempt};
}

class Trainers {
 public:
  Trainers(Scheduler& scheduler, Random& random, const FakeNetwork& network)
      : scheduler_(scheduler), random_(random), network_(network) {}

  void set_nature(const JobKey& job, const JobNature& nature) { natures_[job] = nature; }
  void stop_crashing() { crashing_ = false; }
  // Permits each job to hang once more.
  void hang_again() { hung_.clear(); }

  // `config`: the revision of the job. One that ends with kFailsLater or kFailsAtStart makes rank 0
  // fail after two steps, or before the first one.
  static constexpr std::string_view kFailsLater = "bad";
  static constexpr std::string_view kFailsAtStart = "worse";
  int32_t spawn(int host, StoreId store, const worker::RankKey& key, int32_t world_size,
                const std::string& config, std::function<void(const ProcessEnd&)> on_reaped);
  void signal(int host, const worker::RankKey& key, int signo);
  // Ends the ranks of a host whose worker died. They are not reaped.
  void host_died(int host);
  // Kills a random running rank by SIGKILL, if there is one.
  void kill_one();

  // Returns the running ranks and the ranks that are not reaped yet.
  const std::map<std::pair<int, worker::RankKey>, Process>& processes() const { return processes_; }
  int64_t step_of(int host, const worker::RankKey& key) const;
  int64_t checkpoint_of(StoreId store, JobId job) const;
  int saved_on_request() const { return saved_on_request_; }
  const Process* process(int host, const worker::RankKey& key) const;
  worker::RankFigures figures(int host, const worker::RankKey& key) const;
  // Return the rank's evidence as a stack reader would collect it, and the stack of its main
  // thread, which changes while the thread computes.
  RankEvidence evidence(int host, const worker::RankKey& key) const;
  ThreadStack stack(int host, const worker::RankKey& key) const;
  const std::vector<HangTruth>& hangs() const { return hangs_; }
  // Returns whether a rank of the launch has hung or is lost.
  bool is_troubled(const LaunchKey& launch) const {
    return broken_.contains(launch) || hung_launches_.contains(launch);
  }
  // Returns the number of attempts of several ranks whose ranks saved and exited together.
  int left_together() const { return left_together_; }
  // Returns how often a launch had to wait because two of its hosts could not reach each other.
  int cut_launches() const { return cut_launches_; }
  // Return the number of processes that could not be killed for a long time, and the number of
  // attempts that came up while such a process of their job existed.
  int stuck() const { return stuck_; }
  int left_stuck() const { return static_cast<int>(left_stuck_.size()); }
  // Returns the ranks of the launch that exited with code 0.
  const std::set<Rank>& succeeded(const LaunchKey& launch) { return succeeded_[launch]; }

 private:
  using ProcessKey = std::pair<int, worker::RankKey>;

  void tick(ProcessKey key, int32_t pid);
  void end(const ProcessKey& key, Process& process, ProcessEnd end, Duration reap_delay);
  void end_preempted(const ProcessKey& key, Process& process);
  Process* find(const ProcessKey& key, int32_t pid);
  bool all_up(const LaunchKey& launch, int32_t world_size) const;
  // Returns two hosts of the launch that cannot reach each other.
  std::optional<std::pair<int, int>> find_cut(const LaunchKey& launch);
  // Completes the step of a launch whose connection stalls, if the link is back when TCP repeats
  // the segment.
  void repeat_segment(const LaunchKey& launch);
  std::vector<StalledLink> stalled_links(int host, const worker::RankKey& key,
                                         const Process& process) const;
  // Returns whether a rank of the launch votes to stop. A training rank that has received SIGTERM
  // adds its vote to the sums of its step; after this step all ranks exit, including ranks without
  // SIGTERM.
  bool votes(const LaunchKey& launch) const;
  void compute(const ProcessKey& key, Process& process, Duration more);
  void complete_step(const LaunchKey& launch);
  // Completes the step of one process. Returns false if the process has ended.
  bool finish_step(const ProcessKey& key, Process& process);
  Duration pause_after(const ProcessKey& key, Process& process);
  void hang(const ProcessKey& key, Process& process);
  void break_launch(const LaunchKey& launch);
  void enter(Process& process, Phase phase);
  void leave(const ProcessKey& key, Process& process);

  Scheduler& scheduler_;
  Random& random_;
  const FakeNetwork& network_;
  bool crashing_ = true;
  int saved_on_request_ = 0;
  int left_together_ = 0;
  int stuck_ = 0;
  std::set<LaunchKey> left_stuck_;
  int32_t next_pid_ = 1000;
  std::map<JobKey, JobNature> natures_;
  std::map<JobKey, int64_t> checkpoints_;
  std::map<ProcessKey, Process> processes_;
  std::map<LaunchKey, std::set<Rank>> came_up_;
  std::map<LaunchKey, int64_t> restored_;  // the step from which a launch resumes
  std::vector<HangTruth> hangs_;
  std::set<JobKey> hung_;
  std::set<LaunchKey> hung_launches_;
  std::set<LaunchKey> broken_;  // launches that have lost a rank
  std::map<LaunchKey, std::set<Rank>> succeeded_;
  // A connection between two hosts of a launch that carries nothing until TCP repeats a segment
  // while the link is back.
  struct Stall {
    Instant since{};
    std::pair<int, int> hosts;
  };
  std::map<LaunchKey, Stall> stalls_;
  int cut_launches_ = 0;
};

}  // namespace muster::simulation
