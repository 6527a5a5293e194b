// Stores the output of ranks, which workers send: one append-only file for each rank and attempt,
// ROOT/<job>/<attempt>/rank-<r>.log, with the same offsets as the rank's own log on the worker.
// Beside it is rank-<r>.times (log_times.h).
//
// A chunk may arrive more than once; bytes that are already stored are skipped. A chunk that begins
// past the end of the file (the coordinator's machine lost written pages) is rejected: the answer
// is the end of the file, from which the worker sends again. Data that cannot be written is dropped
// permanently, and its place in the file is filled with a notice. For lack of space or descriptors,
// which is temporary, the worker sends the data again. A log ends at kLogBytesPerRankMax; later
// data is accepted and dropped. When an attempt begins, the logs of old ones beyond LogLimits are
// removed. Only the incarnation of the worker on which a rank was placed may
// write its log.
//
// Thread-safe. set_scope() and forget() do not wait for file operations: each log has its own lock,
// and the store's own thread notifies followers of new scopes and removes files.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <absl/status/statusor.h>

#include "common/job/ids.h"
#include "coordinator/core/records/job.h"
#include "coordinator/shell/logs/log_times.h"
#include "coordinator/shell/logs/old_logs.h"

namespace muster::coordinator {

// The logs of one job that can be read and written.
struct LogScope {
  Attempt newest_attempt{0};
  int32_t ranks = 0;
  bool ended = false;                // no more output can arrive
  JobOwner owner{};                  // the job's
  std::vector<LogLeader> leaders{};  // Job::log_leaders
};

// The identity of a sender: one incarnation of a worker.
struct LogWriter {
  WorkerName worker;
  Incarnation incarnation;

  friend bool operator==(const LogWriter&, const LogWriter&) = default;
};

// Receives a call when there may be more to read. Called without a lock, on the thread that stored
// the output or on the store's own thread.
class LogFollower {
 public:
  virtual ~LogFollower() = default;
  virtual void on_output(Attempt attempt, Rank rank) = 0;
  virtual void on_scope(const LogScope& scope) = 0;
};

class LogStore {
 public:
  // `coordinator`: as CoreOptions::coordinator.
  LogStore(std::string root, uint64_t bytes_per_rank_max, const LogLimits& limits = {},
           std::string coordinator = "");
  // Removes the files of jobs passed to forget() before it returns.
  ~LogStore();

  // Records that the job has a new attempt, or has ended. Call it before any output of the attempt
  // can arrive. `placement`: the placement of the newest attempt, by rank; empty if there is none.
  void set_scope(JobId job, const LogScope& scope, const std::vector<RankPlacement>& placement);
  // Removes the files of jobs that are not in `known`: an earlier coordinator had deleted these
  // jobs, and was killed before it removed their files. Call it before the first set_scope().
  void remove_all_but(const std::set<JobId>& known) const;
  // Removes the job's logs. append() refuses them immediately; the files are removed soon
  // afterwards.
  void forget(JobId job);

  // Returns the offset up to which the rank's log is settled: stored, or dropped permanently. The
  // offset is below the end of `data` if the worker must send this data again, and below `offset`
  // if preceding data is missing. Returns NotFound for a launch that this coordinator does not
  // have, PermissionDenied if the rank was not placed on `writer`, and otherwise the file system's
  // error, after which the data is dropped permanently.
  absl::StatusOr<uint64_t> append(const LogWriter& writer, JobId job, Attempt attempt, Rank rank,
                                  uint64_t offset, std::string_view data);

  // Returns up to `bytes_max` bytes from `offset`; empty if there are no such bytes yet. Returns
  // NotFound if the logs of the attempt were removed, or are on the disk of another coordinator.
  absl::StatusOr<std::string> read(JobId job, Attempt attempt, Rank rank, uint64_t offset,
                                   size_t bytes_max);

  // Returns the number of stored bytes; 0 if there are none.
  uint64_t size(JobId job, Attempt attempt, Rank rank) const;

  // Returns the arrival times of the log's bytes from `offset` on; see log_times.h.
  std::vector<LogTime> times(JobId job, Attempt attempt, Rank rank, uint64_t offset,
                             size_t count_max) const;

  // Returns the logs of the job; nullopt if the job is not known.
  std::optional<LogScope> scope(JobId job);
  // Registers `follower`. Returns the same as scope().
  std::optional<LogScope> follow(JobId job, std::weak_ptr<LogFollower> follower);

 private:
  // Consecutive ranks of one writer, up to `last`.
  struct OwnedRanks {
    LogWriter writer;
    Rank last;
  };
  // One rank's log. Its mutex is held while the file is written, so that other logs do not wait.
  struct RankLog {
    std::mutex mutex;
    uint64_t end = 0;        // the settled offset, once it is known
    bool forgotten = false;  // the file is being removed
    bool waits = false;      // waits for space or descriptors, and this is logged
    LogTimesEnd times;
  };
  struct JobLogs {
    LogScope scope;
    // by rank, for the newest kAttemptsOwnedMax attempts
    std::map<Attempt, std::vector<OwnedRanks>> owners;
    std::map<std::pair<Attempt, Rank>, std::shared_ptr<RankLog>> ranks;
    std::vector<std::weak_ptr<LogFollower>> followers;
  };

  std::string folder(JobId job, Attempt attempt) const;
  std::string path(JobId job, Attempt attempt, Rank rank) const;
  std::string times_path(JobId job, Attempt attempt, Rank rank) const;
  absl::StatusOr<std::shared_ptr<RankLog>> find_log(const LogWriter& writer, JobId job,
                                                    Attempt attempt, Rank rank);
  absl::StatusOr<uint64_t> append_locked(RankLog& log, JobId job, Attempt attempt, Rank rank,
                                         uint64_t offset, std::string_view data);
  void work();
  absl::Status check_leader(JobId job, Attempt attempt);
  void remove(JobId job, JobLogs& logs) const;
  static absl::Status check_writer(const JobLogs& logs, const LogWriter& writer, JobId job,
                                   Attempt attempt, Rank rank);
  static std::vector<OwnedRanks> owners_of(const std::vector<RankPlacement>& placement);
  static std::vector<std::shared_ptr<LogFollower>> followers_of(JobLogs& logs);

  const std::string root_;
  const uint64_t bytes_per_rank_max_;
  const LogLimits limits_;
  const std::string coordinator_;
  std::mutex mutex_;
  std::map<JobId, JobLogs> jobs_;
  // The work for the store's thread: bounded by the number of jobs and removed jobs.
  std::condition_variable work_came_;
  std::set<JobId> changed_;           // jobs with a new scope, whose followers must be notified
  std::map<JobId, JobLogs> removed_;  // removed jobs whose files still exist
  std::map<JobId, Attempt> old_;      // the newest attempt whose logs may be removed
  bool stopping_ = false;

  std::thread thread_;
};

}  // namespace muster::coordinator
