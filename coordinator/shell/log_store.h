// Stores the ranks' output that workers ship: one append-only file per rank and attempt,
// ROOT/<job>/<attempt>/rank-<r>.log, at the offsets of the rank's own log; beside it rank-<r>.times
// (log_times.h).
//
// Chunks arrive at least once: stored bytes are skipped. A chunk that begins past the end (the
// coordinator's machine lost written pages) is rejected: the answer is the end, from where the
// worker sends again. Data that cannot be written is dropped for good and leaves a filled gap with
// a notice, except for lack of space or descriptors: that passes, and the worker sends again. A log
// ends at kLogBytesPerRankMax; later data is accepted and dropped. Only the incarnation of the
// worker on which a rank was placed may write its log.
//
// Thread-safe. set_scope() and forget() do not wait for files: each log has its own lock, and the
// store's thread notifies followers of scopes and removes forgotten files.
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

#include "common/ids.h"
#include "coordinator/core/records/job.h"
#include "coordinator/shell/log_times.h"

namespace muster::coordinator {

// The readable and writable logs of one job.
struct LogScope {
  Attempt newest_attempt{0};
  int32_t ranks = 0;
  bool ended = false;  // no more output will come
};

// One incarnation of a worker.
struct LogWriter {
  WorkerName worker;
  Incarnation incarnation;

  friend bool operator==(const LogWriter&, const LogWriter&) = default;
};

// Notified when there may be more to read. Called without a lock, on the thread that stored the
// output or on the store's own.
class LogFollower {
 public:
  virtual ~LogFollower() = default;
  virtual void on_output(Attempt attempt, Rank rank) = 0;
  virtual void on_scope(const LogScope& scope) = 0;
};

class LogStore {
 public:
  explicit LogStore(std::string root, uint64_t bytes_per_rank_max);
  // Removes forgotten files first.
  ~LogStore();

  // Records that the job has a new attempt, or has ended. Call before any output of that attempt
  // can arrive. `placement`: the newest attempt's, by rank; empty if there is none.
  void set_scope(JobId job, const LogScope& scope, const std::vector<RankPlacement>& placement);
  // Removes the files of jobs that are not in `known`: a coordinator had forgotten them when it was
  // killed. Call before the first set_scope().
  void remove_all_but(const std::set<JobId>& known) const;
  // Removes the job's logs: its files soon, for append() at once.
  void forget(JobId job);

  // Returns the offset up to which the rank's log is settled (stored, or dropped for good): below
  // the data's end if the worker must send it again, and below `offset` if preceding data is
  // missing. Returns NotFound for a launch unknown to this coordinator, PermissionDenied if the
  // rank was not placed on `writer`; else the file system's error, after which the data is dropped
  // for good.
  absl::StatusOr<uint64_t> append(const LogWriter& writer, JobId job, Attempt attempt, Rank rank,
                                  uint64_t offset, std::string_view data);

  // Returns up to `bytes_max` bytes from `offset`; empty if there are none (yet).
  absl::StatusOr<std::string> read(JobId job, Attempt attempt, Rank rank, uint64_t offset,
                                   size_t bytes_max);

  // Returns the arrival times of the log's bytes from `offset` on; see log_times.h.
  std::vector<LogTime> times(JobId job, Attempt attempt, Rank rank, uint64_t offset,
                             size_t count_max) const;

  std::optional<LogScope> scope(JobId job);
  // Registers `follower` and returns what scope() would.
  std::optional<LogScope> follow(JobId job, std::weak_ptr<LogFollower> follower);

 private:
  // A run of ranks of one writer.
  struct OwnedRanks {
    LogWriter writer;
    Rank last;
  };
  // One rank's log. Its mutex is held while the file is written, so that others do not wait for
  // that.
  struct RankLog {
    std::mutex mutex;
    uint64_t end = 0;        // the settled offset, once known
    bool forgotten = false;  // the file is being removed
    bool waits = false;      // for space or descriptors; already logged
    LogTimesEnd times;
  };
  struct JobLogs {
    LogScope scope;
    std::map<Attempt, std::vector<OwnedRanks>> owners;  // by rank; of the newest kAttemptsOwnedMax
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
  void remove(JobId job, JobLogs& logs) const;
  static absl::Status check_writer(const JobLogs& logs, const LogWriter& writer, JobId job,
                                   Attempt attempt, Rank rank);
  static std::vector<OwnedRanks> owners_of(const std::vector<RankPlacement>& placement);
  static std::vector<std::shared_ptr<LogFollower>> followers_of(JobLogs& logs);

  const std::string root_;
  const uint64_t bytes_per_rank_max_;
  std::mutex mutex_;
  std::map<JobId, JobLogs> jobs_;
  // Work for the store's thread; bounded by the number of jobs and forgotten jobs.
  std::condition_variable work_came_;
  std::set<JobId> changed_;           // scope changes for followers
  std::map<JobId, JobLogs> removed_;  // forgotten; files still exist
  bool stopping_ = false;

  std::thread thread_;
};

}  // namespace muster::coordinator
