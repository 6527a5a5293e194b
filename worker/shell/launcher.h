// From the core's SpawnRank to a running process: folders, config.json, environment.
//
//   <work-dir>/<job>/<attempt>/config.json       the job's resolved config, the same for every rank
//                              progress.<local>  the rank's progress page, made by the rank
//                              rank-<rank>.log   its stdout and stderr
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include <absl/status/statusor.h>

#include "common/ids.h"
#include "worker/core/action.h"
#include "worker/core/rank.h"

namespace muster::worker {

struct LauncherOptions {
  std::string work_dir;  // absolute
  std::string trainer;   // absolute path of the program
  std::string bind_address;
  Incarnation incarnation;
};

class Launcher {
 public:
  // `base_environment`: what ranks inherit, as "NAME=value".
  Launcher(LauncherOptions options, std::vector<std::string> base_environment)
      : options_(std::move(options)), base_environment_(std::move(base_environment)) {}

  std::string directory(const RankKey& key) const;
  std::string log_path(const RankKey& key) const;
  std::string page_path(const RankKey& key, int32_t local_rank) const;

  // Starts the rank. Call from the event loop's thread, whose end would end the rank.
  absl::StatusOr<pid_t> launch(const SpawnRank& request) const;

  // The rank's whole environment: the base, a passive OMP_WAIT_POLICY unless the base or the
  // job has one, then the job's, then ours. InvalidArgument names a variable that
  // cannot be one.
  absl::StatusOr<std::vector<std::string>> environment(const SpawnRank& request) const;

  // The figures of the rank's page, or why there are none: absent, damaged, or another launch's.
  absl::StatusOr<RankFigures> read_page(const RankKey& key, int32_t local_rank,
                                        const RankFigures& previous) const;

  // The last line that is not empty of the rank's log, made printable; empty when there is none.
  std::string last_line(const RankKey& key) const;

 private:
  LauncherOptions options_;
  std::vector<std::string> base_environment_;
};

}  // namespace muster::worker
