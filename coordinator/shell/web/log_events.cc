#include "coordinator/shell/web/log_events.h"

#include <mutex>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include <absl/strings/numbers.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_split.h>

#include "common/text/absl_view.h"
#include "coordinator/shell/logs/log_cursor.h"
#include "coordinator/shell/web/guarded_events.h"

namespace muster::coordinator {
namespace {

// A follower's calls only note what is new. A task of the pool, at most one at a time, reads files.
class LogEvents final : public daemon::HttpSource,
                        public LogFollower,
                        public std::enable_shared_from_this<LogEvents> {
 public:
  LogEvents(LogStore& logs, daemon::WorkPool& files, v1::FollowLogsRequest request, LogStart start,
            std::shared_ptr<daemon::HttpSink> sink, std::shared_ptr<void> ticket)
      : logs_(logs),
        files_(files),
        ticket_(std::move(ticket)),
        rank_(request.rank()),
        cursor_(logs, std::move(request), start),
        sink_(std::move(sink)) {}

  void begin() {
    note([](News& news) { news.begins = true; });
  }
  void on_output(Attempt attempt, Rank rank) override {
    if (rank_ >= 0 && rank != Rank(rank_)) return;
    note([&](News& news) { news.output.emplace(attempt, rank); });
  }
  void on_scope(const LogScope& scope) override {
    note([&](News& news) { news.scope = scope; });
  }
  void on_sent() override {
    note([](News& news) { news.is_sent = true; });
  }
  // Continues after the pool had no room.
  void on_ping() override {
    const std::lock_guard lock(mutex_);
    if (news_.any()) schedule_locked();
  }

 private:
  struct News {
    bool begins = false;
    bool is_sent = false;
    std::set<std::pair<Attempt, Rank>> output;
    std::optional<LogScope> scope;

    bool any() const { return begins || is_sent || !output.empty() || scope; }
  };

  template <class F>
  void note(const F& add) {
    const std::lock_guard lock(mutex_);
    add(news_);
    schedule_locked();
  }
  void schedule_locked() {
    if (is_scheduled_) return;
    // A task that waits for a slow disk does not keep the place of a viewer that has left.
    is_scheduled_ = files_.post([weak = weak_from_this()] {
      if (const auto self = weak.lock()) self->work();
    });
  }

  void work() {
    News news;
    {
      const std::lock_guard lock(mutex_);
      news = std::exchange(news_, {});
    }
    if (!has_ended_) take(news);
    const std::lock_guard lock(mutex_);
    is_scheduled_ = false;
    if (news_.any()) schedule_locked();
  }
  void take(const News& news) {
    if (news.begins) {
      const JobId job(cursor_.request().job_id());
      const auto scope =
          cursor_.request().follow() ? logs_.follow(job, weak_from_this()) : logs_.scope(job);
      if (const absl::Status status = cursor_.begin(scope); !status.ok())
        return end({{"message", std::string(status.message())}});
    }
    if (news.scope) cursor_.on_scope(*news.scope);
    for (const auto& [attempt, rank] : news.output) cursor_.on_output(attempt, rank);
    if (news.is_sent) is_sending_ = false;
    pump();
  }
  void pump() {
    if (is_sending_) return;
    const auto chunk = cursor_.next();
    if (!chunk.ok()) return end({{"message", std::string(chunk.status().message())}});
    if (*chunk) {
      is_sending_ = true;
      sink_->send(event_text("log", log_chunk_to_json(**chunk), id_of(**chunk)));
    } else if (!cursor_.more_may_come()) {
      end(nlohmann::json::object());
    }
  }

  // The offset of the output after the chunk, by which one rank's output continues.
  std::string id_of(const v1::LogChunk& chunk) const {
    if (rank_ < 0) return "";
    return absl::StrCat(chunk.attempt(), "-", chunk.offset() + chunk.data().size());
  }

  void end(const nlohmann::json& data) {
    has_ended_ = true;
    sink_->send(event_text("end", data));
    sink_->end();
  }

  LogStore& logs_;
  daemon::WorkPool& files_;
  const std::shared_ptr<void> ticket_;
  const int32_t rank_;  // -1: all ranks

  // Used by the task only.
  LogCursor cursor_;
  const std::shared_ptr<daemon::HttpSink> sink_;
  bool is_sending_ = false;
  bool has_ended_ = false;

  std::mutex mutex_;
  News news_;
  bool is_scheduled_ = false;
};

}  // namespace

nlohmann::json log_chunk_to_json(const v1::LogChunk& chunk) {
  return {{"attempt", chunk.attempt()},   {"rank", chunk.rank()},       {"offset", chunk.offset()},
          {"bytes", chunk.data().size()}, {"unix_ns", chunk.unix_ns()}, {"text", chunk.data()}};
}

absl::Status check_web_log_request(const Caller& caller, const v1::FollowLogsRequest& request,
                                   const std::optional<LogScope>& scope) {
  if (absl::Status status = check_log_request(request, scope); !status.ok()) return status;
  const JobId job(request.job_id());
  if (absl::Status status = check_access(caller, scope->owner, job, "read its output");
      !status.ok())
    return status;
  if (request.rank() >= 0 || scope->ranks <= kMergedRanksMax) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "rank is -1: job ", request.job_id(), " has ", scope->ranks, " ranks, and the page merges ",
      kMergedRanksMax, "; choose one rank, or use muster logs ", request.job_id(), " --rank all"));
}

std::shared_ptr<daemon::HttpSource> open_log_events(LogStore& logs, daemon::WorkPool& files,
                                                    v1::FollowLogsRequest request,
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
  auto events = std::make_shared<LogEvents>(logs, files, std::move(request), start, std::move(sink),
                                            std::move(ticket));
  events->begin();
  return events;
}

}  // namespace muster::coordinator
