#include "coordinator/shell/profiling/profiler.h"

#ifdef MUSTER_HAVE_GPERFTOOLS

#include <gperftools/malloc_extension.h>
#include <gperftools/profiler.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <condition_variable>
#include <memory>
#include <mutex>

#include <absl/cleanup/cleanup.h>
#include <absl/strings/str_cat.h>

#include "common/files/errno_status.h"
#include "common/files/file_read.h"
#include "common/process/start_limits.h"
#include "coordinator/shell/profiling/pprof_file.h"

// gperftools' variable for TCMALLOC_SAMPLE_PARAMETER. No header declares it, so it is a weak
// symbol: without it heap samples need the environment variable.
// NOLINTNEXTLINE(readability-identifier-naming)
namespace FLAG__namespace_do_not_use_directly_use_DECLARE_int64_instead {
extern __attribute__((weak)) int64_t FLAGS_tcmalloc_sample_parameter;
}

namespace muster::coordinator {
namespace {

// A sample per 512 KiB, as in Go and in Google's servers.
constexpr int64_t kBytesPerSample = 512 << 10;

// Far above the samples of the longest profile.
constexpr size_t kRawBytesMax = size_t{1} << 30;

// Waits for `time`. Returns false if `stop` is requested before.
bool wait_for(Duration time, const std::stop_token& stop) {
  std::mutex mutex;
  std::unique_lock lock(mutex);
  std::condition_variable_any changed;
  changed.wait_for(lock, stop, time, [] { return false; });
  return !stop.stop_requested();
}

// Adds the values that a sample stands for: a large allocation is sampled more often than a small
// one.
void add_heap_sample(StackProfile& profile, double period, void* const* entry, size_t depth) {
  const auto number = [](const void* word) { return reinterpret_cast<uintptr_t>(word); };
  const auto count = static_cast<double>(number(entry[0]));
  const auto bytes = static_cast<double>(number(entry[1]));
  if (count == 0 || bytes == 0) return;
  const double scale = 1 / (1 - std::exp(-bytes / count / period));
  ProfileSample sample;
  for (size_t i = 0; i < depth; ++i) sample.stack.push_back(number(entry[3 + i]));
  sample.values = {std::llround(count * scale), std::llround(bytes * scale)};
  profile.samples.push_back(std::move(sample));
}

}  // namespace

void start_heap_samples() {
  using FLAG__namespace_do_not_use_directly_use_DECLARE_int64_instead::
      FLAGS_tcmalloc_sample_parameter;
  if (&FLAGS_tcmalloc_sample_parameter != nullptr && FLAGS_tcmalloc_sample_parameter == 0)
    FLAGS_tcmalloc_sample_parameter = kBytesPerSample;
}

absl::StatusOr<std::string> cpu_profile(Duration time, const std::stop_token& stop) {
  // gperftools ends the process if it cannot write, so it writes to memory.
  if (const uint64_t limit = shell_limits().file_bytes; limit != ShellLimits::kNone) {
    return absl::FailedPreconditionError(absl::StrCat(
        "a CPU profile cannot be taken while ulimit -f allows the coordinator files of ",
        limit >> 10, " KiB: start it with ulimit -f unlimited"));
  }
  const int fd = memfd_create("muster-profile", MFD_CLOEXEC);
  if (fd < 0) return errno_status(errno, "the memory for a profile");
  const auto close_it = absl::MakeCleanup([fd] { close(fd); });
  const std::string path = absl::StrCat("/proc/self/fd/", fd);
  StackProfile profile;
  profile.taken_unix_ns = wall_clock_unix_ns();
  const Instant begun = monotonic_now();
  if (ProfilerStart(path.c_str()) == 0)
    return absl::ResourceExhaustedError(
        "another CPU profile is in progress, perhaps by CPUPROFILE in the environment");
  const bool is_complete = wait_for(time, stop);
  ProfilerStop();
  if (!is_complete) return absl::CancelledError("the profile was stopped");
  profile.duration = monotonic_now() - begun;
  const auto bytes = read_file_up_to(kRawBytesMax, path, "the memory of a profile");
  if (!bytes.ok()) return bytes.status();
  if (!read_cpu_samples(*bytes, profile))
    return absl::InternalError("gperftools has written an incomplete profile");
  return pprof_file(profile);
}

absl::StatusOr<std::string> heap_profile() {
  int period = 0;
  const std::unique_ptr<void*[]> entries(MallocExtension::instance()->ReadStackTraces(&period));
  if (entries == nullptr || period <= 0)
    return absl::FailedPreconditionError(
        "the allocator takes no heap samples: start the coordinator with "
        "TCMALLOC_SAMPLE_PARAMETER=524288 in its environment");
  StackProfile profile;
  profile.values = {{"inuse_objects", "count"}, {"inuse_space", "bytes"}};
  profile.period_type = {"space", "bytes"};
  profile.period = period;
  profile.taken_unix_ns = wall_clock_unix_ns();
  // An entry: count, bytes, depth, the stack. A count of 0 ends the list.
  for (void** entry = entries.get(); entry[0] != nullptr;) {
    const auto depth = reinterpret_cast<uintptr_t>(entry[2]);
    add_heap_sample(profile, period, entry, depth);
    entry += 3 + depth;
  }
  return pprof_file(profile);
}

}  // namespace muster::coordinator

#else

namespace muster::coordinator {
namespace {

absl::Status no_gperftools() {
  return absl::FailedPreconditionError(
      "this coordinator was built without gperftools: install libgoogle-perftools-dev and build it "
      "again, without sanitizers");
}

}  // namespace

void start_heap_samples() {}

absl::StatusOr<std::string> cpu_profile(Duration, const std::stop_token&) {
  return no_gperftools();
}

absl::StatusOr<std::string> heap_profile() { return no_gperftools(); }

}  // namespace muster::coordinator

#endif
