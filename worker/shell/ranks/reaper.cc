#include "worker/shell/ranks/reaper.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>

#include <absl/strings/numbers.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_split.h>
#include <spdlog/spdlog.h>

#include "common/files/errno_status.h"
#include "common/text/absl_view.h"
#include "worker/stacks/proc_files.h"

namespace muster::worker {
namespace {

// The kernel limits an environment to some megabytes. Other users could fill it to delay the
// worker.
constexpr size_t kEnvironmentBytesMax = 4 << 20;
constexpr size_t kUsersEnvironmentBytesMax = 128 << 10;
constexpr size_t kChildrenBytesMax = 4 << 20;

}  // namespace

absl::Status Reaper::adopt_orphans() {
  if (prctl(PR_SET_CHILD_SUBREAPER, 1) == 0) return absl::OkStatus();
  return errno_status(errno, "PR_SET_CHILD_SUBREAPER");
}

void Reaper::add(pid_t pid, const RankKey& key, uid_t uid) {
  ranks_[pid] = {key, uid};
  if (uid != geteuid()) users_.insert(uid);
  if (guard_ != nullptr) guard_->add(pid);
}

void Reaper::forget(pid_t pid) {
  ranks_.erase(pid);
  if (guard_ != nullptr) guard_->remove(pid);
}

void Reaper::signal(const RankKey& key, int signo) const {
  for (const auto& [pid, rank] : ranks_) {
    // ESRCH: it has just ended and waits to be reaped, so the signal is not needed.
    if (rank.key == key) kill(-pid, signo);
  }
}

// Checks without reaping: while the leader is not reaped, its group's number cannot be reused.
std::optional<pid_t> Reaper::next_ended() const {
  constexpr int kWaitFlags = WEXITED | WNOHANG | WNOWAIT | __WNOTHREAD;
  const auto has_ended = [](const siginfo_t& info) {
    return info.si_pid != 0 &&
           (info.si_code == CLD_EXITED || info.si_code == CLD_KILLED || info.si_code == CLD_DUMPED);
  };
  siginfo_t any{};
  if (waitid(P_ALL, 0, &any, kWaitFlags) != 0 || any.si_pid == 0) return std::nullopt;
  if (has_ended(any)) return any.si_pid;
  // A rank that a stack reader has stopped has not ended, but waitid may return it before those
  // that have.
  std::vector<pid_t> pids = children();
  for (const auto& [pid, rank] : ranks_) pids.push_back(pid);
  for (const pid_t pid : pids) {
    siginfo_t one{};
    if (waitid(P_PID, static_cast<id_t>(pid), &one, kWaitFlags) == 0 && has_ended(one)) return pid;
  }
  return std::nullopt;
}

std::vector<ReapedProcess> Reaper::reap() {
  std::vector<ReapedProcess> reaped;
  bool any = false;
  while (const auto pid = next_ended()) {
    any = true;
    const auto rank = ranks_.find(*pid);
    if (rank != ranks_.end()) kill(-*pid, SIGKILL);
    const bool by_guard = guard_ != nullptr && guard_->has_killed(*pid);
    // From the wait on, the number may belong to others.
    if (guard_ != nullptr) guard_->remove(*pid);
    if (guard_ != nullptr && *pid == guard_->pid())
      spdlog::error(
          "the guard of this worker's ranks has ended: if the worker stands still, its "
          "ranks continue until the worker is restarted");
    // After the wait the kernel has forgotten the process.
    const auto cpu_time =
        rank != ranks_.end() ? read_cpu_time(proc_root_, *pid) : std::optional<CpuTime>();
    int status = 0;
    if (waitpid(*pid, &status, __WNOTHREAD) < 0 || rank == ranks_.end()) continue;
    ReapedProcess end{.key = rank->second.key,
                      .exit_code = -1,
                      .signal = 0,
                      .by_guard = by_guard,
                      .cpu_time = cpu_time};
    if (WIFSIGNALED(status)) end.signal = WTERMSIG(status);
    if (WIFEXITED(status)) end.exit_code = WEXITSTATUS(status);
    reaped.push_back(end);
    ranks_.erase(rank);
  }
  // A rank that died while its stack was read: the tracer collects its end.
  std::erase_if(ranks_, [&](const auto& rank) {
    siginfo_t info{};
    const bool is_gone = waitid(P_PID, static_cast<id_t>(rank.first), &info,
                                WEXITED | WNOHANG | WNOWAIT | __WNOTHREAD) != 0 &&
                         errno == ECHILD;
    if (is_gone) reaped.push_back({.key = rank.second.key, .exit_code = -1, .signal = 0});
    if (is_gone && guard_ != nullptr) guard_->remove(rank.first);
    any = any || is_gone;
    return is_gone;
  });
  if (any) kill_stragglers();
  return reaped;
}

void Reaper::kill_stragglers() {
  std::vector<pid_t> pids = children();
  std::ranges::sort(pids);
  std::erase_if(orphans_, [&pids](const auto& orphan) {
    return !std::ranges::binary_search(pids, orphan.first);
  });
  for (const pid_t pid : pids) {
    if (ranks_.contains(pid) || (guard_ != nullptr && pid == guard_->pid())) continue;
    if (is_straggler(pid)) kill(pid, SIGKILL);
  }
}

// A process of another user chooses its environment, and only the user shows whose it is.
bool Reaper::is_straggler(pid_t pid) {
  const auto user = read_process_user(proc_root_, pid);
  if (!user) return false;  // it is gone
  const bool is_users = users_.contains(user->uid);
  const auto has_rank = [&](const auto& matches) {
    return std::ranges::any_of(ranks_, [&](const auto& entry) {
      return (!is_users || entry.second.uid == user->uid) && matches(entry.second);
    });
  };
  if (is_users && !has_rank([](const RankProcess&) { return true; })) return true;
  const RankKey key =
      rank_of_orphan(pid, is_users ? kUsersEnvironmentBytesMax : kEnvironmentBytesMax);
  return key.job.value() != 0 &&
         !has_rank([&](const RankProcess& rank) { return rank.key == key; });
}

RankKey Reaper::rank_of_orphan(pid_t pid, size_t bytes_max) {
  const auto stat = read_task_stat(proc_root_, pid);
  if (!stat) return {};
  if (const auto known = orphans_.find(pid);
      known != orphans_.end() && known->second.start_ticks == stat->start_ticks)
    return known->second.key;
  const auto environment =
      read_proc_file(absl::StrCat(proc_root_, "/", pid, "/environ"), bytes_max);
  // It is empty for a moment while the process executes a program.
  if (!environment || environment->empty()) return {};
  const RankKey key = rank_of_environment(*environment);
  orphans_.insert_or_assign(pid, Orphan{stat->start_ticks, key});
  return key;
}

std::vector<pid_t> Reaper::children() const {
  std::vector<pid_t> pids;
  std::error_code error;
  const std::filesystem::path tasks(absl::StrCat(proc_root_, "/self/task"));
  for (auto task = std::filesystem::directory_iterator(tasks, error);
       !error && task != std::filesystem::directory_iterator(); task.increment(error)) {
    const auto list = read_proc_file(task->path() / "children", kChildrenBytesMax);
    if (!list) continue;
    for (const auto word : absl::StrSplit(*list, ' ', absl::SkipEmpty())) {
      int pid = 0;
      if (absl::SimpleAtoi(word, &pid) && pid > 0) pids.push_back(pid);
    }
  }
  return pids;
}

RankKey rank_of_environment(std::string_view block) {
  uint64_t job = 0;
  uint32_t attempt = 0;
  int32_t rank = -1;
  for (const auto entry : absl::StrSplit(av(block), '\0')) {
    const std::pair<absl::string_view, absl::string_view> parts =
        absl::StrSplit(entry, absl::MaxSplits('=', 1));
    bool ok = true;
    if (parts.first == "MUSTER_JOB") ok = absl::SimpleAtoi(parts.second, &job);
    if (parts.first == "MUSTER_ATTEMPT") ok = absl::SimpleAtoi(parts.second, &attempt);
    if (parts.first == "RANK") ok = absl::SimpleAtoi(parts.second, &rank);
    if (!ok) return {};
  }
  if (job == 0 || attempt == 0 || rank < 0) return {};
  return {JobId(job), Attempt(attempt), Rank(rank)};
}

}  // namespace muster::worker
