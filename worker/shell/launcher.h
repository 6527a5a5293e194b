// From the core's SpawnRank to a running process, the trainer or a program of the job's own: folder, config.json, environment.
#pragma once

#include <sys/resource.h>
#include <sys/types.h>

#include <string>
#include <vector>

#include <absl/status/statusor.h>

#include "common/ids.h"
#include "worker/core/action.h"
#include "worker/core/rank.h"
#include "worker/gpus/gpu_report.h"
#include "worker/shell/launch_folders.h"
#include "worker/shell/local_copies.h"
#include "worker/shell/program_environment.h"

namespace muster::worker {

struct LauncherOptions {
  std::string work_dir;  // absolute
  std::string trainer;   // absolute path of the program
  std::string bind_address;
  Incarnation incarnation;
  mode_t rank_umask = 022;
  rlim_t rank_open_files = 0;    // soft limit; 0: this process's
  int32_t threads_per_rank = 1;  // a slot's share of the node's cores
  std::string proc_root = "/proc";
  std::string local_dir = "/dev/shm";
  std::vector<GpuState> gpus{};  // as Launch::gpus numbers them
  bool pin_ranks = true;         // to the CPUs near their GPUs
};

class Launcher {
 public:
  // `base_environment`: what ranks inherit, as "NAME=value".
  Launcher(LauncherOptions options, std::vector<std::string> base_environment)
      : options_(std::move(options)),
        folders_(options_.work_dir),
        local_copies_(options_.local_dir),
        base_environment_(std::move(base_environment)) {}

  const LaunchFolders& folders() const { return folders_; }
  const LocalCopies& local_copies() const { return local_copies_; }

  // Starts the rank. Call from the event loop's thread, whose end would end the rank. NotFound and PermissionDenied: the
  // program or its working directory.
  absl::StatusOr<pid_t> launch(const SpawnRank& request) const;

  // The worker's.
  std::vector<Gpu> gpus() const;

  // The rank's whole environment: OMP_NUM_THREADS, a passive OMP_WAIT_POLICY and where dumps go (program_dumps.h), then the base, then the
  // job's, then ours (and program_environment.h's, of a program). InvalidArgument names a variable that cannot be one.
  absl::StatusOr<std::vector<std::string>> environment(const SpawnRank& request) const;

  // The figures of the rank's page and (unless `pid` is 0) the state of its process, or why there are none: absent, damaged, or another launch's.
  absl::StatusOr<RankFigures> read_page(const RankKey& key, int32_t local_rank, pid_t pid) const;

  // The last lines that are not empty of the rank's log, oldest first, made printable. Any thread.
  std::vector<std::string> last_lines(const RankKey& key, size_t count_max) const;
  // The last of them; empty when there is none.
  std::string last_line(const RankKey& key) const;

 private:
  std::string visible_devices(const SpawnRank& request) const;
  std::vector<int32_t> cpus_of(const SpawnRank& request) const;
  absl::StatusOr<Variables> variables(const SpawnRank& request) const;
  // The program's words; `named` is the rank's environment.
  absl::StatusOr<std::vector<std::string>> arguments(const SpawnRank& request,
                                                     const Variables& named) const;

  LauncherOptions options_;
  LaunchFolders folders_;
  LocalCopies local_copies_;
  std::vector<std::string> base_environment_;
};

}  // namespace muster::worker
