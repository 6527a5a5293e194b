// The folders of launches under the work directory, and what is in them:
//
//   <work-dir>/<job>/<attempt>/config.json       the job's resolved config, the same for every rank
//                              progress.<local>  the rank's progress page, made by the rank
//                              progress.<local>.stacks  what it tells of its stacks; only of programs that do that
//                              rank-<rank>.log   its stdout and stderr
//                              nccl-trace-…, cuda-core-…  dumps of its programs (program_dumps.h)
//
// It is the ranks' working directory, too: whatever else is there belongs to them.
#pragma once

#include <string>
#include <vector>

#include <absl/status/status.h>

#include "worker/core/rank.h"

namespace muster::worker {

class LaunchFolders {
 public:
  // `work_dir`: absolute.
  explicit LaunchFolders(std::string work_dir) : work_dir_(std::move(work_dir)) {}

  std::string folder(const LaunchKey& launch) const;
  std::string config_path(const LaunchKey& launch) const;
  std::string log_path(const RankKey& key) const;
  std::string page_path(const LaunchKey& launch, int32_t local_rank) const;

  // The launches that have a folder with a config, in the order of their last starts. What cannot be read is left out.
  std::vector<LaunchKey> find() const;

  // Removes the files of the table above, and the folders when nothing else is in them. FailedPrecondition names
  // something else that is there and stays; a folder that is gone already is fine.
  absl::Status remove(const LaunchKey& launch) const;

 private:
  std::string work_dir_;
};

}  // namespace muster::worker
