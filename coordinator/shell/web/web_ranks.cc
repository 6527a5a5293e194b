// A job's ranks: their places, their figures and their output.
#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include <absl/strings/str_cat.h>

#include "coordinator/shell/logs/log_text.h"
#include "coordinator/shell/web/log_events.h"
#include "coordinator/shell/web/rank_table.h"
#include "coordinator/shell/web/web_api.h"

namespace muster::coordinator {
namespace {

constexpr int64_t kLogBytesMax = 1 << 20;
constexpr int64_t kLogBytes = 64 << 10;

absl::Status stopping_error() { return absl::UnavailableError("the coordinator is stopping"); }

// Reads `limit` bytes of the log of one rank from `offset`, or its last `tail` bytes unless that is
// 0.
absl::StatusOr<nlohmann::json> part_of_log(LogStore& logs, const v1::FollowLogsRequest& request,
                                           const LogScope& scope, int64_t offset, int64_t limit,
                                           int64_t tail) {
  const JobId job(request.job_id());
  const Rank rank(request.rank());
  const Attempt attempt =
      request.attempt() == 0 ? scope.newest_attempt : Attempt(request.attempt());
  const LogPart part{job, attempt, rank};
  const bool has_ended = scope.ended || attempt < scope.newest_attempt;
  const auto size = static_cast<int64_t>(logs.size(job, attempt, rank));
  if (tail > 0) {
    const auto begin = static_cast<uint64_t>(std::max<int64_t>(size - tail, 0));
    offset = static_cast<int64_t>(next_character(logs, part, begin));
  }
  const auto data = read_text(logs, part, static_cast<uint64_t>(offset),
                              static_cast<size_t>(tail > 0 ? tail : limit), !has_ended);
  if (!data.ok()) return data.status();
  nlohmann::json out = {{"chunks", nlohmann::json::array()},
                        {"next_offset", offset + std::ssize(*data)},
                        {"size", size},
                        {"ended", has_ended}};
  if (data->empty()) return out;
  v1::LogChunk chunk;
  chunk.set_attempt(attempt.value());
  chunk.set_rank(rank.value());
  chunk.set_offset(static_cast<uint64_t>(offset));
  const auto times = logs.times(job, attempt, rank, chunk.offset(), 1);
  if (!times.empty()) chunk.set_unix_ns(times.front().unix_ns);
  chunk.set_data(*data);
  out["chunks"].push_back(log_chunk_to_json(chunk));
  return out;
}

}  // namespace

void WebApi::get_placement(Call& call) {
  const JobId id(number_of(call, "job"));
  if (id == JobId(0)) return;
  if (const absl::Status status = call.params.status(); !status.ok()) return call.fail(status);
  share_of_attempt(call, id, [this, id](const SharedAnswers::Done& done) {
    return loop_.query([done, id](const Core* core, Instant) {
      if (core == nullptr) return done(stopping_error());
      const auto job = core->jobs().find(id);
      if (job == core->jobs().end()) return done(MusterCalls::no_job(id));
      done(SharedAnswers::Data{.text = [map = std::make_shared<RankMap>(rank_map(
                                            *core, job->second))]() -> absl::StatusOr<std::string> {
        return json_text(rank_map_to_json(*map)) + "\n";
      }});
    });
  });
}

void WebApi::get_ranks(Call& call) {
  const JobId id(number_of(call, "job"));
  if (id == JobId(0)) return;
  if (const absl::Status status = call.params.status(); !status.ok()) return call.fail(status);
  const auto make = [this, id](const SharedAnswers::Done& done) {
    return loop_.query([done, id](const Core* core, Instant time) {
      if (core == nullptr) return done(stopping_error());
      const auto job = core->jobs().find(id);
      if (job == core->jobs().end()) return done(MusterCalls::no_job(id));
      const Instant begun = monotonic_now();
      const auto table =
          std::make_shared<std::string>(rank_table(*core, job->second, time, wall_clock_unix_ns()));
      done(SharedAnswers::Data{
          .cost = monotonic_now() - begun,
          .text = [table]() -> absl::StatusOr<std::string> { return std::move(*table); }});
    });
  };
  tables_.get(absl::StrCat(id.value()), call.request, call.reply, make);
}

void WebApi::get_logs(Call& call) {
  v1::FollowLogsRequest request;
  request.set_job_id(number_of(call, "job"));
  if (request.job_id() == 0) return;
  request.set_rank(static_cast<int32_t>(call.params.number("rank", 0, INT32_MAX, 0)));
  request.set_attempt(static_cast<uint32_t>(call.params.number("attempt", 0, UINT32_MAX, 0)));
  const int64_t offset = call.params.number("offset", 0, kExactMax, 0);
  const int64_t limit = call.params.number("limit", 1, kLogBytesMax, kLogBytes);
  const int64_t tail = call.params.number("tail", 1, kLogBytesMax, 0);
  const bool has_both = call.params.has("offset") && call.params.has("tail");
  if (const absl::Status status = call.params.status(); !status.ok()) return call.fail(status);
  if (has_both)
    return call.fail(absl::InvalidArgumentError("tail and offset exclude each other: give one"));
  const auto scope = logs_.scope(JobId(request.job_id()));
  if (const absl::Status status = check_web_log_request(call.caller.identity, request, scope);
      !status.ok())
    return call.fail(status);
  reply_from(pools_.files, call.reply,
             [&logs = logs_, request, scope = *scope, offset, limit, tail,
              gzip = takes_gzip(call.request)] {
               const auto part = part_of_log(logs, request, scope, offset, limit, tail);
               return part.ok() ? json_response(*part, gzip) : error_response(part.status());
             });
}

void WebApi::follow_logs(Call& call) {
  v1::FollowLogsRequest request;
  request.set_job_id(number_of(call, "job"));
  if (request.job_id() == 0) return;
  request.set_rank(static_cast<int32_t>(call.params.number("rank", -1, INT32_MAX, -1)));
  request.set_attempt(static_cast<uint32_t>(call.params.number("attempt", 0, UINT32_MAX, 0)));
  request.set_follow(call.params.flag("follow", true));
  int64_t tail = call.params.number("tail", 0, kLogBytesMax, kLogBytes);
  if (const absl::Status status = call.params.status(); !status.ok()) return call.fail(status);
  const auto scope = logs_.scope(JobId(request.job_id()));
  if (const absl::Status status = check_web_log_request(call.caller.identity, request, scope);
      !status.ok())
    return call.fail(status);
  // The default is for all ranks together.
  if (!call.params.has("tail") && request.rank() < 0 && scope->ranks > 1)
    tail = std::max<int64_t>(tail / scope->ranks, 256);
  reply_events(call, [&logs = logs_, &files = pools_.files, request, tail,
                      last = std::string(call.request.header("last-event-id"))](
                         std::shared_ptr<daemon::HttpSink> sink, std::shared_ptr<void> ticket) {
    return open_log_events(logs, files, request, static_cast<uint64_t>(tail), last, std::move(sink),
                           std::move(ticket));
  });
}

}  // namespace muster::coordinator
