#include "coordinator/shell/web/shared_answers.h"

#include <algorithm>
#include <functional>
#include <optional>
#include <utility>

#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>

#include "common/text/absl_view.h"
#include "coordinator/shell/web/gzip.h"
#include "coordinator/shell/web/web_reply.h"

namespace muster::coordinator {
namespace {

// An older answer is not shown to a viewer.
constexpr Duration kAgeMax = std::chrono::seconds(20);
// The unpaid time of answers counts at most this much, so that a single expensive one does not stop
// the others for minutes.
constexpr Duration kDebtMax = std::chrono::seconds(20);
constexpr Duration kDebtRefused = std::chrono::seconds(5);
// Viewers repeat their requests at least this often.
constexpr Duration kUsedWithin = std::chrono::seconds(5);
constexpr Duration kIdleMax = std::chrono::minutes(1);
// As many as the server has connections.
constexpr size_t kWaitingMax = 512;

absl::Status too_busy() {
  return absl::ResourceExhaustedError(
      "answers of this kind already take their share of the coordinator's time; try again");
}

}  // namespace

void SharedAnswers::get(const std::string& key, const daemon::HttpRequest& request,
                        const daemon::HttpReply& reply, Make make) {
  const Instant now = monotonic_now();
  Waiter waiter{.takes_gzip = takes_gzip(request),
                .known_etags = std::string(request.header("if-none-match")),
                .reply = reply};
  std::optional<daemon::HttpResponse> response;
  {
    const std::lock_guard lock(mutex_);
    Answer& answer = answers_[key];
    answer.used = now;
    const bool is_stored = answer.plain != nullptr && answer.made >= expired_at_ &&
                           now - answer.made < std::max(kAgeMax, options_.every);
    const bool is_refused =
        !answer.is_due && options_.refuses_debtors && paid_at_ - now > kDebtRefused;
    if (is_stored && !may_refresh_locked(key, answer, now)) {
      response = response_locked(answer, waiter);
    } else if (is_refused || waiting_ >= kWaitingMax) {
      response = error_response(too_busy(), std::max<Duration>(paid_at_ - now, {}));
    } else {
      answer.waiting.push_back(std::move(waiter));
      ++waiting_;
      if (!std::exchange(answer.is_due, true)) {
        answer.make = std::move(make);
        line_.push_back(key);
      }
    }
    remove_idle_locked();
  }
  if (response) return reply(*std::move(response));
  begin_next();
}

void SharedAnswers::expire() {
  const std::lock_guard lock(mutex_);
  expired_at_ = monotonic_now();
}

// Returns whether the stored answer is made again for a viewer: it is old, time has been paid, and
// no other answer that viewers request is older.
bool SharedAnswers::may_refresh_locked(const std::string& key, const Answer& answer,
                                       Instant now) const {
  if (answer.is_due || now - answer.made < options_.every) return false;
  if (now < paid_at_ || being_made_ >= options_.at_once) return false;
  return std::ranges::none_of(answers_, [&](const auto& other) {
    return other.first != key && other.second.plain != nullptr && !other.second.is_due &&
           other.second.made < answer.made && now - other.second.used < kUsedWithin;
  });
}

daemon::HttpResponse SharedAnswers::response_locked(const Answer& answer,
                                                    const Waiter& waiter) const {
  daemon::HttpResponse response{.content_type = options_.content_type};
  if (options_.has_etags) {
    response.headers = {{"ETag", answer.etag}, {"Cache-Control", "no-cache"}};
    if (absl::StrContains(waiter.known_etags, answer.etag)) {
      response.status = 304;
      return response;
    }
  }
  response.headers.emplace_back("Vary", "Accept-Encoding");
  const bool is_compressed = waiter.takes_gzip && answer.gzip != nullptr;
  if (is_compressed) response.headers.emplace_back("Content-Encoding", "gzip");
  response.shared_body = is_compressed ? answer.gzip : answer.plain;
  return response;
}

void SharedAnswers::begin_next() {
  while (true) {
    std::string key;
    Make make;
    {
      const std::lock_guard lock(mutex_);
      if (line_.empty() || being_made_ >= options_.at_once) return;
      key = std::move(line_.front());
      line_.pop_front();
      Answer& answer = answers_[key];
      make = std::exchange(answer.make, nullptr);
      answer.begun = monotonic_now();
      ++being_made_;
    }
    const absl::Status status =
        make([this, key](absl::StatusOr<Data> data) { take(key, std::move(data)); });
    if (!status.ok()) finish(key, status, {});
  }
}

// Makes the text on the pool.
void SharedAnswers::take(const std::string& key, absl::StatusOr<Data> data) {
  if (!data.ok()) return finish(key, data.status(), {});
  const bool is_posted = texts_.post([this, key, data = *data] {
    const Instant begun = monotonic_now();
    absl::StatusOr<std::string> text = data.text();
    finish(key, std::move(text), data.cost + (monotonic_now() - begun));
  });
  if (!is_posted) finish(key, too_busy(), {});
}

void SharedAnswers::finish(const std::string& key, absl::StatusOr<std::string> text,
                           Duration cost) {
  const Instant begun = monotonic_now();
  std::shared_ptr<const std::string> plain, gzip;
  std::string etag;
  if (text.ok()) {
    etag = absl::StrCat("\"", absl::Hex(std::hash<std::string>()(*text)), "\"");
    if (text->size() >= kGzipBytesMin)
      gzip = std::make_shared<const std::string>(gzipped(*text, GzipLevel::kFastest));
    plain = std::make_shared<const std::string>(*std::move(text));
  }
  std::vector<std::pair<daemon::HttpReply, daemon::HttpResponse>> replies;
  {
    const std::lock_guard lock(mutex_);
    const Instant now = monotonic_now();
    --being_made_;
    cost += now - begun;
    paid_at_ = std::min(std::max(paid_at_, now) + options_.cost_share * cost, now + kDebtMax);
    Answer& answer = answers_[key];
    answer.is_due = false;
    if (plain != nullptr) {
      answer.etag = std::move(etag);
      answer.plain = std::move(plain);
      answer.gzip = std::move(gzip);
      answer.made = answer.begun;
    }
    for (Waiter& waiter : answer.waiting) {
      replies.emplace_back(std::move(waiter.reply), text.ok() ? response_locked(answer, waiter)
                                                              : error_response(text.status()));
    }
    waiting_ -= answer.waiting.size();
    answer.waiting.clear();
    if (!text.ok()) answers_.erase(key);
    remove_idle_locked();
  }
  for (auto& [reply, response] : replies) reply(std::move(response));
  begin_next();
}

// Removes answers without recent requests and, beyond the limit, those whose last request is the
// longest ago.
void SharedAnswers::remove_idle_locked() {
  const auto is_idle = [](const Answer& answer) { return !answer.is_due; };
  const Instant now = monotonic_now();
  std::erase_if(answers_, [&](const auto& entry) {
    const Answer& answer = entry.second;
    return is_idle(answer) && (answer.plain == nullptr || now - answer.used > kIdleMax);
  });
  while (answers_.size() > options_.stored_max) {
    auto oldest = answers_.end();
    for (auto at = answers_.begin(); at != answers_.end(); ++at)
      if (is_idle(at->second) &&
          (oldest == answers_.end() || at->second.used < oldest->second.used))
        oldest = at;
    if (oldest == answers_.end()) return;
    answers_.erase(oldest);
  }
}

}  // namespace muster::coordinator
