// Starts the process of the core's SpawnRank, which executes the trainer or the job's own
// program. Creates the launch's folder and config.json, and the rank's environment.
#pragma once

#include <sys/resource.h>
#include <sys/types.h>

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <absl/status/statusor.h>

#include "common/job/ids.h"
#include "worker/core/action.h"
#include "worker/core/rank.h"
#include "worker/gpus/gpu_report.h"
#include "worker/shell/files/local_copies.h"
#include "worker/shell/programs/program_environment.h"
#include "worker/shell/ranks/launch_folders.h"
#include "worker/shell/ranks/rank_user.h"
#include "worker/shell/ranks/spawn.h"

namespace muster::worker {

// The worker's settings for its ranks.
struct LauncherOptions {
  std::string work_dir;  // absolute
  std::string trainer;   // absolute path of muster-trainer
  std::string bind_address;
  Incarnation incarnation;
  mode_t rank_umask = 022;
  rlim_t rank_open_files = 0;    // soft limit of open files; 0: the worker's
  int32_t threads_per_rank = 1;  // the slot's share of the node's cores
  std::string proc_root = "/proc";
  std::string local_dir = "/dev/shm";
  std::vector<GpuState> gpus{};  // the worker's GPUs, in the order of Launch::gpus
  // credentials of the worker's environment that users' programs get (passed_environment.h)
  std::vector<std::string> pass_env{};
  bool pin_ranks = true;  // true: ranks run on the CPUs near their GPUs only
  // Whether ranks run as the user of the job's owner instead of the worker's; requires root.
  bool run_as_owner = false;
  bool run_root_jobs = false;  // whether root may be that user
};

// Starts ranks, and reads the files that they write.
class Launcher {
 public:
  // `base_environment`: variables that ranks inherit, as "NAME=value".
  Launcher(LauncherOptions options, std::vector<std::string> base_environment)
      : options_(std::move(options)),
        folders_(options_.work_dir),
        local_copies_(options_.local_dir, options_.run_as_owner),
        base_environment_(std::move(base_environment)) {}

  const LaunchFolders& folders() const { return folders_; }
  // Returns whether ranks may run as other users than the worker's.
  bool has_users() const { return options_.run_as_owner; }
  const LocalCopies& local_copies() const { return local_copies_; }

  // Creates the rank's folder and config, finds its program, and describes the process to start.
  // May block in a file system. Thread-safe. Returns NotFound or PermissionDenied if the program is
  // missing or not accessible. Errors of the node are marked by node_fault().
  absl::StatusOr<SpawnRequest> prepare(const SpawnRank& request) const;
  // Returns the error of a rank's start. The trainer and its working directory are the node's;
  // those of a program are the job's.
  static absl::Status start_problem(const SpawnRank& request, absl::Status problem);
  // Prepares and starts the rank and returns its pid, as spawn() does. `input_fd`: the rank's
  // standard input; -1: none.
  absl::StatusOr<pid_t> launch(const SpawnRank& request, int input_fd = -1) const;

  // Returns the worker's GPUs.
  std::vector<Gpu> gpus() const;

  // Returns the rank's complete environment. Of a variable that several sources set, the last
  // source wins: defaults (OMP_NUM_THREADS, a passive OMP_WAIT_POLICY, dump locations of
  // program_dumps.h), `base_environment`, the job's variables, Muster's own variables (for a
  // program also those of program_environment.h). Returns InvalidArgument with the name of an
  // invalid variable.
  absl::StatusOr<std::vector<std::string>> environment(const SpawnRank& request) const;

  // Returns the figures of the rank's page, without its process state. Returns an error if the page
  // is absent, damaged or of another launch.
  absl::StatusOr<RankFigures> read_page(const RankKey& key, int32_t local_rank) const;
  const std::string& proc_root() const { return options_.proc_root; }
  // Returns the state letter of that process of the rank `pid` which does the work; '?': unknown.
  char process_state(pid_t pid) const;
  // Returns whether the main thread of that process waits for no event.
  bool is_main_thread_awake(pid_t pid) const;

  // Returns the last states of the last lines of the rank's log that show something, oldest first,
  // made printable: without colours, and of a long line its end. Thread-safe.
  std::vector<std::string> last_lines(const RankKey& key, size_t count_max) const;
  // Returns the last non-empty line of the rank's log, made printable, or "".
  std::string last_shown_line(const RankKey& key) const;

 private:
  std::string visible_devices(const SpawnRank& request) const;
  std::vector<int32_t> cpus_of(const SpawnRank& request) const;
  // `user`: null: the worker's.
  absl::StatusOr<Variables> variables(const SpawnRank& request, const RankUser* user) const;
  // Makes the folder of a launch. `user`: its owner; null: this process's user.
  absl::Status make_folder(const LaunchKey& key, const RankUser* user) const;
  // Writes the files of the rank's launch that the rank reads.
  absl::Status write_files(const SpawnRank& request) const;
  // Returns the command line of the rank's process. `named`: the rank's environment.
  absl::StatusOr<std::vector<std::string>> arguments(const SpawnRank& request,
                                                     const Variables& named) const;

  LauncherOptions options_;
  LaunchFolders folders_;
  LocalCopies local_copies_;
  std::vector<std::string> base_environment_;
  // held while the folder of a launch is made; shared by copies
  std::shared_ptr<std::mutex> folders_mutex_ = std::make_shared<std::mutex>();
};

}  // namespace muster::worker
