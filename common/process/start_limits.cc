#include "common/process/start_limits.h"

#include <malloc.h>
#include <pthread.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <optional>
#include <system_error>
#include <vector>

#include <absl/strings/numbers.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>

#include "common/text/absl_view.h"
#include "common/text/canonical_number.h"

namespace muster {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kKiB = uint64_t{1} << 10;
constexpr uint64_t kMiB = uint64_t{1} << 20;
// A probe's thread does nothing. The least stack that all systems allow beside thread-local data.
constexpr size_t kProbeStackBytes = 128 << 10;
// More threads than any program here needs; bounds the probe's time.
constexpr uint64_t kProbeThreadsMax = 512;

uint64_t mib_up(uint64_t bytes) { return bytes / kMiB + (bytes % kMiB == 0 ? 0 : 1); }

// The group that leaves least room for threads.
struct ThreadRoom {
  uint64_t limit = 0;
  uint64_t used = 0;
  std::string file;
  uint64_t left() const { return limit - std::min(limit, used); }
};

std::optional<ThreadRoom> room_for_threads(const MachineRoots& roots) {
  std::optional<ThreadRoom> tightest;
  for (const ControlGroup& group : control_groups(roots, "pids")) {
    const std::string file = group.folder + "/pids.max";
    const auto limit = number_in_file(file);
    const auto used = number_in_file(group.folder + "/pids.current");
    if (!limit || !used) continue;
    const ThreadRoom room{*limit, *used, file};
    if (!tightest || room.left() < tightest->left()) tightest = room;
  }
  return tightest;
}

// Returns the bytes that this process has mapped; 0: unknown.
uint64_t mapped_bytes(const MachineRoots& roots) {
  const auto pages = number_in_file((fs::path(roots.proc) / "self" / "statm").string());
  return pages.value_or(0) * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
}

// Returns the bytes of this process that ulimit -d counts; 0: unknown.
uint64_t data_bytes(const MachineRoots& roots) {
  constexpr int kDataField = 5;
  std::ifstream file(fs::path(roots.proc) / "self" / "statm");
  uint64_t pages = 0;
  for (int i = 0; i <= kDataField; ++i) {
    if (!(file >> pages)) return 0;
  }
  return pages * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
}

// Returns the number of threads of the user that ulimit -u counts.
uint64_t threads_of_user(const MachineRoots& roots) {
  const std::string user = absl::StrCat(getuid());
  uint64_t sum = 0;
  std::error_code error;
  // Not a range-for, which throws when a process ends in the middle.
  fs::directory_iterator entry(roots.proc, error);
  for (; !error && entry != fs::directory_iterator(); entry.increment(error)) {
    if (!canonical_number<pid_t>(entry->path().filename().string())) continue;
    std::ifstream status(entry->path() / "status");
    bool is_users = false;
    for (std::string name, value, line; status >> name >> value; std::getline(status, line)) {
      if (name == "Uid:") is_users = value == user;
      uint64_t threads = 0;
      if (name == "Threads:" && is_users && absl::SimpleAtoi(value, &threads)) sum += threads;
    }
  }
  return sum;
}

absl::Status too_few_threads(std::string_view program, uint64_t threads, const ThreadRoom& room) {
  return absl::ResourceExhaustedError(
      absl::StrCat(av(program), " needs at least ", threads, " more threads, but pids.max allows ",
                   room.limit, " processes and threads in this container, of which ", room.used,
                   " run (", room.file, "); raise the container's limit of processes"));
}

// Threads that wait until all of them have started.
class Probe {
 public:
  ~Probe() {
    mutex_.unlock();
    for (const pthread_t thread : threads_) pthread_join(thread, nullptr);
  }

  // Returns 0 or an errno.
  int start(uint64_t count) {
    mutex_.lock();
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, kProbeStackBytes);
    int error = 0;
    while (error == 0 && threads_.size() < count) {
      pthread_t thread{};
      error = pthread_create(&thread, &attributes, wait, this);
      if (error == 0) threads_.push_back(thread);
    }
    pthread_attr_destroy(&attributes);
    return error;
  }
  size_t started() const { return threads_.size(); }

 private:
  static void* wait(void* probe) {
    const std::lock_guard lock(static_cast<Probe*>(probe)->mutex_);
    return nullptr;
  }

  std::mutex mutex_;
  std::vector<pthread_t> threads_;
};

const char* aborting_program = "";

[[noreturn]] void abort_with_limits() {
  std::string what = "std::terminate() was called";
  try {
    if (const std::exception_ptr thrown = std::current_exception()) std::rethrow_exception(thrown);
  } catch (const std::exception& error) {
    what = error.what();
  } catch (...) {
    what = "an exception of an unknown kind";
  }
  const std::string limits = describe_limits(shell_limits());
  std::string line = absl::StrCat(aborting_program, ": ", what);
  if (!limits.empty()) absl::StrAppend(&line, " (limits of this process: ", limits, ")");
  line += "\n";
  (void)!write(STDERR_FILENO, line.data(), line.size());
  std::abort();
}

}  // namespace

ShellLimits shell_limits() {
  const auto soft = [](auto resource) {
    rlimit limit{};
    const bool is_set = getrlimit(resource, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
    return is_set ? uint64_t{limit.rlim_cur} : ShellLimits::kNone;
  };
  return {.address_bytes = soft(RLIMIT_AS),
          .data_bytes = soft(RLIMIT_DATA),
          .file_bytes = soft(RLIMIT_FSIZE),
          .open_files = soft(RLIMIT_NOFILE),
          .processes = soft(RLIMIT_NPROC),
          .stack_bytes = soft(RLIMIT_STACK)};
}

absl::Status check_limits(std::string_view program, const StartNeeds& needs,
                          const ShellLimits& limits, const MachineRoots& roots) {
  const auto room = room_for_threads(roots);
  if (room && room->left() < needs.threads) return too_few_threads(program, needs.threads, *room);
  if (limits.open_files < needs.open_files) {
    return absl::ResourceExhaustedError(absl::StrCat(
        av(program), " needs at least ", needs.open_files, " open files, but ulimit -n allows ",
        limits.open_files, "; raise it: ulimit -n 4096"));
  }
  if (limits.stack_bytes < needs.stack_bytes) {
    return absl::ResourceExhaustedError(
        absl::StrCat(av(program), " needs at least ", needs.stack_bytes / kKiB,
                     " KiB of stack, but ulimit -s allows ", limits.stack_bytes / kKiB,
                     " KiB; raise it: ulimit -s 8192"));
  }
  if (limits.file_bytes < needs.file_bytes) {
    return absl::ResourceExhaustedError(
        absl::StrCat(av(program), " writes files of at least ", needs.file_bytes / kKiB,
                     " KiB, but ulimit -f allows ", limits.file_bytes / kKiB,
                     " KiB; remove the limit: ulimit -f unlimited"));
  }
  const uint64_t data = data_bytes(roots);
  if (limits.data_bytes - std::min(limits.data_bytes, data) < needs.data_bytes) {
    return absl::ResourceExhaustedError(
        absl::StrCat(av(program), " needs at least ", mib_up(data + needs.data_bytes),
                     " MiB of private memory, but ulimit -d allows ", limits.data_bytes / kMiB,
                     " MiB; remove the limit: ulimit -d unlimited"));
  }
  if (limits.address_bytes == ShellLimits::kNone || needs.address_bytes == 0)
    return absl::OkStatus();
  const uint64_t mapped = mapped_bytes(roots);
  if (limits.address_bytes - std::min(limits.address_bytes, mapped) >= needs.address_bytes)
    return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat(
      av(program), " needs at least ", mib_up(mapped + needs.address_bytes),
      " MiB of address space, but ulimit -v allows ", limits.address_bytes / kMiB,
      " MiB; remove the limit: ulimit -v unlimited (a limit of a control group, memory.max, bounds "
      "the memory itself)"));
}

absl::Status try_threads(std::string_view program, uint64_t threads, const ShellLimits& limits,
                         const MachineRoots& roots) {
  Probe probe;
  const int error = probe.start(std::min(threads, kProbeThreadsMax));
  if (error == 0) return absl::OkStatus();
  if (const auto room = room_for_threads(roots); room && room->left() == 0)
    return too_few_threads(program, threads, *room);
  const std::string started = absl::StrCat(av(program), " needs at least ", threads,
                                           " more threads, but only ", probe.started(), " start: ");
  if (error == EAGAIN && limits.processes != ShellLimits::kNone) {
    const uint64_t run = threads_of_user(roots) - probe.started();
    return absl::ResourceExhaustedError(absl::StrCat(
        started, "ulimit -u allows ", limits.processes,
        " processes and threads of this user, of which ", run, " run; raise it (ulimit -u ",
        run + threads, " or more, or nproc in /etc/security/limits.conf)"));
  }
  const std::string others = describe_limits(limits, roots);
  return absl::ResourceExhaustedError(absl::StrCat(
      started, std::strerror(error), others.empty() ? "" : "; limits of this process: ", others));
}

absl::Status check_start_needs(std::string_view program, const StartNeeds& needs) {
  const ShellLimits limits = shell_limits();
  if (auto status = check_limits(program, needs, limits); !status.ok()) return status;
  return try_threads(program, needs.threads, limits);
}

std::string describe_limits(const ShellLimits& limits, const MachineRoots& roots) {
  std::vector<std::string> set;
  if (limits.address_bytes != ShellLimits::kNone)
    set.push_back(absl::StrCat("ulimit -v ", limits.address_bytes / kMiB, " MiB"));
  if (limits.data_bytes != ShellLimits::kNone)
    set.push_back(absl::StrCat("ulimit -d ", limits.data_bytes / kMiB, " MiB"));
  if (limits.file_bytes != ShellLimits::kNone)
    set.push_back(absl::StrCat("ulimit -f ", limits.file_bytes / kKiB, " KiB"));
  if (limits.open_files != ShellLimits::kNone)
    set.push_back(absl::StrCat("ulimit -n ", limits.open_files));
  if (limits.processes != ShellLimits::kNone)
    set.push_back(absl::StrCat("ulimit -u ", limits.processes));
  if (const auto room = room_for_threads(roots))
    set.push_back(absl::StrCat("pids.max ", room->limit, " (", room->used, " used)"));
  return absl::StrJoin(set, ", ");
}

void name_limits_at_abort(const char* program) {
  aborting_program = program;
  std::set_terminate(abort_with_limits);
  // Each arena of the allocator reserves 64 MiB or more, and threads make new ones at random times.
  if (shell_limits().address_bytes != ShellLimits::kNone) mallopt(M_ARENA_MAX, 1);
}

}  // namespace muster
