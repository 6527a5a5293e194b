#include "coordinator/shell/logs/log_cursor.h"

#include <algorithm>
#include <vector>

#include <absl/strings/str_cat.h>

#include "coordinator/shell/logs/log_text.h"
#include "daemon/limits.h"

namespace muster::coordinator {
namespace {

// The number of records read at once, because the next output of another rank is seldom further
// away.
constexpr size_t kTimesRead = 64;
// The maximum number of attempts before the newest one with which a client continues.
constexpr uint32_t kAttemptsContinued = 64;

}  // namespace

absl::Status check_log_request(const v1::FollowLogsRequest& request,
                               const std::optional<LogScope>& scope) {
  if (!scope) return absl::NotFoundError(absl::StrCat("there is no job ", request.job_id()));
  if (request.rank() < -1 || request.rank() >= scope->ranks) {
    return absl::InvalidArgumentError(absl::StrCat("rank is ", request.rank(), ": job ",
                                                   request.job_id(), " has the ranks 0 to ",
                                                   scope->ranks - 1, ", and -1 stands for all"));
  }
  if (Attempt(request.attempt()) > scope->newest_attempt) {
    return absl::InvalidArgumentError(absl::StrCat("attempt is ", request.attempt(),
                                                   ": the newest of job ", request.job_id(), " is ",
                                                   scope->newest_attempt.value()));
  }
  if (request.offset() > 0 && (request.rank() < 0 || request.attempt() == 0)) {
    return absl::InvalidArgumentError(
        absl::StrCat("offset is ", request.offset(), ": it needs one rank and one attempt"));
  }
  return absl::OkStatus();
}

absl::Status LogCursor::begin(const std::optional<LogScope>& scope) {
  if (absl::Status status = check_log_request(request_, scope); !status.ok()) return status;
  scope_ = *scope;
  const Attempt last =
      request_.attempt() == 0 ? scope_.newest_attempt : Attempt(request_.attempt());
  if (last == Attempt(0)) return absl::OkStatus();
  // A client that continues has seen nothing of the attempts that began meanwhile.
  const bool continues = start_.at && start_.at->first <= last;
  select(continues ? start_.at->first : last, last, /*from_begin=*/continues);
  return absl::OkStatus();
}

void LogCursor::on_output(Attempt attempt, Rank rank) {
  if (offsets_.contains({attempt, rank})) ready_.emplace(attempt, rank);
}

void LogCursor::on_scope(const LogScope& scope) {
  scope_ = scope;
  ready_.merge(incomplete_);
  incomplete_.clear();
  if (request_.attempt() != 0 || scope.newest_attempt <= selected_through_) return;
  select(Attempt(selected_through_.value() + 1), scope.newest_attempt, /*from_begin=*/true);
}

// Adds the ranks of these attempts that the request selects.
void LogCursor::select(Attempt first, Attempt last, bool from_begin) {
  selected_through_ = last;
  const uint32_t oldest = last.value() - std::min(last.value(), kAttemptsContinued);
  const int32_t first_rank = request_.rank() < 0 ? 0 : request_.rank();
  const int32_t last_rank = request_.rank() < 0 ? scope_.ranks - 1 : request_.rank();
  for (uint32_t attempt = first.value(); attempt <= last.value(); ++attempt) {
    const bool is_continued = start_.at && start_.at->first == Attempt(attempt);
    if (attempt < oldest && !is_continued) continue;
    for (int32_t rank = first_rank; rank <= last_rank; ++rank) {
      const Part part{Attempt(attempt), Rank(rank)};
      offsets_[part] = is_continued ? start_.at->second : from_begin ? 0 : first_offset(part);
      ready_.insert(part);
    }
  }
}

uint64_t LogCursor::first_offset(const Part& part) const {
  if (!start_.tail_bytes) return request_.offset();
  const JobId job(request_.job_id());
  const uint64_t size = logs_.size(job, part.first, part.second);
  return next_character(logs_, {job, part.first, part.second},
                        size - std::min(size, *start_.tail_bytes));
}

bool LogCursor::may_grow(Attempt attempt) const {
  return request_.follow() && !scope_.ended && attempt == scope_.newest_attempt;
}

bool LogCursor::more_may_come() const {
  if (!request_.follow() || scope_.ended) return false;
  return request_.attempt() == 0 || Attempt(request_.attempt()) == scope_.newest_attempt;
}

void LogCursor::queue_pending() {
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
size_t LogCursor::bytes_until_next(const PendingPart& pending) const {
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

absl::StatusOr<std::optional<v1::LogChunk>> LogCursor::next() {
  for (queue_pending(); !pending_.empty(); queue_pending()) {
    const PendingPart pending = *pending_.begin();
    pending_.erase(pending_.begin());
    const Part part{pending.attempt, pending.rank};
    uint64_t& offset = offsets_[part];
    auto data = read_text(logs_, {JobId(request_.job_id()), part.first, part.second}, offset,
                          bytes_until_next(pending), may_grow(part.first));
    // A client that continues after a long time begins with the oldest attempt that is left.
    if (absl::IsNotFound(data.status()) && request_.attempt() == 0 &&
        part.first < scope_.newest_attempt)
      continue;
    if (!data.ok()) return data.status();
    if (data->empty()) {
      if (may_grow(part.first) &&
          logs_.size(JobId(request_.job_id()), part.first, part.second) > offset)
        incomplete_.insert(part);
      continue;
    }
    v1::LogChunk chunk;
    chunk.set_job_id(request_.job_id());
    chunk.set_attempt(part.first.value());
    chunk.set_rank(part.second.value());
    chunk.set_offset(offset);
    chunk.set_unix_ns(pending.unix_ns);
    offset += data->size();
    chunk.set_data(*std::move(data));
    ready_.insert(part);
    return chunk;
  }
  return std::nullopt;
}

}  // namespace muster::coordinator
