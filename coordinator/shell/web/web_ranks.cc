// A job's ranks: their places, their figures and their output.
#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>

#include "common/text/absl_view.h"
#include "coordinator/shell/web/gzip.h"
#include "coordinator/shell/web/log_events.h"
#include "coordinator/shell/web/rank_table.h"
#include "coordinator/shell/web/web_api.h"

namespace muster::coordinator {
namespace {

// A table is made at most so often, whatever the number of viewers, and takes at most
// 1/kTableCostShare of the time.
constexpr Duration kTableEvery = std::chrono::milliseconds(900);
constexpr Duration kTableEveryMax = std::chrono::seconds(10);
constexpr int kTableCostShare = 40;
constexpr Duration kTableBudget = std::chrono::seconds(5);
constexpr size_t kTablesMax = 8;

constexpr int64_t kLogBytesMax = 1 << 20;
constexpr int64_t kLogBytes = 64 << 10;

absl::Status stopping_error() { return absl::UnavailableError("the coordinator is stopping"); }

}  // namespace

void WebApi::get_placement(Call& call) {
  const JobId id(number_of(call, "job"));
  if (id == JobId(0)) return;
  if (const absl::Status status = call.params.status(); !status.ok()) return call.fail(status);
  refuse_unless_ok(call, loop_.query([reply = call.reply, id](const Core* core, Instant) {
    if (core == nullptr) return reply(error_response(stopping_error()));
    const auto job = core->jobs().find(id);
    if (job == core->jobs().end()) return reply(error_response(MusterCalls::no_job(id)));
    reply({.complete = [map = std::make_shared<RankMap>(rank_map(*core, job->second))](
                           daemon::HttpResponse& response) {
      response = json_response(rank_map_to_json(*map));
    }});
  }));
}

daemon::HttpResponse WebApi::table_response(const Table& table,
                                            const daemon::HttpRequest& request) {
  daemon::HttpResponse response{.content_type = "application/octet-stream"};
  response.headers = {
      {"ETag", table.etag}, {"Vary", "Accept-Encoding"}, {"Cache-Control", "no-cache"}};
  if (absl::StrContains(av(request.header("if-none-match")), table.etag)) {
    response.status = 304;
  } else if (absl::StrContains(av(request.header("accept-encoding")), "gzip")) {
    response.headers.emplace_back("Content-Encoding", "gzip");
    response.shared_body = table.gzip;
  } else {
    response.shared_body = table.plain;
  }
  return response;
}

// Stores the table and sends it to all viewers that wait. Called on the server's thread.
void WebApi::take_table(JobId id, std::string plain, int64_t unix_ns, Duration cost) {
  Table& table = tables_[id];
  const Instant begun = monotonic_now();
  table.gzip = std::make_shared<const std::string>(gzipped(plain, GzipLevel::kFastest));
  table.plain = std::make_shared<const std::string>(std::move(plain));
  table.made = monotonic_now();
  table.cost = cost + (table.made - begun);
  table.etag = absl::StrCat("\"", unix_ns, "\"");
  table.begun.reset();
  for (const auto& [request, reply] : std::exchange(table.waiting, {}))
    reply(table_response(table, request));
  if (tables_.size() <= kTablesMax) return;
  tables_.erase(std::min_element(tables_.begin(), tables_.end(),
                                 [](auto& a, auto& b) { return a.second.made < b.second.made; }));
}

void WebApi::get_ranks(Call& call) {
  const JobId id(number_of(call, "job"));
  if (id == JobId(0)) return;
  if (const absl::Status status = call.params.status(); !status.ok()) return call.fail(status);
  const Instant now = monotonic_now();
  const auto known = tables_.find(id);
  if (known != tables_.end()) {
    Table& table = known->second;
    const Duration every = std::clamp(kTableCostShare * table.cost, kTableEvery, kTableEveryMax);
    if (table.plain != nullptr && now - table.made < every)
      return call.reply(table_response(table, call.request));
    // A viewer that has left does not complete the table that it began.
    if (table.begun && now - *table.begun < kTableBudget) {
      table.waiting.emplace_back(call.request, call.reply);
      return;
    }
    table.begun = now;
  }
  // The server outlives its responses, and this object the server.
  refuse_unless_ok(call, loop_.query([this, reply = call.reply, request = call.request, id](
                                         const Core* core, Instant time) {
    if (core == nullptr) return reply(error_response(stopping_error()));
    const auto job = core->jobs().find(id);
    if (job == core->jobs().end()) return reply(error_response(MusterCalls::no_job(id)));
    const int64_t unix_ns = wall_clock_unix_ns();
    const Instant begun = monotonic_now();
    const auto plain = std::make_shared<std::string>(rank_table(*core, job->second, time, unix_ns));
    const Duration cost = monotonic_now() - begun;
    reply({.complete = [=, this](daemon::HttpResponse& response) {
      take_table(id, std::move(*plain), unix_ns, cost);
      response = table_response(tables_[id], request);
    }});
  }));
}

void WebApi::get_logs(Call& call) {
  v1::FollowLogsRequest request;
  request.set_job_id(number_of(call, "job"));
  if (request.job_id() == 0) return;
  request.set_rank(static_cast<int32_t>(call.params.number("rank", 0, INT32_MAX, 0)));
  request.set_attempt(static_cast<uint32_t>(call.params.number("attempt", 0, UINT32_MAX, 0)));
  int64_t offset = call.params.number("offset", 0, kExactMax, 0);
  const int64_t limit = call.params.number("limit", 1, kLogBytesMax, kLogBytes);
  const int64_t tail = call.params.number("tail", 1, kLogBytesMax, 0);
  const bool has_both = call.params.has("offset") && call.params.has("tail");
  if (const absl::Status status = call.params.status(); !status.ok()) return call.fail(status);
  if (has_both)
    return call.fail(absl::InvalidArgumentError("tail and offset exclude each other: give one"));
  const JobId job(request.job_id());
  const auto scope = logs_.scope(job);
  if (const absl::Status status = check_web_log_request(request, scope); !status.ok())
    return call.fail(status);
  const Attempt attempt =
      request.attempt() == 0 ? scope->newest_attempt : Attempt(request.attempt());
  const Rank rank(request.rank());
  const auto size = static_cast<int64_t>(logs_.size(job, attempt, rank));
  if (tail > 0) offset = std::max<int64_t>(size - tail, 0);
  const auto data = logs_.read(job, attempt, rank, static_cast<uint64_t>(offset),
                               static_cast<size_t>(tail > 0 ? tail : limit));
  if (!data.ok()) return call.fail(data.status());
  nlohmann::json out = {{"chunks", nlohmann::json::array()},
                        {"next_offset", offset + std::ssize(*data)},
                        {"size", size},
                        {"ended", scope->ended || attempt < scope->newest_attempt}};
  if (!data->empty()) {
    v1::LogChunk chunk;
    chunk.set_attempt(attempt.value());
    chunk.set_rank(rank.value());
    chunk.set_offset(static_cast<uint64_t>(offset));
    const auto times = logs_.times(job, attempt, rank, chunk.offset(), 1);
    if (!times.empty()) chunk.set_unix_ns(times.front().unix_ns);
    chunk.set_data(*data);
    out["chunks"].push_back(log_chunk_to_json(chunk));
  }
  call.reply(json_response(out));
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
  if (const absl::Status status = check_web_log_request(request, scope); !status.ok())
    return call.fail(status);
  // The default is for all ranks together.
  if (!call.params.has("tail") && request.rank() < 0 && scope->ranks > 1)
    tail = std::max<int64_t>(tail / scope->ranks, 256);
  auto ticket = hub_.take_ticket();
  if (ticket == nullptr)
    return call.fail(absl::ResourceExhaustedError(absl::StrCat(
        kViewersMax,
        " viewers are connected, which is the limit: close some, or try again later")));
  call.reply({.content_type = "text/event-stream",
              .open = [&logs = logs_, request, tail, ticket,
                       last = std::string(call.request.header("last-event-id"))](auto sink) {
                return open_log_events(logs, request, static_cast<uint64_t>(tail), last,
                                       std::move(sink), ticket);
              }});
}

}  // namespace muster::coordinator
