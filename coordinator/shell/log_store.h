// The ranks' output as their workers ship it: one append-only file per rank and attempt,
// ROOT/<job>/<attempt>/rank-<r>.log, whose byte positions are the offsets of the rank's own log; beside it rank-<r>.times (log_times.h).
//
// Chunks come at least once: what is already stored is skipped. A chunk that begins past the end (the
// coordinator's machine lost written pages) is not taken: the answer is the end, from where its worker sends again.
// What cannot be written is dropped for good and leaves a filled gap that says so, unless it is for want of room or
// descriptors: that passes, and the worker sends again. A log ends at kLogBytesPerRankMax; what follows is taken and dropped. Only the life of a worker that a rank was placed on writes
// its log.
//
// Thread-safe. set_scope() and forget() wait for no file: each log has its own lock for that, and a thread of the store's
// tells followers of scopes and removes what is forgotten.
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

// What may be read or written of one job.
struct LogScope {
  Attempt newest_attempt{0};
  int32_t ranks = 0;
  bool ended = false;  // no more output will come
};

// One life of a worker.
struct LogWriter {
  WorkerName worker;
  Incarnation incarnation;

  friend bool operator==(const LogWriter&, const LogWriter&) = default;
};

// Told when there may be more to read. Called without a lock, on whichever thread stored it, or on the store's own.
class LogFollower {
 public:
  virtual ~LogFollower() = default;
  virtual void on_output(Attempt attempt, Rank rank) = 0;
  virtual void on_scope(const LogScope& scope) = 0;
};

class LogStore {
 public:
  explicit LogStore(std::string root, uint64_t bytes_per_rank_max);
  // Removes first what was forgotten.
  ~LogStore();

  // The job has a new attempt, or ended. Called before anything of that attempt can arrive.
  // `placement` is the newest attempt's, by rank, or empty while there is none.
  void set_scope(JobId job, const LogScope& scope, const std::vector<RankPlacement>& placement);
  // Removes the files of jobs that are not in `known`: what a coordinator had forgotten when it was killed. Before the first
  // set_scope().
  void remove_all_but(const std::set<JobId>& known) const;
  // Removes the job's logs: their files soon, for append() at once.
  void forget(JobId job);

  // Returns the offset up to which the rank's log is settled (stored, or dropped for good): below the data's end when it is
  // to be sent again, and below `offset` when what precedes it is missing. NotFound for a launch that this coordinator does not know, PermissionDenied when the
  // rank was not placed on `writer`; else what the file system says, and then the data is dropped for good.
  absl::StatusOr<uint64_t> append(const LogWriter& writer, JobId job, Attempt attempt, Rank rank,
                                  uint64_t offset, std::string_view data);

  // Up to `bytes_max` bytes from `offset`; empty when there is nothing (yet).
  absl::StatusOr<std::string> read(JobId job, Attempt attempt, Rank rank, uint64_t offset,
                                   size_t bytes_max);

  // When the log's bytes from `offset` on came: log_times.h.
  std::vector<LogTime> times(JobId job, Attempt attempt, Rank rank, uint64_t offset,
                             size_t count_max) const;

  std::optional<LogScope> scope(JobId job);
  // From now on `follower` is told. Returns what scope() would.
  std::optional<LogScope> follow(JobId job, std::weak_ptr<LogFollower> follower);

 private:
  // Neighbouring ranks of one writer.
  struct OwnedRanks {
    LogWriter writer;
    Rank last;
  };
  // One rank's log. Held while its file is written, so that nobody else waits for that.
  struct RankLog {
    std::mutex mutex;
    uint64_t end = 0;        // the settled offset, once known
    bool forgotten = false;  // the file is being removed
    bool waits = false;      // for room or descriptors; told already
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
  // For the store's thread; no longer than the list of jobs and of those that it forgot.
  std::condition_variable work_came_;
  std::set<JobId> changed_;           // followers are to be told of the scope
  std::map<JobId, JobLogs> removed_;  // forgotten, files and all
  bool stopping_ = false;

  std::thread thread_;
};

}  // namespace muster::coordinator
