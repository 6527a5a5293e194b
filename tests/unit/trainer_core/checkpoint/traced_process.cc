#include "tests/unit/trainer_core/checkpoint/traced_process.h"

#include <elf.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <map>
#include <optional>

namespace muster {
namespace {

constexpr int kNone = -1;

struct KnownCall {
  uint64_t number;
  std::string_view name;
  int descriptor = kNone;  // index of the argument that is a descriptor
  int path = kNone;
  int to = kNone;
  int flags = kNone;  // index of the argument with the flags of an open
};

// The calls that write, inspect and move files. Some do not exist on every processor.
constexpr KnownCall kCalls[] = {
    {SYS_openat, "openat", kNone, 1, kNone, 2},
    {SYS_read, "read", 0},
    {SYS_pread64, "pread64", 0},
    {SYS_write, "write", 0},
    {SYS_pwrite64, "pwrite64", 0},
    {SYS_close, "close", 0},
    {SYS_fsync, "fsync", 0},
    {SYS_fdatasync, "fdatasync", 0},
    {SYS_sync_file_range, "sync_file_range", 0},
    {SYS_ftruncate, "ftruncate", 0},
    {SYS_fchmod, "fchmod", 0},
    {SYS_flock, "flock", 0},
    {SYS_fstat, "fstat", 0},
    {SYS_newfstatat, "newfstatat", 0, 1},
    {SYS_statx, "statx", 0, 1},
    {SYS_getdents64, "getdents64", 0},
    {SYS_faccessat, "faccessat", kNone, 1},
    {SYS_mkdirat, "mkdirat", kNone, 1},
    {SYS_unlinkat, "unlinkat", 0, 1},
    {SYS_renameat2, "renameat2", kNone, 1, 3},
#ifdef SYS_open
    {SYS_open, "open", kNone, 0, kNone, 1},
    {SYS_stat, "stat", kNone, 0},
    {SYS_lstat, "lstat", kNone, 0},
    {SYS_access, "access", kNone, 0},
    {SYS_mkdir, "mkdir", kNone, 0},
    {SYS_rmdir, "rmdir", kNone, 0},
    {SYS_unlink, "unlink", kNone, 0},
    {SYS_rename, "rename", kNone, 0, 1},
    {SYS_renameat, "renameat", kNone, 1, 3},
#endif
};

bool is_write(const FileCall& call) { return call.name == "write" || call.name == "pwrite64"; }

// Registers: what a call's third argument, number and result are
// -------------------------------------------------------------------------------------------------

#if defined(__x86_64__)
constexpr bool kKnownProcessor = true;
using Registers = user_regs_struct;
void set_third(Registers& registers, uint64_t value) { registers.rdx = value; }
void set_result(Registers& registers, int64_t value) {
  registers.rax = static_cast<uint64_t>(value);
}
void set_number(pid_t, Registers& registers, int number) {
  registers.orig_rax = static_cast<uint64_t>(number);
}
#elif defined(__aarch64__)
constexpr bool kKnownProcessor = true;
using Registers = user_regs_struct;
void set_third(Registers& registers, uint64_t value) { registers.regs[2] = value; }
void set_result(Registers& registers, int64_t value) {
  registers.regs[0] = static_cast<uint64_t>(value);
}
void set_number(pid_t thread, Registers&, int number) {
  iovec io{&number, sizeof(number)};
  ptrace(PTRACE_SETREGSET, thread, NT_ARM_SYSTEM_CALL, &io);
}
#else
constexpr bool kKnownProcessor = false;
struct Registers {};
void set_third(Registers&, uint64_t) {}
void set_result(Registers&, int64_t) {}
void set_number(pid_t, Registers&, int) {}
#endif

template <class Change>
void change_registers(pid_t thread, const Change& change) {
  Registers registers{};
  iovec io{&registers, sizeof(registers)};
  ptrace(PTRACE_GETREGSET, thread, NT_PRSTATUS, &io);
  change(registers);
  ptrace(PTRACE_SETREGSET, thread, NT_PRSTATUS, &io);
}

// The call that a thread is about to make
// -------------------------------------------------------------------------------------------------

std::string text_at(pid_t thread, uint64_t address) {
  std::string text;
  while (text.size() < PATH_MAX) {
    errno = 0;
    const int64_t word = ptrace(PTRACE_PEEKDATA, thread, address + text.size(), nullptr);
    if (errno != 0) return text;
    for (size_t i = 0; i < sizeof(word); ++i) {
      const char letter = static_cast<char>(word >> (8 * i));
      if (letter == '\0') return text;
      text.push_back(letter);
    }
  }
  return text;
}

std::string path_of_descriptor(pid_t thread, uint64_t descriptor) {
  std::error_code ignored;
  return std::filesystem::read_symlink("/proc/" + std::to_string(thread) + "/fd/" +
                                           std::to_string(static_cast<int>(descriptor)),
                                       ignored)
      .string();
}

std::optional<FileCall> file_call(pid_t thread, const __ptrace_syscall_info& info) {
  for (const KnownCall& known : kCalls) {
    if (known.number != info.entry.nr) continue;
    const auto argument = [&](int index) { return info.entry.args[index]; };
    FileCall call{.name = known.name, .path = {}, .to = {}};
    if (known.path != kNone) call.path = text_at(thread, argument(known.path));
    if (known.descriptor != kNone && !call.path.starts_with("/")) {
      const std::string folder = path_of_descriptor(thread, argument(known.descriptor));
      call.path = call.path.empty() ? folder : folder + "/" + call.path;
    }
    if (known.to != kNone) call.to = text_at(thread, argument(known.to));
    call.creates = known.flags != kNone && (argument(known.flags) & O_CREAT) != 0;
    return call;
  }
  return std::nullopt;
}

__ptrace_syscall_info call_info(pid_t thread) {
  __ptrace_syscall_info info{};
  ptrace(PTRACE_GET_SYSCALL_INFO, thread, sizeof(info), &info);
  return info;
}

class Tracer {
 public:
  using Decide = std::function<Decision(size_t, const FileCall&)>;

  Tracer(pid_t child, const Decide& decide) : child_(child), decide_(decide) {}

  TracedEnd run() {
    int status = 0;
    waitpid(child_, &status, 0);  // its first stop
    ptrace(PTRACE_SETOPTIONS, child_, nullptr,
           PTRACE_O_TRACESYSGOOD | PTRACE_O_EXITKILL | PTRACE_O_TRACECLONE);
    ptrace(PTRACE_SYSCALL, child_, nullptr, 0);
    for (pid_t thread = 0; (thread = waitpid(-1, &status, __WALL)) > 0;) {
      if (WIFSTOPPED(status)) {
        stopped(thread, status);
      } else if (thread == child_) {
        end_.killed = WIFSIGNALED(status);
        end_.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
      }
    }
    return std::move(end_);
  }

 private:
  void stopped(pid_t thread, int status) {
    const int signal = WSTOPSIG(status);
    if (signal == (SIGTRAP | 0x80)) {
      const __ptrace_syscall_info info = call_info(thread);
      if (info.op == PTRACE_SYSCALL_INFO_ENTRY) enters(thread, info);
      if (info.op == PTRACE_SYSCALL_INFO_EXIT) leaves(thread);
      ptrace(PTRACE_SYSCALL, thread, nullptr, 0);
      return;
    }
    // New threads begin with a stop, and a trap reports clone(). Other signals are for the process.
    const bool is_ours = signal == SIGTRAP || signal == SIGSTOP;
    ptrace(PTRACE_SYSCALL, thread, nullptr, is_ours ? 0 : signal);
  }

  void enters(pid_t thread, const __ptrace_syscall_info& info) {
    const auto call = file_call(thread, info);
    if (!call) return;
    Decision decision = decide_(end_.calls.size(), *call);
    end_.calls.push_back(*call);
    const bool writes = is_write(*call) && info.entry.args[2] > 1;
    if (decision.fate == Fate::kTear && !writes) decision.fate = Fate::kKill;
    if (decision.fate == Fate::kKill) kill(child_, SIGKILL);
    if ((decision.fate == Fate::kTear || decision.fate == Fate::kShorten) && writes) {
      change_registers(thread, [&](Registers& r) { set_third(r, info.entry.args[2] / 2); });
    }
    if (decision.fate == Fate::kFail)
      change_registers(thread, [&](Registers& r) { set_number(thread, r, -1); });
    pending_[thread] = decision;
  }

  void leaves(pid_t thread) {
    const auto pending = pending_.extract(thread);
    if (pending.empty()) return;
    const Decision& decision = pending.mapped();
    if (decision.fate == Fate::kTear) kill(child_, SIGKILL);
    if (decision.fate == Fate::kFail)
      change_registers(thread, [&](Registers& r) { set_result(r, -decision.error); });
  }

  const pid_t child_;
  const Decide& decide_;
  std::map<pid_t, Decision> pending_;  // decision of each thread's call
  TracedEnd end_;
};

}  // namespace

std::string FileCall::text() const {
  return std::string(name) + "(" + path + (to.empty() ? "" : " → " + to) + ")";
}

TracedEnd run_traced(const std::function<int()>& body,
                     const std::function<Decision(size_t, const FileCall&)>& decide) {
  const pid_t child = fork();
  if (child == 0) {
    if (ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) != 0) _exit(127);
    raise(SIGSTOP);
    _exit([&]() noexcept { return body(); }());  // an exception must not reach the test
  }
  return Tracer(child, decide).run();
}

bool can_trace() {
  if (!kKnownProcessor) return false;
  const TracedEnd end = run_traced([] { return access("/", R_OK) == 0 ? 0 : 1; },
                                   [](size_t, const FileCall&) { return Decision{}; });
  return end.exit_code == 0 && end.calls.size() == 1;
}

}  // namespace muster
