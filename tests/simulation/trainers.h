// Model trainers: processes that wait for their peers in each step, evaluate, checkpoint, hang,
// straggle, die by themselves or by signal, and detect lost peers. Trainers that receive SIGTERM
// save together. While they train, they save and exit after the step in which one of them votes to
// stop; before that, once all of them have received SIGTERM. A trainer whose peers do not follow
// exits without a checkpoint. The model has no coordinator.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "common/ids.h"
#include "common/rank_evidence.h"
#include "common/stack_frame.h"
#include "common/step_times.h"
#include "tests/simulation/scheduler.h"
#include "worker/core/rank.h"

namespace muster::simulation {

// Job 1 of one state store is not job 1 of another.
using JobKey = std::pair<StoreId, JobId>;
using LaunchKey = std::pair<JobKey, Attempt>;

enum class Hang {
  kNone,
  kStopped,  // as by SIGSTOP
  kSkips,    // enters another collective than its peers
  kLoops,    // computes forever
  kSleeps,   // waits for a lock
};

// The behaviour of a job's trainers. It is drawn at submission and set when the reply arrives;
// ranks that start before that have the default one.
struct JobNature {
  int64_t steps = 20;
  Duration step_time = std::chrono::milliseconds(100);
  int32_t bad_input_rank = -1;  // exits with kBadInput at its start
  int64_t nan_step = -1;        // rank 0 exits with kNotFinite at this step
  double crash_per_step = 0;
  Hang hang = Hang::kNone;
  int64_t hang_step = -1;  // of the first attempt that reaches it
  int32_t hang_rank = -1;
  int32_t slow_rank = -1;
  double slow_factor = 1;  // of the slow rank's steps
  double growth = 1;       // ratio of each step's time to the previous one
  // steps between evaluations, and between long checkpoints; 0: none
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
  Duration longest_step{};  // of its launch so far
  uint64_t steps = 0;       // completed by its launch before
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
  bool running = false;  // false while it is being reaped
  bool deaf = false;     // ignores SIGTERM
  bool asked = false;    // to checkpoint after its next step
  bool leaving = false;  // was asked to leave, and waits for its peers
  bool stuck = false;    // was killed, and stays in the kernel for long
  int64_t step = -1;
  bool waits = false;  // has entered the collective of its next step
  Hang hung = Hang::kNone;
  Phase phase = Phase::kLoad;
  Instant phase_start{};
  Instant last_progress{};
  Instant step_began{};
  Instant entered{};
  StepTimes times;
  double waited = 0;  // for peers
  double step_seconds = 0;
  std::function<void(const ProcessEnd&)> on_reaped;
};

class Trainers {
 public:
  Trainers(Scheduler& scheduler, Random& random) : scheduler_(scheduler), random_(random) {}

  void set_nature(const JobKey& job, const JobNature& nature) { natures_[job] = nature; }
  void stop_crashing() { crashing_ = false; }
  // Each job may hang once more.
  void hang_again() { hung_.clear(); }

  int32_t spawn(int host, StoreId store, const worker::RankKey& key, int32_t world_size,
                std::function<void(const ProcessEnd&)> on_reaped);
  void signal(int host, const worker::RankKey& key, int signo);
  // The host's worker died: its ranks die with it, and are not reaped.
  void host_died(int host);
  // Kills some running rank by SIGKILL, if there is one.
  void kill_one();

  // Includes running ranks and those not yet reaped.
  const std::map<std::pair<int, worker::RankKey>, Process>& processes() const { return processes_; }
  int64_t step_of(int host, const worker::RankKey& key) const;
  int64_t checkpoint_of(StoreId store, JobId job) const;
  int saved_on_request() const { return saved_on_request_; }
  const Process* process(int host, const worker::RankKey& key) const;
  worker::RankFigures figures(int host, const worker::RankKey& key) const;
  // Returns what a stack reader sees of the rank, and the position of its main thread, which
  // changes while it computes.
  RankEvidence evidence(int host, const worker::RankKey& key) const;
  ThreadStack stack(int host, const worker::RankKey& key) const;
  const std::vector<HangTruth>& hangs() const { return hangs_; }
  // Returns whether a rank of the launch has hung or is lost.
  bool is_troubled(const LaunchKey& launch) const {
    return broken_.contains(launch) || hung_launches_.contains(launch);
  }
  // Number of attempts of several ranks whose ranks have left together.
  int left_together() const { return left_together_; }
  // Number of processes that could not be killed for long, and of attempts that came up while such
  // a process of their job existed.
  int stuck() const { return stuck_; }
  int left_stuck() const { return static_cast<int>(left_stuck_.size()); }
  // Ranks of the launch that exited with code 0.
  const std::set<Rank>& succeeded(const LaunchKey& launch) { return succeeded_[launch]; }

 private:
  using ProcessKey = std::pair<int, worker::RankKey>;

  void tick(ProcessKey key, int32_t pid);
  void end(const ProcessKey& key, Process& process, ProcessEnd end, Duration reap_delay);
  void end_preempted(const ProcessKey& key, Process& process);
  Process* find(const ProcessKey& key, int32_t pid);
  bool all_up(const LaunchKey& launch, int32_t world_size) const;
  // A training rank that was asked to leave adds its vote to the sums of its step, after which all
  // ranks leave, also those that were not asked.
  bool votes(const LaunchKey& launch) const;
  void compute(const ProcessKey& key, Process& process, Duration more);
  void complete_step(const LaunchKey& launch);
  // Returns false if the process has ended.
  bool finish_step(const ProcessKey& key, Process& process);
  Duration pause_after(const ProcessKey& key, Process& process);
  void hang(const ProcessKey& key, Process& process);
  void break_launch(const LaunchKey& launch);
  void enter(Process& process, Phase phase);
  void leave(const ProcessKey& key, Process& process);

  Scheduler& scheduler_;
  Random& random_;
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
  std::set<LaunchKey> broken_;  // lost a rank
  std::map<LaunchKey, std::set<Rank>> succeeded_;
};

}  // namespace muster::simulation
