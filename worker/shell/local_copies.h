// Folders in memory-backed storage for a job's local checkpoints, or for data that programs put
// there (MUSTER_LOCAL_CHECKPOINTS):
//
//  <root>/muster-<uid>-<store>-<job>    created by the rank, private to the user
//
// They outlive ranks and workers by design, and end with their job: the trainer removes its folder
// when the job has completed, the worker when the coordinator reports the job's end.
#pragma once

#include <condition_variable>
#include <deque>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "common/ids.h"

namespace muster::worker {

class LocalCopies {
 public:
  // Requires an absolute `root`, which need not exist.
  explicit LocalCopies(std::string root) : root_(std::move(root)) {}

  std::string folder(StoreId store, JobId job) const;
  // Returns the existing folders of all jobs of `store` except those.
  std::vector<std::string> folders_but(StoreId store, const std::set<JobId>& jobs) const;

 private:
  std::string root_;
};

// Removes folders on its own thread: freeing a node's memory may take longer than the heartbeat
// timeout.
class FolderRemover {
 public:
  FolderRemover();
  // Blocks until pending removals are done.
  ~FolderRemover();
  FolderRemover(const FolderRemover&) = delete;
  FolderRemover& operator=(const FolderRemover&) = delete;

  // Removes this user's folder if it exists, without following links. Logs a failure and leaves the
  // folder.
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
