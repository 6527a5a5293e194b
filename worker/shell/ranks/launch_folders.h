// The folders of launches under the work directory, and their content:
//
//  <work-dir>/<job>/<attempt>/config.json       the job's resolved config, the same for every rank
//                             progress.<local>  the rank's progress page, created by the rank
//                             progress.<local>.stacks  the rank's own stack copies (self_stacks.h)
//                             rank-<rank>.log   its stdout and stderr
//                             nccl-trace-…, cuda-core-…  dumps of its programs (program_dumps.h)
//
// The folder is also the working directory of the launch's ranks: all other files in it belong to
// the ranks.
#pragma once

#include <string>
#include <vector>

#include <absl/status/status.h>

#include "worker/core/rank.h"

namespace muster::worker {

// Paths and removal of launch folders.
class LaunchFolders {
 public:
  // Requires an absolute `work_dir`.
  explicit LaunchFolders(std::string work_dir) : work_dir_(std::move(work_dir)) {}

  std::string folder(const LaunchKey& launch) const;
  std::string config_path(const LaunchKey& launch) const;
  std::string log_path(const RankKey& key) const;
  std::string page_path(const LaunchKey& launch, int32_t local_rank) const;

  // Returns the launches that have a folder with a config, in the order of their last starts. Skips
  // folders that cannot be read.
  std::vector<LaunchKey> find() const;

  // Removes the files of the table above, and then the folders if they are empty. Returns
  // FailedPrecondition, with the name of the first other file, if the folder holds other files;
  // these remain. Returns OK if the folder does not exist.
  absl::Status remove(const LaunchKey& launch) const;

 private:
  std::string work_dir_;
};

}  // namespace muster::worker
