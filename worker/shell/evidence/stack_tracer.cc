#include "worker/shell/evidence/stack_tracer.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <utility>

#include <absl/strings/str_cat.h>
#include <boost/asio/post.hpp>
#include <spdlog/spdlog.h>

#include "common/files/errno_status.h"
#include "common/files/ranks_file.h"
#include "common/time/time.h"
#include "worker/shell/evidence/pidfd.h"
#include "worker/shell/files/protected_path.h"
#include "worker/stacks/proc_files.h"

namespace muster::worker {
namespace {

// Limit of a trace; ranks that are unread then are reported as such. The next trace is at least a
// second away, and a dump may need the same ranks meanwhile.
constexpr Duration kReadBudget = std::chrono::seconds(1);
// Limit for the symbols of one module: a trace without symbols has little value, a trace that never
// comes has none.
constexpr Duration kNamesBudget = std::chrono::seconds(10);
// Per launch on this node: weeks of traces of eight ranks every ten minutes.
constexpr uint64_t kTraceFileBytesMax = 256 << 20;
// Log agents run as other users.
constexpr mode_t kFolderMode = 0755, kFileMode = 0644;
// Users must not read each other's stacks.
constexpr mode_t kPrivateFolderMode = 0700, kPrivateFileMode = 0600;

absl::Status make_folder(const StackTracerOptions& options) {
  const std::string& path = options.folder;
  const mode_t mode = options.is_private ? kPrivateFolderMode : kFolderMode;
  std::error_code error;
  std::filesystem::create_directories(std::filesystem::path(path).parent_path(), error);
  if (mkdir(path.c_str(), mode) == 0) {
    chmod(path.c_str(), mode);  // independent of the umask
    return absl::OkStatus();
  }
  if (errno != EEXIST) return errno_status(errno, absl::StrCat("making ", path));
  return options.is_private ? check_protected(path) : absl::OkStatus();
}

// Appends after the rank's own output, on a new line.
absl::Status append_to_log(const std::string& path, const std::string& text) {
  const int fd = open_ranks_file(path, O_RDWR | O_APPEND);
  if (fd < 0) return errno_status(errno, absl::StrCat("opening ", path));
  char last = '\n';
  const off_t size = lseek(fd, 0, SEEK_END);
  if (size > 0 && pread(fd, &last, 1, size - 1) != 1) last = '\n';
  const std::string whole = absl::StrCat(last == '\n' ? "" : "\n", text);
  const ssize_t written = ::write(fd, whole.data(), whole.size());
  const int error = errno;
  close(fd);
  if (written == static_cast<ssize_t>(whole.size())) return absl::OkStatus();
  return written < 0
             ? errno_status(error, absl::StrCat("writing ", path))
             : absl::ResourceExhaustedError(absl::StrCat("writing ", path, ": the disk is full"));
}

}  // namespace

// One trace of one launch, passed to the thread.
struct StackTracer::Job {
  LaunchKey key;
  std::string job_name;
  StackTraceSpec spec;
  std::shared_ptr<TraceFile> file;
  std::vector<TracedRank> ranks;
  std::vector<PidFd> pidfds;  // descriptors of the ranks' processes
  int64_t unix_ns = 0;
};

StackTracer::StackTracer(boost::asio::io_context& loop, StackTools& tools,
                         StackTracerOptions options, Ranks ranks)
    : loop_(loop), tools_(tools), options_(std::move(options)), ranks_(std::move(ranks)) {}

StackTracer::~StackTracer() {
  thread_.stop();
  thread_.join();
}

void StackTracer::begin(const LaunchKey& key, const JobSpec& spec) {
  if (!spec.stack_traces.collect || launches_.contains(key)) return;
  TracedLaunch launch{.job_name = spec.name,
                      .spec = spec.stack_traces,
                      .timer = boost::asio::steady_timer(loop_),
                      .file = nullptr};
  // Clamped again although the coordinator validates it: here a bad value would do harm.
  launch.spec.interval_seconds = std::clamp(
      launch.spec.interval_seconds, kStackTraceIntervalSecondsMin, kStackTraceIntervalSecondsMax);
  if (launch.spec.to_cloud && options_.otlp) {
    if (otlp_ == nullptr) otlp_ = std::make_unique<OtlpLogs>(*options_.otlp, options_.worker);
  } else if (launch.spec.to_cloud) {
    if (auto status = make_folder(options_); !status.ok()) {
      spdlog::warn("--stack-trace-dir: {}", std::string(status.message()));
      if (options_.is_private) return;
    }
    launch.file = std::make_shared<TraceFile>(
        absl::StrCat(options_.folder, "/stack_traces_job", key.job.value(), "_attempt",
                     key.attempt.value(), "_", options_.worker, ".jsonl"),
        kTraceFileBytesMax, options_.is_private ? kPrivateFileMode : kFileMode);
  }
  launches_.emplace(key, std::move(launch));
  arm(key);
}

void StackTracer::end(const LaunchKey& key) { launches_.erase(key); }

void StackTracer::arm(const LaunchKey& key) {
  TracedLaunch& launch = launches_.at(key);
  launch.timer.expires_after(std::chrono::seconds(launch.spec.interval_seconds));
  launch.timer.async_wait([this, key](const boost::system::error_code& error) {
    if (error || !launches_.contains(key)) return;
    take(key);
    arm(key);
  });
}

void StackTracer::take(const LaunchKey& key) {
  TracedLaunch& launch = launches_.at(key);
  std::vector<TracedRank> ranks = ranks_(key);
  if (ranks.empty()) return;
  if (std::exchange(launch.is_being_read, true)) {
    dropped_ += ranks.size();
    return;
  }
  const auto job = std::make_shared<Job>();
  job->key = key;
  job->job_name = launch.job_name;
  job->spec = launch.spec;
  job->file = launch.file;
  job->unix_ns = wall_clock_unix_ns();
  for (const TracedRank& rank : ranks) job->pidfds.emplace_back(rank.pid);
  job->ranks = std::move(ranks);
  boost::asio::post(thread_, [this, job] {
    write(*job, read(*job));
    boost::asio::post(loop_, [this, key = job->key] {
      const auto found = launches_.find(key);
      if (found != launches_.end()) found->second.is_being_read = false;
    });
  });
}

std::vector<StackTrace> StackTracer::read(const Job& job) {
  std::vector<StackTarget> targets;
  for (size_t i = 0; i < job.ranks.size(); ++i) {
    const TracedRank& rank = job.ranks[i];
    const std::string folder = std::filesystem::path(rank.log_path).parent_path();
    targets.push_back({rank.key.rank.value(), rank.pid, job.pidfds[i].get(), rank.self_stacks,
                       user_of_rank(folder, kProcRoot, rank.pid, options_.is_private)});
  }
  const StackSample sample = tools_.sampler.sample(targets, monotonic_now() + kReadBudget);

  // Ranks run the same code: resolves each address once.
  StackTree all;
  all.add(sample);
  std::vector<std::vector<uint64_t>> addresses(all.modules().size());
  for (const StackFrame& frame : all.frames()) {
    if (frame.module != kNoModule) addresses[frame.module].push_back(frame.address);
  }
  std::map<std::pair<StackModule, uint64_t>, FrameSymbol> names;
  for (size_t m = 0; m < addresses.size(); ++m) {
    const auto symbols =
        tools_.symbolizer.symbolize(all.modules()[m], addresses[m], job.ranks[0].pid,
                                    monotonic_now() + kNamesBudget, targets[0].user);
    if (!symbols.ok()) continue;  // "libc.so.6+0x1234" is sufficient
    for (size_t i = 0; i < std::min(symbols->size(), addresses[m].size()); ++i)
      names[{all.modules()[m], addresses[m][i]}] = (*symbols)[i];
  }

  std::vector<StackTrace> traces;
  for (size_t i = 0; i < std::min(sample.ranks.size(), job.ranks.size()); ++i) {
    StackTrace& trace = traces.emplace_back();
    trace.key = job.ranks[i].key;
    trace.job_name = job.job_name;
    trace.worker = options_.worker;
    trace.pid = job.ranks[i].pid;
    trace.unix_ns = job.unix_ns;
    trace.problem = sample.ranks[i].problem;
    trace.note = sample.ranks[i].note;
    trace.stacks.add({sample.modules, {sample.ranks[i]}});
    for (uint32_t f = 0; f < trace.stacks.frames().size(); ++f) {
      const StackFrame& frame = trace.stacks.frames()[f];
      if (frame.module == kNoModule) continue;
      const auto name = names.find({trace.stacks.modules()[frame.module], frame.address});
      if (name != names.end()) trace.stacks.set_symbol(f, name->second);
    }
  }
  return traces;
}

void StackTracer::write(const Job& job, const std::vector<StackTrace>& traces) {
  if (job.spec.to_cloud && job.file == nullptr) {
    std::vector<nlohmann::json> records;
    for (const StackTrace& trace : traces) records.push_back(trace_record(trace));
    taken_ += records.size();
    return otlp_->send(records);
  }
  for (size_t i = 0; i < traces.size(); ++i) {
    const absl::Status status = job.file != nullptr
                                    ? job.file->append(trace_record(traces[i]).dump(
                                          -1, ' ', false, nlohmann::json::error_handler_t::replace))
                                    : append_to_log(job.ranks[i].log_path, trace_text(traces[i]));
    ++(status.ok() ? taken_ : dropped_);
    log_problem(status);
  }
}

// Logs each problem once: a full disk is still full at the next interval.
void StackTracer::log_problem(const absl::Status& status) {
  if (status.ok()) {
    problem_logged_ = false;
  } else if (!std::exchange(problem_logged_, true)) {
    spdlog::warn("stack traces are lost: {}", std::string(status.message()));
  }
}

}  // namespace muster::worker
