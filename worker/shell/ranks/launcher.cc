#include "worker/shell/ranks/launcher.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <filesystem>
#include <mutex>
#include <optional>
#include <string_view>
#include <system_error>

#include <absl/cleanup/cleanup.h>
#include <absl/strings/ascii.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>

#include "common/files/errno_status.h"
#include "common/files/file_write.h"
#include "common/files/ranks_file.h"
#include "common/progress/progress_page.h"
#include "common/stacks/self_stacks.h"
#include "common/text/absl_view.h"
#include "common/text/escape.h"
#include "common/text/terminal_text.h"
#include "common/text/variable_name.h"
#include "worker/shell/programs/passed_environment.h"
#include "worker/shell/programs/program_dumps.h"
#include "worker/shell/programs/program_ports.h"
#include "worker/shell/ranks/node_fault.h"
#include "worker/shell/ranks/spawn.h"
#include "worker/stacks/process_activity.h"
#include "worker/stacks/working_process.h"

namespace muster::worker {
namespace {

// PyTorch's names of the size of the flight recorder; the older one is deprecated.
constexpr char kTraceSize[] = "TORCH_FR_BUFFER_SIZE";
constexpr char kOldTraceSize[] = "TORCH_NCCL_TRACE_BUFFER_SIZE";

// Readable for the owner; others can only pass to the folders inside.
constexpr mode_t kPassableFolderMode = 0711;
constexpr mode_t kOwnFolderMode = 0700;
// An error message and its newline, for each requested line; longer ones are cut anyway.
constexpr off_t kLineBytes = 4 << 10;
// A progress bar is one line, of which each state is in the file: more is read if it leaves few
// lines.
constexpr off_t kTailBytesMax = 1 << 20;
constexpr size_t kLastLineBytesMax = 512;

// Returns the last states of the lines in the last `bytes` of a file of `size` bytes.
std::vector<std::string> lines_at_end(int fd, off_t size, off_t bytes) {
  std::string tail(static_cast<size_t>(std::clamp<off_t>(size, 0, bytes)), '\0');
  const ssize_t got = pread(fd, tail.data(), tail.size(), size - static_cast<off_t>(tail.size()));
  tail.resize(got > 0 ? static_cast<size_t>(got) : 0);
  LineStates states;
  std::vector<std::string> whole = states.add(tail, static_cast<size_t>(kTailBytesMax));
  for (std::string& line : states.finish()) whole.push_back(std::move(line));
  std::vector<std::string> lines;
  for (const std::string& line : whole) {
    const absl::string_view text = absl::StripTrailingAsciiWhitespace(line);
    if (!is_blank(sv(text))) lines.push_back(printable_end(sv(text), kLastLineBytesMax));
  }
  return lines;
}

// Returns the third field of /proc/PID/stat, after a name in parentheses that may hold anything;
// '?' if there is no such process.
char state_of_process(const std::string& proc_root, pid_t pid) {
  const int fd = open(absl::StrCat(proc_root, "/", pid, "/stat").c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return '?';
  absl::Cleanup close_fd = [fd] { close(fd); };
  std::array<char, 256> bytes;  // a number, a name of at most 64 bytes, and the state
  const ssize_t got = pread(fd, bytes.data(), bytes.size(), 0);
  const std::string_view text(bytes.data(), got > 0 ? static_cast<size_t>(got) : 0);
  const size_t name_end = text.rfind(") ");
  return name_end == std::string_view::npos || name_end + 2 >= text.size() ? '?'
                                                                           : text[name_end + 2];
}

// Formats variables as "NAME=value".
std::vector<std::string> entries_of(const Variables& variables) {
  std::vector<std::string> entries;
  for (const auto& [name, value] : variables) entries.push_back(absl::StrCat(name, "=", value));
  return entries;
}

}  // namespace

std::vector<Gpu> Launcher::gpus() const {
  std::vector<Gpu> gpus;
  for (const GpuState& state : options_.gpus) gpus.push_back(state.gpu);
  return gpus;
}

// All ranks of a node see all GPUs that the job has there, so that peers can access each other's
// memory. A program that selects by LOCAL_RANK, as our trainer and torchrun's programs do, selects
// its own. A rank with several GPUs sees only those.
std::string Launcher::visible_devices(const SpawnRank& request) const {
  const Launch& launch = *request.launch;
  const bool apart = launch.spec.gpus_per_rank > 1;
  std::vector<std::string> uuids;
  for (const int32_t gpu : apart ? launch.gpus_of(request.local_rank) : launch.gpus)
    uuids.push_back(options_.gpus.at(static_cast<size_t>(gpu)).gpu.uuid);
  return absl::StrJoin(uuids, ",");
}

std::vector<int32_t> Launcher::cpus_of(const SpawnRank& request) const {
  std::vector<int32_t> cpus;
  if (!options_.pin_ranks) return cpus;
  for (const int32_t gpu : request.launch->gpus_of(request.local_rank)) {
    const std::vector<int32_t>& near = options_.gpus.at(static_cast<size_t>(gpu)).cpus;
    if (near.empty()) return {};  // not restricted
    cpus.insert(cpus.end(), near.begin(), near.end());
  }
  return cpus;
}

absl::StatusOr<Variables> Launcher::variables(const SpawnRank& request,
                                              const RankUser* user) const {
  Variables variables;
  for (const std::string& entry : base_environment_) {
    const size_t equals = entry.find('=');
    if (equals == std::string::npos) continue;
    const std::string name = entry.substr(0, equals);
    // The trainer is no user's program, and reads object stores by the worker's credentials; but
    // users can read the environment of all their processes.
    const bool is_passed_on = user != nullptr ? is_passed_to_users(name, options_.pass_env)
                                              : request.launch->spec.command.empty() ||
                                                    is_passed(name, options_.pass_env);
    if (!is_passed_on) continue;
    variables[name] = entry.substr(equals + 1);
  }
  if (user != nullptr)
    for (const auto& [name, value] : login_variables(*user)) variables[name] = value;
  // Idle OpenMP threads spin by default. On a node shared with other ranks or programs they take
  // cores from computing threads, and a step takes many times as long. An operator, or a job whose
  // ranks have their own cores, can override this.
  variables.emplace("OMP_WAIT_POLICY", "passive");
  variables.emplace("OMP_NUM_THREADS", absl::StrCat(options_.threads_per_rank));
  const Launch& launch = *request.launch;
  Variables dumps = program_dump_variables(folders_.folder(request.key.launch()), request.key.rank);
  // PyTorch prefers the newer of the two names, and would ignore the user's value of the other one.
  if (variables.contains(kOldTraceSize) || launch.spec.environment.contains(kOldTraceSize))
    dumps.erase(kTraceSize);
  variables.merge(dumps);
  for (const auto& [name, value] : launch.spec.environment) {
    if (!is_variable_name(name) || value.find('\0') != std::string::npos) {
      return absl::InvalidArgumentError(absl::StrCat("environment variable '", printable(name, 64),
                                                     "': ", av(kVariableNameRule),
                                                     "; a value has no NUL"));
    }
    variables[name] = value;
  }
  // A job that selects GPUs itself intends to share them.
  if (!launch.gpus.empty() && !launch.spec.environment.contains("CUDA_VISIBLE_DEVICES"))
    variables["CUDA_VISIBLE_DEVICES"] = visible_devices(request);
  const RankKey& key = request.key;
  variables["RANK"] = absl::StrCat(key.rank.value());
  variables["WORLD_SIZE"] = absl::StrCat(launch.spec.world_size());
  variables["LOCAL_RANK"] = absl::StrCat(request.local_rank);
  variables["LOCAL_WORLD_SIZE"] = absl::StrCat(launch.spec.ranks_per_node);
  variables["MUSTER_JOB"] = absl::StrCat(key.job.value());
  variables["MUSTER_ATTEMPT"] = absl::StrCat(key.attempt.value());
  if (launch.spec.is_array_task()) {
    variables["MUSTER_ARRAY"] = launch.spec.array;
    variables["MUSTER_ARRAY_INDEX"] = absl::StrCat(launch.spec.array_index);
  }
  variables["MUSTER_INCARNATION"] = absl::StrCat(options_.incarnation.value());
  variables["MUSTER_PROGRESS_PAGE"] = folders_.page_path(key.launch(), request.local_rank);
  variables["MUSTER_LOCAL_CHECKPOINTS"] =
      local_copies_.folder(request.store, key.job, user == nullptr ? geteuid() : user->ids.uid);
  variables["MUSTER_CHECKPOINT_STEP"] = absl::StrCat(std::max<int64_t>(launch.checkpoint_step, 0));
  variables["MUSTER_RENDEZVOUS"] = launch.rendezvous_address;
  variables["MUSTER_BIND_ADDRESS"] = options_.bind_address;
  if (launch.rendezvous_time > Duration::zero())
    variables.emplace(
        "MUSTER_RENDEZVOUS_TIMEOUT_MS",
        absl::StrCat(std::chrono::ceil<std::chrono::milliseconds>(launch.rendezvous_time).count()));
  if (!launch.spec.command.empty()) {
    if (auto status = add_program_variables(request, variables); !status.ok()) return status;
  }
  return variables;
}

absl::StatusOr<std::vector<std::string>> Launcher::environment(const SpawnRank& request) const {
  const auto named = variables(request, nullptr);
  if (!named.ok()) return named.status();
  return entries_of(*named);
}

absl::StatusOr<std::vector<std::string>> Launcher::arguments(const SpawnRank& request,
                                                             const Variables& named) const {
  const JobSpec& spec = request.launch->spec;
  if (spec.command.empty()) {
    return std::vector<std::string>{options_.trainer, "train", "--config",
                                    folders_.config_path(request.key.launch())};
  }
  if (request.key.rank == Rank(0)) {
    if (auto status = check_program_port(request.launch->program_port); !status.ok()) return status;
  }
  return program_arguments(spec, named);
}

absl::Status Launcher::make_folder(const LaunchKey& key, const RankUser* user) const {
  const std::string folder = folders_.folder(key);
  if (user == nullptr) {
    std::error_code error;
    std::filesystem::create_directories(folder, error);
    return error ? errno_status(error.value(), absl::StrCat("creating folder ", folder))
                 : absl::OkStatus();
  }
  // Two ranks of a launch start at the same time.
  const std::lock_guard lock(*folders_mutex_);
  const UserIds own{.uid = geteuid(), .gid = getegid()};
  if (auto status =
          make_folder_of(own, std::filesystem::path(folder).parent_path(), kPassableFolderMode);
      !status.ok())
    return status;
  return make_folder_of(user->ids, folder, kOwnFolderMode);
}

absl::Status Launcher::write_files(const SpawnRank& request) const {
  const LaunchKey key = request.key.launch();
  if (auto status =
          write_file_atomically(folders_.config_path(key), request.launch->spec.train_config_json);
      !status.ok())
    return status;
  // Removes a page of another coordinator's launch with the same numbers.
  const std::string page = folders_.page_path(key, request.local_rank);
  unlink(page.c_str());
  unlink(self_stacks_path(page).c_str());
  return absl::OkStatus();
}

absl::StatusOr<SpawnRequest> Launcher::prepare(const SpawnRank& request) const {
  const JobSpec& spec = request.launch->spec;
  std::optional<RankUser> user;
  if (options_.run_as_owner) {
    auto found = find_rank_user(spec.owner, options_.run_root_jobs);
    if (!found.ok()) return found.status();
    user = *std::move(found);
  }
  const RankUser* const as = user ? &*user : nullptr;
  const auto named = variables(request, as);
  if (!named.ok()) return named.status();
  const std::optional<UserIds> ids = user ? std::optional(user->ids) : std::nullopt;
  absl::StatusOr<std::vector<std::string>> words = absl::UnknownError("not searched");
  {
    // The programs of a user are those that the user can find.
    const FileRights rights(ids);
    if (!rights.status().ok()) return node_fault(rights.status());
    if (words = arguments(request, *named); !words.ok()) return words.status();
  }
  if (auto status = make_folder(request.key.launch(), as); !status.ok())
    return user ? node_fault_unless_quota(std::move(status)) : node_fault(std::move(status));
  {
    const FileRights rights(ids);
    if (!rights.status().ok()) return node_fault(rights.status());
    if (auto status = write_files(request); !status.ok())
      return user ? node_fault_unless_users(std::move(status)) : node_fault(std::move(status));
  }
  return SpawnRequest{.arguments = *std::move(words),
                      .environment = entries_of(*named),
                      .directory = spec.command.empty() ? folders_.folder(request.key.launch())
                                                        : spec.working_directory,
                      .log_path = folders_.log_path(request.key),
                      .umask = options_.rank_umask,
                      .open_files = options_.rank_open_files,
                      .cpus = cpus_of(request),
                      .user = ids};
}

absl::Status Launcher::start_problem(const SpawnRank& request, absl::Status problem) {
  return request.launch->spec.command.empty() ? node_fault(std::move(problem)) : problem;
}

absl::StatusOr<pid_t> Launcher::launch(const SpawnRank& request, int input_fd) const {
  auto prepared = prepare(request);
  if (!prepared.ok()) return prepared.status();
  prepared->input_fd = input_fd;
  auto pid = spawn(*prepared);
  if (!pid.ok()) return start_problem(request, pid.status());
  return pid;
}

absl::StatusOr<RankFigures> Launcher::read_page(const RankKey& key, int32_t local_rank) const {
  const auto page = read_progress_page(folders_.page_path(key.launch(), local_rank));
  if (!page.ok()) return page.status();
  const bool ours = page->job == key.job.value() && page->attempt == key.attempt.value() &&
                    page->rank == key.rank.value() &&
                    page->incarnation == options_.incarnation.value();
  if (!ours) return absl::FailedPreconditionError("the progress page belongs to another launch");
  return figures_from_page(*page);
}

char Launcher::process_state(pid_t pid) const {
  return pid > 0 ? state_of_process(options_.proc_root, working_process(options_.proc_root, pid))
                 : '?';
}

bool Launcher::is_main_thread_awake(pid_t pid) const {
  return worker::is_main_thread_awake(options_.proc_root, working_process(options_.proc_root, pid));
}

std::string Launcher::last_shown_line(const RankKey& key) const {
  const std::vector<std::string> lines = last_lines(key, 1);
  return lines.empty() ? "" : lines.back();
}

std::vector<std::string> Launcher::last_lines(const RankKey& key, size_t count_max) const {
  const int fd = open_ranks_file(folders_.log_path(key));
  if (fd < 0) return {};
  absl::Cleanup close_fd = [fd] { close(fd); };
  const off_t size = lseek(fd, 0, SEEK_END);
  const off_t wanted = kLineBytes * static_cast<off_t>(count_max);
  std::vector<std::string> lines = lines_at_end(fd, size, wanted);
  // The first of them may have begun before what was read.
  if (lines.size() <= count_max && size > wanted && wanted < kTailBytesMax)
    lines = lines_at_end(fd, size, kTailBytesMax);
  if (lines.size() > count_max)
    lines.erase(lines.begin(), lines.end() - static_cast<std::ptrdiff_t>(count_max));
  return lines;
}

}  // namespace muster::worker
