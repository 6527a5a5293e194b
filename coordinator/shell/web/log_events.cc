#include "coordinator/shell/web/log_events.h"

#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include <absl/strings/numbers.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_split.h>

#include "common/text/absl_view.h"
#include "coordinator/shell/logs/log_cursor.h"
#include "coordinator/shell/web/web_reply.h"

namespace muster::coordinator {
namespace {

class LogEvents final : public daemon::HttpSource,
                        public LogFollower,
                        public std::enable_shared_from_this<LogEvents> {
 public:
  LogEvents(LogStore& logs, v1::FollowLogsRequest request, LogStart start,
            std::shared_ptr<daemon::HttpSink> sink, std::shared_ptr<void> ticket)
      : logs_(logs),
        ticket_(std::move(ticket)),
        cursor_(logs, std::move(request), start),
        sink_(std::move(sink)) {}

  void begin() {
    const JobId job(cursor_.request().job_id());
    const std::lock_guard lock(mutex_);
    const auto scope =
        cursor_.request().follow() ? logs_.follow(job, weak_from_this()) : logs_.scope(job);
    if (const absl::Status status = cursor_.begin(scope); !status.ok())
      return end_locked({{"message", std::string(status.message())}});
    pump_locked();
  }

  void on_output(Attempt attempt, Rank rank) override {
    const std::lock_guard lock(mutex_);
    cursor_.on_output(attempt, rank);
    pump_locked();
  }
  void on_scope(const LogScope& scope) override {
    const std::lock_guard lock(mutex_);
    cursor_.on_scope(scope);
    pump_locked();
  }
  void on_sent() override {
    const std::lock_guard lock(mutex_);
    is_sending_ = false;
    pump_locked();
  }

 private:
  void pump_locked() {
    if (is_sending_ || has_ended_) return;
    const auto chunk = cursor_.next();
    if (!chunk.ok()) return end_locked({{"message", std::string(chunk.status().message())}});
    if (*chunk) {
      is_sending_ = true;
      send_locked("log", log_chunk_to_json(**chunk), id_of(**chunk));
    } else if (!cursor_.more_may_come()) {
      end_locked(nlohmann::json::object());
    }
  }

  // The offset of the output after the chunk, by which one rank's output continues.
  std::string id_of(const v1::LogChunk& chunk) const {
    if (cursor_.request().rank() < 0) return "";
    return absl::StrCat(chunk.attempt(), "-", chunk.offset() + chunk.data().size());
  }

  void send_locked(std::string_view event, const nlohmann::json& data, const std::string& id) {
    sink_->send(std::make_shared<const std::string>(
        absl::StrCat(id.empty() ? "" : absl::StrCat("id: ", id, "\n"), "event: ", av(event),
                     "\ndata: ", json_text(data), "\n\n")));
  }
  void end_locked(const nlohmann::json& data) {
    has_ended_ = true;
    send_locked("end", data, "");
    sink_->end();
  }

  LogStore& logs_;
  const std::shared_ptr<void> ticket_;
  std::mutex mutex_;
  LogCursor cursor_;
  const std::shared_ptr<daemon::HttpSink> sink_;
  bool is_sending_ = false;
  bool has_ended_ = false;
};

}  // namespace

nlohmann::json log_chunk_to_json(const v1::LogChunk& chunk) {
  return {{"attempt", chunk.attempt()},   {"rank", chunk.rank()},       {"offset", chunk.offset()},
          {"bytes", chunk.data().size()}, {"unix_ns", chunk.unix_ns()}, {"text", chunk.data()}};
}

absl::Status check_web_log_request(const v1::FollowLogsRequest& request,
                                   const std::optional<LogScope>& scope) {
  if (absl::Status status = check_log_request(request, scope); !status.ok()) return status;
  if (request.rank() >= 0 || scope->ranks <= kMergedRanksMax) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "rank is -1: job ", request.job_id(), " has ", scope->ranks, " ranks, and the page merges ",
      kMergedRanksMax, "; choose one rank, or use muster logs ", request.job_id(), " --rank all"));
}

std::shared_ptr<daemon::HttpSource> open_log_events(LogStore& logs, v1::FollowLogsRequest request,
                                                    uint64_t tail_bytes,
                                                    std::string_view last_event_id,
                                                    std::shared_ptr<daemon::HttpSink> sink,
                                                    std::shared_ptr<void> ticket) {
  LogStart start{.tail_bytes = tail_bytes};
  const std::vector<std::string> parts = absl::StrSplit(av(last_event_id), '-');
  uint32_t attempt = 0;
  uint64_t offset = 0;
  const bool continues = request.rank() >= 0 && parts.size() == 2 &&
                         absl::SimpleAtoi(parts[0], &attempt) &&
                         absl::SimpleAtoi(parts[1], &offset) &&
                         (request.attempt() == 0 || request.attempt() == attempt);
  if (continues) start.at = {Attempt(attempt), offset};
  auto events = std::make_shared<LogEvents>(logs, std::move(request), start, std::move(sink),
                                            std::move(ticket));
  events->begin();
  return events;
}

}  // namespace muster::coordinator
