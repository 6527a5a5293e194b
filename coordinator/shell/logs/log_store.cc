#include "coordinator/shell/logs/log_store.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <system_error>
#include <utility>

#include <absl/strings/str_cat.h>
#include <spdlog/spdlog.h>

#include "common/files/errno_status.h"
#include "common/text/canonical_number.h"
#include "common/time/time.h"

namespace muster::coordinator {
namespace {

constexpr size_t kFillBytesMax = 64 << 10;  // bytes per write when a gap is filled
// The number of attempts whose owners are remembered. A worker that was unreachable sends the rest
// of an earlier attempt's output later, but not after more restarts than this.
constexpr size_t kAttemptsOwnedMax = 4;

absl::Status not_ours(JobId job) {
  return absl::NotFoundError(
      absl::StrCat("job ", job.value(), " was not started by this coordinator"));
}

class File {
 public:
  explicit File(int fd) : fd_(fd) {}
  ~File() {
    if (fd_ >= 0) close(fd_);
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  int fd() const { return fd_; }

 private:
  int fd_;
};

absl::Status write_at(int fd, uint64_t offset, std::string_view data, const std::string& path) {
  while (!data.empty()) {
    const ssize_t written = pwrite(fd, data.data(), data.size(), static_cast<off_t>(offset));
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return errno_status(errno, absl::StrCat("writing ", path));
    data.remove_prefix(static_cast<size_t>(written));
    offset += static_cast<uint64_t>(written);
  }
  return absl::OkStatus();
}

// Writes lines of spaces, so that the offsets after the gap stay correct.
absl::Status fill_gap(int fd, uint64_t from, uint64_t to, const std::string& path) {
  std::string notice = absl::StrCat("\n[", to - from, " bytes of output were lost here]");
  while (from < to) {
    const uint64_t bytes = std::min<uint64_t>(to - from, kFillBytesMax);
    notice.resize(bytes, ' ');
    notice.back() = '\n';
    if (absl::Status status = write_at(fd, from, notice, path); !status.ok()) return status;
    from += bytes;
    notice.clear();
  }
  return absl::OkStatus();
}

}  // namespace

LogStore::LogStore(std::string root, uint64_t bytes_per_rank_max, const LogLimits& limits,
                   std::string coordinator)
    : root_(std::move(root)),
      bytes_per_rank_max_(bytes_per_rank_max),
      limits_(limits),
      coordinator_(std::move(coordinator)) {
  thread_ = std::thread([this] { work(); });
}

LogStore::~LogStore() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  work_came_.notify_one();
  thread_.join();
}

std::string LogStore::folder(JobId job, Attempt attempt) const {
  return absl::StrCat(root_, "/", job.value(), "/", attempt.value());
}

std::string LogStore::path(JobId job, Attempt attempt, Rank rank) const {
  return absl::StrCat(folder(job, attempt), "/rank-", rank.value(), ".log");
}

std::string LogStore::times_path(JobId job, Attempt attempt, Rank rank) const {
  return absl::StrCat(folder(job, attempt), "/rank-", rank.value(), ".times");
}

std::vector<std::shared_ptr<LogFollower>> LogStore::followers_of(JobLogs& logs) {
  std::vector<std::shared_ptr<LogFollower>> alive;
  std::erase_if(logs.followers, [](const auto& follower) { return follower.expired(); });
  for (const auto& follower : logs.followers) {
    if (auto strong = follower.lock()) alive.push_back(std::move(strong));
  }
  return alive;
}

std::vector<LogStore::OwnedRanks> LogStore::owners_of(const std::vector<RankPlacement>& placement) {
  std::vector<OwnedRanks> owners;
  for (const RankPlacement& rank : placement) {
    const LogWriter writer{rank.worker, rank.incarnation};
    if (owners.empty() || owners.back().writer != writer) owners.push_back({writer, rank.rank});
    owners.back().last = rank.rank;
  }
  return owners;
}

absl::Status LogStore::check_writer(const JobLogs& logs, const LogWriter& writer, JobId job,
                                    Attempt attempt, Rank rank) {
  const auto launch =
      absl::StrCat("job ", job.value(), " attempt ", attempt.value(), " rank ", rank.value());
  if (attempt == Attempt(0) || attempt > logs.scope.newest_attempt || rank < Rank(0) ||
      rank.value() >= logs.scope.ranks) {
    return absl::NotFoundError(absl::StrCat(launch, " was not started by this coordinator"));
  }
  if (const auto owners = logs.owners.find(attempt); owners != logs.owners.end()) {
    const auto owner =
        std::lower_bound(owners->second.begin(), owners->second.end(), rank,
                         [](const OwnedRanks& ranks, Rank r) { return ranks.last < r; });
    if (owner != owners->second.end() && owner->writer == writer) return absl::OkStatus();
  }
  return absl::PermissionDeniedError(absl::StrCat(
      launch, " was not placed on this incarnation of worker ", writer.worker.value()));
}

void LogStore::set_scope(JobId job, const LogScope& scope,
                         const std::vector<RankPlacement>& placement) {
  {
    const std::lock_guard lock(mutex_);
    JobLogs& logs = jobs_[job];
    // Drops logs that no thread writes, because their size can be read from the file. A log in use
    // is retained, because one file must not have two locks.
    if (scope.ended || scope.newest_attempt != logs.scope.newest_attempt) {
      std::erase_if(logs.ranks, [](const auto& entry) { return entry.second.use_count() == 1; });
    }
    const bool is_new = scope.newest_attempt > logs.scope.newest_attempt;
    // Workers may still send output of the attempts that have owners.
    if (is_new && scope.newest_attempt.value() > kAttemptsOwnedMax)
      old_[job] = Attempt(scope.newest_attempt.value() - kAttemptsOwnedMax);
    logs.scope = scope;
    if (!placement.empty() && !logs.owners.contains(scope.newest_attempt)) {
      logs.owners[scope.newest_attempt] = owners_of(placement);
      if (logs.owners.size() > kAttemptsOwnedMax) logs.owners.erase(logs.owners.begin());
    }
    if (!logs.followers.empty()) changed_.insert(job);
  }
  work_came_.notify_one();
}

void LogStore::forget(JobId job) {
  {
    const std::lock_guard lock(mutex_);
    auto logs = jobs_.extract(job);
    if (logs.empty()) return;
    removed_.insert(std::move(logs));
    old_.erase(job);
  }
  work_came_.notify_one();
}

// Runs on the store's thread.
void LogStore::work() {
  std::unique_lock lock(mutex_);
  while (true) {
    const auto has_work = [this] {
      return !changed_.empty() || !removed_.empty() || !old_.empty();
    };
    work_came_.wait(lock, [&] { return stopping_ || has_work(); });
    if (!has_work()) return;
    std::vector<std::pair<std::shared_ptr<LogFollower>, LogScope>> pending;
    const auto collect = [&pending](JobLogs& logs) {
      for (auto& follower : followers_of(logs))
        pending.emplace_back(std::move(follower), logs.scope);
    };
    for (const JobId job : std::exchange(changed_, {})) {
      if (const auto logs = jobs_.find(job); logs != jobs_.end()) collect(logs->second);
    }
    std::map<JobId, JobLogs> removed = std::exchange(removed_, {});
    for (auto& [job, logs] : removed) collect(logs);
    const std::map<JobId, Attempt> old = std::exchange(old_, {});
    lock.unlock();
    for (const auto& [follower, scope] : pending) follower->on_scope(scope);
    pending.clear();
    for (auto& [job, logs] : removed) remove(job, logs);
    for (const auto& [job, last] : old)
      remove_old_logs(absl::StrCat(root_, "/", job.value()), last, limits_);
    lock.lock();
  }
}

void LogStore::remove(JobId job, JobLogs& logs) const {
  // Waits for current writers. Later writers create no new file.
  for (const auto& [part, log] : logs.ranks) {
    const std::lock_guard lock(log->mutex);
    log->forgotten = true;
  }
  std::error_code ignored;  // a failure only wastes space
  std::filesystem::remove_all(absl::StrCat(root_, "/", job.value()), ignored);
}

void LogStore::remove_all_but(const std::set<JobId>& known) const {
  std::error_code error;  // a failure only wastes space
  std::filesystem::directory_iterator entry(root_, error);
  for (; !error && entry != std::filesystem::directory_iterator(); entry.increment(error)) {
    std::error_code ignored;
    const auto id = canonical_number<uint64_t>(entry->path().filename().string());
    if (id && !known.contains(JobId(*id))) std::filesystem::remove_all(entry->path(), ignored);
  }
}

std::optional<LogScope> LogStore::scope(JobId job) {
  const std::lock_guard lock(mutex_);
  const auto it = jobs_.find(job);
  return it == jobs_.end() ? std::nullopt : std::optional(it->second.scope);
}

std::optional<LogScope> LogStore::follow(JobId job, std::weak_ptr<LogFollower> follower) {
  const std::lock_guard lock(mutex_);
  const auto it = jobs_.find(job);
  if (it == jobs_.end()) return std::nullopt;
  std::erase_if(it->second.followers, [](const auto& other) { return other.expired(); });
  it->second.followers.push_back(std::move(follower));
  return it->second.scope;
}

absl::StatusOr<uint64_t> LogStore::append(const LogWriter& writer, JobId job, Attempt attempt,
                                          Rank rank, uint64_t offset, std::string_view data) {
  // longer than any log; a larger offset comes from a corrupt message
  constexpr uint64_t kOffsetMax = uint64_t{1} << 62;
  if (offset > kOffsetMax)
    return absl::InvalidArgumentError(absl::StrCat("log offset is ", offset));
  auto log = find_log(writer, job, attempt, rank);
  if (!log.ok()) return log.status();
  absl::StatusOr<uint64_t> settled = uint64_t{0};
  {
    const std::lock_guard lock((*log)->mutex);
    if ((*log)->forgotten) return not_ours(job);
    const uint64_t end_before = (*log)->end;
    settled = append_locked(**log, job, attempt, rank, offset, data);
    if (absl::IsResourceExhausted(settled.status())) {
      if (!std::exchange((*log)->waits, true)) {
        spdlog::warn("output of job {} waits in its worker: {}", job.value(),
                     std::string(settled.status().message()));
      }
      return (*log)->end;
    }
    // Settles failed data, too, because a repetition would fail again.
    if (!settled.ok()) (*log)->end = std::max<uint64_t>((*log)->end, offset + data.size());
    // If output is dropped after a failure for lack of space, this does not show that there is
    // space again.
    if ((*log)->end > end_before) (*log)->waits = false;
  }
  log->reset();
  std::vector<std::shared_ptr<LogFollower>> followers;
  {
    const std::lock_guard lock(mutex_);
    if (const auto it = jobs_.find(job); it != jobs_.end()) followers = followers_of(it->second);
  }
  for (const auto& follower : followers) follower->on_output(attempt, rank);
  return settled;
}

absl::StatusOr<std::shared_ptr<LogStore::RankLog>> LogStore::find_log(const LogWriter& writer,
                                                                      JobId job, Attempt attempt,
                                                                      Rank rank) {
  const std::lock_guard lock(mutex_);
  const auto it = jobs_.find(job);
  if (it == jobs_.end()) return not_ours(job);
  if (absl::Status status = check_writer(it->second, writer, job, attempt, rank); !status.ok())
    return status;
  std::shared_ptr<RankLog>& log = it->second.ranks[{attempt, rank}];
  if (log == nullptr) log = std::make_shared<RankLog>();
  return log;
}

absl::StatusOr<uint64_t> LogStore::append_locked(RankLog& log, JobId job, Attempt attempt,
                                                 Rank rank, uint64_t offset,
                                                 std::string_view data) {
  const std::string file_path = path(job, attempt, rank);
  uint64_t& end = log.end;
  const uint64_t chunk_end = offset + data.size();
  if (end != 0 && (chunk_end <= end || (offset > end && end < bytes_per_rank_max_))) return end;
  std::error_code error;
  std::filesystem::create_directories(folder(job, attempt), error);
  if (error) return errno_status(error.value(), absl::StrCat("making ", folder(job, attempt)));
  const File file(open(file_path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
  if (file.fd() < 0) return errno_status(errno, absl::StrCat("opening ", file_path));
  struct stat info {};
  if (fstat(file.fd(), &info) != 0)
    return errno_status(errno, absl::StrCat("examining ", file_path));
  const auto stored = static_cast<uint64_t>(info.st_size);
  if (end == 0) end = stored;
  if (const uint64_t dropped_to = std::min(end, bytes_per_rank_max_); stored < dropped_to) {
    if (absl::Status status = fill_gap(file.fd(), stored, dropped_to, file_path); !status.ok())
      return status;
  }
  if (end < bytes_per_rank_max_) {
    if (offset > end) return end;
    if (chunk_end > end) {
      data.remove_prefix(end - offset);
      const LogTime came{.offset = end, .unix_ns = wall_clock_unix_ns()};
      add_log_time(times_path(job, attempt, rank), log.times, came);
      const std::string_view kept = data.substr(0, bytes_per_rank_max_ - end);
      if (absl::Status status = write_at(file.fd(), end, kept, file_path); !status.ok())
        return status;
      end += kept.size();
      if (end >= bytes_per_rank_max_) {
        const std::string notice = absl::StrCat("\n[this log reached ", bytes_per_rank_max_,
                                                " bytes: what follows is dropped]\n");
        if (absl::Status status = write_at(file.fd(), end, notice, file_path); !status.ok())
          return status;
      }
    }
  }
  end = std::max(end, chunk_end);
  return end;
}

absl::StatusOr<std::string> LogStore::read(JobId job, Attempt attempt, Rank rank, uint64_t offset,
                                           size_t bytes_max) {
  if (absl::Status status = check_leader(job, attempt); !status.ok()) return status;
  const std::string file_path = path(job, attempt, rank);
  const File file(open(file_path.c_str(), O_RDONLY | O_CLOEXEC));
  if (file.fd() < 0) {
    if (errno != ENOENT) return errno_status(errno, absl::StrCat("opening ", file_path));
    // A job that has not started yet has attempt 0.
    if (attempt == Attempt(0) || attempt > removed_logs(absl::StrCat(root_, "/", job.value())))
      return std::string();
    return absl::NotFoundError(
        absl::StrCat("the logs of attempt ", attempt.value(), " of job ", job.value(),
                     " were removed: those of old attempts are kept for ",
                     limits_.age_max / std::chrono::hours(24), " days and up to ",
                     limits_.bytes_per_job_max >> 20, " MiB per job"));
  }
  std::string data(bytes_max, '\0');
  const ssize_t bytes = pread(file.fd(), data.data(), data.size(), static_cast<off_t>(offset));
  if (bytes < 0) return errno_status(errno, absl::StrCat("reading ", file_path));
  data.resize(static_cast<size_t>(bytes));
  return data;
}

// Workers send the logs of running ranks again to a coordinator that begins to lead. Those of ended
// attempts stay where they are.
absl::Status LogStore::check_leader(JobId job, Attempt attempt) {
  if (coordinator_.empty()) return absl::OkStatus();
  const std::lock_guard lock(mutex_);
  const auto logs = jobs_.find(job);
  if (logs == jobs_.end()) return absl::OkStatus();
  const LogScope& scope = logs->second.scope;
  if (attempt >= scope.newest_attempt && !scope.ended) return absl::OkStatus();
  const LogLeader* leader = nullptr;
  for (const LogLeader& other : scope.leaders)
    if (other.first <= attempt) leader = &other;
  if (leader == nullptr || leader->coordinator == coordinator_) return absl::OkStatus();
  return absl::NotFoundError(absl::StrCat(
      "the log of attempt ", attempt.value(), " of job ", job.value(),
      " is on the disk of the coordinator that led when the attempt ended: ", leader->coordinator,
      "; its folder is logs in --state-dir there"));
}

uint64_t LogStore::size(JobId job, Attempt attempt, Rank rank) const {
  struct stat info {};
  return stat(path(job, attempt, rank).c_str(), &info) == 0 ? static_cast<uint64_t>(info.st_size)
                                                            : 0;
}

std::vector<LogTime> LogStore::times(JobId job, Attempt attempt, Rank rank, uint64_t offset,
                                     size_t count_max) const {
  return read_log_times(times_path(job, attempt, rank), offset, count_max);
}

}  // namespace muster::coordinator
