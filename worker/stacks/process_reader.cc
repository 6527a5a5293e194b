#include "worker/stacks/process_reader.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <optional>
#include <system_error>
#include <utility>

#include <absl/strings/str_cat.h>

#include "worker/stacks/blocked_thread.h"
#include "worker/stacks/python_memory.h"
#include "worker/stacks/self_copies.h"

namespace muster::worker {
namespace {

// Limit for stopping the threads; the rest of the deadline is for reading files and for py-spy.
constexpr Duration kStopMax = std::chrono::seconds(1);

// Returns whether nothing was copied because of missing permission.
bool is_refused(const std::vector<ThreadCopy>& copies) {
  const auto has = [&](CopyResult result) {
    return std::ranges::find(copies, result, &ThreadCopy::result) != copies.end();
  };
  return has(CopyResult::kRefused) && !has(CopyResult::kCopied);
}

void add_note(const std::string& text, RankStacks& stacks) {
  absl::StrAppend(&stacks.note, stacks.note.empty() ? "" : "; ", text);
}

}  // namespace

ProcessReader::ProcessReader(std::string proc_root, pid_t pid, uint64_t start_ticks,
                             ModuleImages* images, const std::optional<UserIds>& user)
    : proc_root_(proc_root),
      pid_(pid),
      start_ticks_(start_ticks),
      user_(user),
      unwinder_(std::move(proc_root), pid, images, user) {}

RankStacks ProcessReader::read(const PySpy& py_spy, const std::string& self_stacks,
                               Instant deadline, std::vector<StackModule>& modules) {
  RankStacks stacks;
  stacks.pid = pid_;
  stacks.problem = obstacle();
  if (!stacks.problem.empty()) return stacks;

  const auto before = read_task_stat(proc_root_, pid_);
  const std::vector<pid_t> tids = read_thread_ids(proc_root_, pid_, kThreadsPerRankMax);
  // Read before we attach: a thread held by ptrace has another state.
  std::map<pid_t, TaskStat> stats;
  for (const pid_t tid : tids) {
    if (auto stat = read_task_stat(proc_root_, pid_, tid)) stats[tid] = *std::move(stat);
  }
  bool readable = unwinder_.refresh();
  const Instant now = monotonic_now();
  std::vector<ThreadCopy> copies;
  try {
    copies =
        copy_threads(pid_, tids, unwinder_.map(), now + std::min(kStopMax, (deadline - now) / 2));
  } catch (const std::system_error&) {
    stacks.problem = "no thread could be started to read it";
    return stacks;
  }
  if (is_refused(copies) && obstacle().empty())
    stacks.note = request_self_stacks(
        self_stacks, tids, now + std::min(kStopMax, (deadline - now) / 2), copies, readable);
  // The process may have loaded modules since.
  const bool is_known = std::ranges::all_of(copies, [this](const ThreadCopy& copy) {
    return copy.result != CopyResult::kCopied ||
           unwinder_.map().find(copy.registers.instruction) != nullptr;
  });
  if (!is_known) readable = unwinder_.refresh() || readable;
  const auto after = read_task_stat(proc_root_, pid_);
  if (!before || !after || !after->has_memory || after->state == 'Z' || after->state == 'X') {
    stacks.problem = "died while it was read";
  } else if (before->stack_start != after->stack_start) {
    stacks.problem = "became another program while it was read";
  } else if (!readable) {
    stacks.problem = refusal(copies);
  }
  if (!stacks.problem.empty()) return stacks;

  for (const ThreadCopy& copy : copies) {
    const auto stat = stats.find(copy.tid);
    if (stat == stats.end() || copy.result == CopyResult::kGone) continue;
    ThreadStack thread = describe(copy, modules);
    thread.name = copy.tid == pid_ ? "main" : stat->second.name;
    thread.state = stat->second.state;
    if (!thread.frames.empty()) stacks.threads.push_back(std::move(thread));
  }
  if (stacks.threads.empty()) {
    stacks.problem = refusal(copies);
  } else if (tids.size() == kThreadsPerRankMax) {
    add_note(
        absl::StrCat("has ", kThreadsPerRankMax, " threads or more, which are all that are read"),
        stacks);
  }
  if (runs_python(unwinder_.map())) add_python_frames(py_spy, deadline, modules, stacks);
  return stacks;
}

std::string ProcessReader::obstacle() const {
  const auto stat = read_task_stat(proc_root_, pid_);
  if (!stat || stat->start_ticks != start_ticks_) return "dead";
  // A main thread may end before the others.
  const bool ended = stat->state == 'Z' || stat->state == 'X';
  if (ended && read_thread_ids(proc_root_, pid_, 2).size() < 2) return "dead, not reaped yet";
  const pid_t tracer = read_trace_state(proc_root_, pid_).tracer;
  if (tracer == 0) return "";
  if (is_own_thread(proc_root_, tracer)) return "its worker's last reader still holds it";
  const auto tracer_stat = read_task_stat(proc_root_, tracer);
  return absl::StrCat("held by a debugger (pid ", tracer, tracer_stat ? ", " : "",
                      tracer_stat ? tracer_stat->name : "", ")");
}

ThreadStack ProcessReader::describe(const ThreadCopy& copy, std::vector<StackModule>& modules) {
  ThreadStack thread;
  thread.tid = copy.tid;
  switch (copy.result) {
    case CopyResult::kCopied: {
      Unwinder::Stack stack = unwinder_.unwind(copy, modules);
      thread.frames = std::move(stack.frames);
      thread.truncated = stack.truncated;
      break;
    }
    case CopyResult::kDidNotStop:
      add_kernel_frames(copy.tid, thread, modules);
      break;
    case CopyResult::kOtherWordSize:
      thread.frames.push_back({.text = "[32-bit code]"});
      thread.truncated = true;
      break;
    case CopyResult::kRefused:
      if (!read_wait_channel(proc_root_, pid_, copy.tid).empty())
        add_kernel_frames(copy.tid, thread, modules);
      break;
    case CopyResult::kGone:
      break;
  }
  return thread;
}

// A thread in uninterruptible sleep still has a stack: its part in user code does not change,
// either.
void ProcessReader::add_kernel_frames(pid_t tid, ThreadStack& thread,
                                      std::vector<StackModule>& modules) {
  if (const auto copy = copy_blocked_thread(proc_root_, pid_, tid, unwinder_.map())) {
    Unwinder::Stack stack = unwinder_.unwind(*copy, modules);
    thread.frames = std::move(stack.frames);
    thread.truncated = stack.truncated;
  }
  std::vector<std::string> kernel = read_kernel_stack(proc_root_, pid_, tid);
  if (kernel.empty()) {
    const std::string channel = read_wait_channel(proc_root_, pid_, tid);
    kernel.push_back(channel.empty() ? "?" : channel);
  }
  std::ranges::reverse(kernel);
  for (const std::string& function : kernel)
    thread.frames.push_back({.text = absl::StrCat("[kernel] ", function)});
  if (thread.frames.size() > kStackDepthMax) {
    thread.frames.erase(thread.frames.begin(), thread.frames.end() - kStackDepthMax);
    thread.truncated = true;
  }
}

std::string ProcessReader::request_self_stacks(const std::string& self_stacks,
                                               std::span<const pid_t> tids, Instant deadline,
                                               std::vector<ThreadCopy>& copies, bool& readable) {
  auto own = request_copies(proc_root_, self_stacks, pid_, tids,
                            static_cast<uint64_t>(to_ns(monotonic_now())), !readable, deadline);
  const std::string why = ptrace_refusal();
  if (!own) return absl::StrCat(why, "; only kernel data is available");
  copies = std::move(own->copies);
  if (own->map) {
    unwinder_.use(*std::move(own->map));
    readable = true;
  }
  return absl::StrCat(why, "; its threads reported on a signal");
}

std::string ProcessReader::refusal(const std::vector<ThreadCopy>& copies) const {
  const std::string held = obstacle();
  if (!held.empty()) return held;
  return is_refused(copies) ? ptrace_refusal() : "died while it was read";
}

std::string ProcessReader::ptrace_refusal() const {
  const auto scope = read_proc_file("/proc/sys/kernel/yama/ptrace_scope", 16);
  return absl::StrCat("ptrace is not permitted",
                      scope && *scope > "0" ? " (kernel.yama.ptrace_scope=" : "",
                      scope && *scope > "0" ? scope->substr(0, 1) + ")" : "",
                      "; the worker needs CAP_SYS_PTRACE, or the rank's user id");
}

void ProcessReader::add_python_frames(const PySpy& py_spy, Instant deadline,
                                      const std::vector<StackModule>& modules,
                                      RankStacks& stacks) const {
  auto frames = read_python_memory(pid_, unwinder_.map(), deadline);
  if (!frames.ok() && !absl::IsDeadlineExceeded(frames.status()))
    frames = py_spy.dump(pid_, deadline, user_);
  if (!frames.ok()) {
    add_note(absl::StrCat("no Python frames: ", frames.status().message()), stacks);
    return;
  }
  for (ThreadStack& thread : stacks.threads) {
    const auto python = frames->find(thread.tid);
    if (python != frames->end())
      thread.frames = with_python_frames(thread.frames, python->second, modules);
  }
}

}  // namespace muster::worker
