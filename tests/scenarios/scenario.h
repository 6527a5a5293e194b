// Runs a scenario: a text file with events for the coordinator's core and the decisions that must
// follow. tests/scenarios/README.md describes the language.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "coordinator/core/core.h"

namespace muster::coordinator {

// The fleet, the coordinator and the storage of one scenario. Each line is checked when it runs;
// the first deviation ends the run with a message that names the line.
class Scenario {
 public:
  Scenario();

  // Returns "" if the scenario ran as written; otherwise the deviation, with file and line.
  std::string run(const std::string& path);

 private:
  using Words = std::vector<std::string>;

  struct FakeWorker {
    Incarnation incarnation{1};
    int32_t slots = 1;
    bool connected = false;
    bool silent = false;
  };

  // The progress that a job's trainers have reported so far.
  struct FakeTraining {
    int64_t step = 0;
    Duration step_time{};
    std::map<int32_t, StepTimes> times;
    std::map<int32_t, double> waited;
    double waited_data = 0;
    double stalled = 0;
    bool saves = false;
    Instant phase_start{};
    Phase phase = Phase::kStep;
    int32_t stopped = -1;  // the rank whose process is stopped
  };

  std::string run_line(const Words& words);
  std::string run_event(const Words& words);
  std::string expect(const Words& words);
  std::string expect_state(const Words& words);
  std::string expect_reply(const Words& words);

  // Implemented in scenario_ladder.cc.
  void train(const Words& words);
  void enter_phase(const Words& words);
  void heartbeat_training(const Job& job, FakeTraining& training);
  std::string report_stacks(const Words& words);
  void note_payload(const WorkerName& worker, const WorkerPayload& payload);
  std::string expect_incident(const Words& words) const;
  std::string expect_recovery(const Words& words) const;
  std::string expect_time(const Job& job, const Words& words) const;
  std::string expect_stacks(const Words& words) const;
  std::string expect_copies(const Words& words) const;

  // Implemented in scenario_nodes.cc.
  bool run_node_event(const Words& words);
  void note_check(const WorkerName& worker, uint64_t check);
  void answer_checks();
  std::string expect_node(const Words& words) const;

  // Implemented in scenario_updates.cc.
  std::string update(const Words& words);
  std::string expect_revision(const Job& job, const Words& words) const;
  std::string expect_spec(const Job& job, const Words& words) const;

  void add_worker(const Words& words);
  std::string submit(const Words& words);
  void set_policy(const Words& words);
  void report_exit(const Words& words);
  void progress(const Words& words);
  void wait(Duration time, bool is_behind = false);
  void restart_coordinator();
  void stall(Duration time);

  void step(const Event& event);
  bool take(const std::string& wanted);
  std::string unexpected() const;

  CoreOptions options_;
  std::optional<Core> core_;
  Instant now_{};
  int64_t unix_ns_ = 1'700'000'000'000'000'000;
  uint64_t next_token_ = 1;
  uint64_t next_report_ = 1;
  std::map<WorkerName, FakeWorker> workers_;
  std::map<JobId, Job> stored_jobs_;
  std::map<std::string, JobId> stored_requests_;
  JobId stored_last_job_id_{0};
  std::vector<std::string> decisions_;  // orders to workers that no `expect` line has consumed yet
  std::map<JobId, FakeTraining> trainings_;
  std::map<WorkerName, SendDumpStacks> dumps_;  // newest request to each worker
  std::map<IncidentId, Incident> stored_incidents_;
  std::map<WorkerName, NodeRecord> stored_nodes_;
  std::map<Party, UsageRecord> stored_usages_;
  QueuePolicy policy_;
  std::map<WorkerName, uint64_t> checks_;  // newest request to each worker
  // The probes of jobs in long phases since the last event, which need not be expected.
  std::set<std::string> probes_;
  bool requests_stacks_ = false;  // a client's request is being processed
  bool checks_by_hand_ = false;
  std::optional<ReplyStacks> last_stacks_;
  std::string last_ack_;
  // The workers that received the end of a job since the last event: "node1 7" for job 7.
  std::set<std::string> received_ends_;
  // The list of unfinished jobs that each worker received at its registration: "1,7".
  std::map<WorkerName, std::string> unfinished_;
  std::map<JobId, JobSpec> started_;  // the spec in the newest order to start ranks
  std::optional<Reply> last_reply_;
};

// scenario_queue.cc
void take_queue_words(std::vector<std::string>& words, JobSpec& spec);
NodeLabels labels_of(const std::vector<std::string>& words);

}  // namespace muster::coordinator
