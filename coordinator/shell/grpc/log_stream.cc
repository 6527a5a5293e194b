#include "coordinator/shell/grpc/log_stream.h"

#include <algorithm>
#include <vector>

#include <absl/strings/str_cat.h>

#include "coordinator/shell/grpc/grpc_status.h"
#include "daemon/limits.h"

namespace muster::coordinator {
namespace {

// The number of records read at once, because the next output of another rank is seldom further
// away.
constexpr size_t kTimesRead = 64;

}  // namespace

void LogStream::begin(const absl::Status& admission) {
  self_ = shared_from_this();
  // Locks the stream before it follows the logs, so that later scope updates do not overtake the
  // scope that is read here.
  const std::lock_guard lock(mutex_);
  if (!admission.ok()) return finish_locked(admission);
  if (ticket_ == nullptr) return finish_locked(StreamLimit::refusal());
  const auto scope = request_.follow() ? logs_.follow(JobId(request_.job_id()), weak_from_this())
                                       : logs_.scope(JobId(request_.job_id()));
  if (const absl::Status status = check_request(scope); !status.ok()) return finish_locked(status);
  select_locked(*scope);
  pump_locked();
}

absl::Status LogStream::check_request(const std::optional<LogScope>& scope) const {
  if (!scope) return absl::NotFoundError(absl::StrCat("there is no job ", request_.job_id()));
  if (request_.rank() < -1 || request_.rank() >= scope->ranks) {
    return absl::InvalidArgumentError(absl::StrCat("rank is ", request_.rank(), ": job ",
                                                   request_.job_id(), " has the ranks 0 to ",
                                                   scope->ranks - 1, ", and -1 stands for all"));
  }
  if (Attempt(request_.attempt()) > scope->newest_attempt) {
    return absl::InvalidArgumentError(absl::StrCat("attempt is ", request_.attempt(),
                                                   ": the newest of job ", request_.job_id(),
                                                   " is ", scope->newest_attempt.value()));
  }
  if (request_.offset() > 0 && (request_.rank() < 0 || request_.attempt() == 0)) {
    return absl::InvalidArgumentError(
        absl::StrCat("offset is ", request_.offset(), ": it needs one rank and one attempt"));
  }
  return absl::OkStatus();
}

// Adds the ranks of attempts that are new in `scope`, if the request selects them.
void LogStream::select_locked(const LogScope& scope) {
  scope_ = scope;
  Attempt attempt = scope.newest_attempt;
  if (request_.attempt() != 0) attempt = Attempt(request_.attempt());
  if (attempt <= selected_through_) return;
  selected_through_ = attempt;
  const int32_t first = request_.rank() < 0 ? 0 : request_.rank();
  const int32_t last = request_.rank() < 0 ? scope.ranks - 1 : request_.rank();
  for (int32_t rank = first; rank <= last; ++rank) {
    const Part part{attempt, Rank(rank)};
    offsets_[part] = request_.offset();
    ready_.insert(part);
  }
}

void LogStream::on_output(Attempt attempt, Rank rank) {
  const std::lock_guard lock(mutex_);
  if (!offsets_.contains({attempt, rank})) return;
  ready_.emplace(attempt, rank);
  pump_locked();
}

void LogStream::on_scope(const LogScope& scope) {
  const std::lock_guard lock(mutex_);
  select_locked(scope);
  pump_locked();
}

bool LogStream::more_may_come_locked() const {
  if (!request_.follow() || scope_.ended) return false;
  return request_.attempt() == 0 || Attempt(request_.attempt()) == scope_.newest_attempt;
}

void LogStream::queue_pending_locked() {
  for (const auto& [attempt, rank] : ready_) {
    PendingPart pending{.attempt = attempt, .rank = rank};
    if (request_.rank() < 0) {
      const std::vector<LogTime> next =
          logs_.times(JobId(request_.job_id()), attempt, rank, offsets_[{attempt, rank}], 1);
      if (!next.empty()) pending.unix_ns = next.front().unix_ns;
    }
    pending_.insert(pending);
  }
  ready_.clear();
}

// Returns the part's bytes that arrived before the next output of another rank.
size_t LogStream::bytes_until_next_locked(const PendingPart& pending) const {
  if (pending_.empty() || pending_.begin()->attempt != pending.attempt)
    return daemon::kLogChunkBytesMax;
  const uint64_t from = offsets_.at({pending.attempt, pending.rank});
  const std::vector<LogTime> times =
      logs_.times(JobId(request_.job_id()), pending.attempt, pending.rank, from, kTimesRead);
  uint64_t bytes = daemon::kLogChunkBytesMax;
  for (const LogTime& time : times) {
    if (time.offset > from && time.unix_ns > pending_.begin()->unix_ns)
      return std::min(bytes, time.offset - from);
  }
  // Records after these were not read.
  if (times.size() == kTimesRead) bytes = std::min(bytes, times.back().offset - from);
  return bytes;
}

void LogStream::pump_locked() {
  if (writing_ || finished_) return;
  for (queue_pending_locked(); !pending_.empty(); queue_pending_locked()) {
    const PendingPart pending = *pending_.begin();
    pending_.erase(pending_.begin());
    const Part part{pending.attempt, pending.rank};
    uint64_t& offset = offsets_[part];
    auto data = logs_.read(JobId(request_.job_id()), part.first, part.second, offset,
                           bytes_until_next_locked(pending));
    if (!data.ok()) return finish_locked(data.status());
    if (data->empty()) continue;
    chunk_.set_job_id(request_.job_id());
    chunk_.set_attempt(part.first.value());
    chunk_.set_rank(part.second.value());
    chunk_.set_offset(offset);
    chunk_.set_unix_ns(pending.unix_ns);
    offset += data->size();
    chunk_.set_data(*std::move(data));
    ready_.insert(part);
    writing_ = true;
    StartWrite(&chunk_);
    return;
  }
  if (!more_may_come_locked()) finish_locked(absl::OkStatus());
}

void LogStream::finish_locked(const absl::Status& status) {
  if (std::exchange(finished_, true)) return;
  count_.count_end(status);
  Finish(to_grpc(status));
}

void LogStream::OnWriteDone(bool ok) {
  const std::lock_guard lock(mutex_);
  writing_ = false;
  if (!ok) return finish_locked(absl::CancelledError("the caller is gone"));
  pump_locked();
}

void LogStream::OnCancel() {
  const std::lock_guard lock(mutex_);
  finish_locked(absl::CancelledError("the caller is gone"));
}

void LogStream::OnDone() { self_.reset(); }

}  // namespace muster::coordinator
