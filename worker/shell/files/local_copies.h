// Folders in memory-backed storage for the local checkpoints of a job. A user's program finds its
// folder in MUSTER_LOCAL_CHECKPOINTS.
//
//  <root>/muster-<uid>-<store>-<job>    created by the rank, private to the user
//
// The folders outlive ranks and workers by design. The trainer removes a job's folder when the job
// has completed; the worker removes it when the coordinator reports the job's end.
#pragma once

#include <sys/types.h>

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "common/job/ids.h"

namespace muster::worker {

// The paths of these folders.
class LocalCopies {
 public:
  // Requires an absolute `root`, which need not exist. `has_users`: ranks run as several users.
  explicit LocalCopies(std::string root, bool has_users = false)
      : root_(std::move(root)), has_users_(has_users) {}

  std::string folder(StoreId store, JobId job, uid_t user) const;
  // Returns the existing folders of a job; each user may have made one.
  std::vector<std::string> folders_of(StoreId store, JobId job) const;
  // Returns the existing folders of all jobs of `store` except `jobs`.
  std::vector<std::string> folders_but(StoreId store, const std::set<JobId>& jobs) const;

 private:
  std::vector<std::string> folders_if(StoreId store,
                                      const std::function<bool(JobId)>& is_wanted) const;

  std::string root_;
  bool has_users_;
};

// Removes folders on its own thread, because freeing a node's memory may take longer than the
// heartbeat timeout.
class FolderRemover {
 public:
  FolderRemover();
  // Blocks until pending removals are done.
  ~FolderRemover();
  FolderRemover(const FolderRemover&) = delete;
  FolderRemover& operator=(const FolderRemover&) = delete;

  // Queues the removal of `folder`, which must belong to this user unless it is root. It is removed
  // with its owner's rights; links are not followed. If the removal fails, logs the failure and
  // leaves the folder. Returns at once.
  void remove(std::string folder);

 private:
  void run();

  std::mutex mutex_;  // guards the members below
  std::condition_variable changed_;
  std::deque<std::string> folders_;
  bool leaving_ = false;

  std::thread thread_;
};

}  // namespace muster::worker
