// Folders in memory-backed storage where jobs keep local checkpoints, or what programs put there (MUSTER_LOCAL_CHECKPOINTS):
//
//   <root>/muster-<uid>-<store>-<job>    made by the rank, private to the user
//
// They outlive ranks and workers, which is what they are for, and end with their job: the trainer removes one when its job has
// completed, the worker when the coordinator says that the job has ended.
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
  // `root`: absolute; need not exist.
  explicit LocalCopies(std::string root) : root_(std::move(root)) {}

  std::string folder(StoreId store, JobId job) const;
  // What is there of all jobs of `store` but those.
  std::vector<std::string> folders_but(StoreId store, const std::set<JobId>& jobs) const;

 private:
  std::string root_;
};

// Removes folders on a thread of its own: to give back a node's memory may take longer than a coordinator waits for a heartbeat.
class FolderRemover {
 public:
  FolderRemover();
  // Waits for what is to be removed.
  ~FolderRemover();
  FolderRemover(const FolderRemover&) = delete;
  FolderRemover& operator=(const FolderRemover&) = delete;

  // This user's folder, if it is there; links are not followed. One that cannot be removed stays, with a line in the log.
  void remove(std::string folder);

 private:
  void run();

  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  std::deque<std::string> folders_;
  bool leaving_ = false;

  std::thread thread_;
};

}  // namespace muster::worker
