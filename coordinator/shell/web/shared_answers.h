// Answers that several viewers request again and again, such as tables of ranks and lists of nodes.
//
// An answer is made once for all requests within its interval. All answers together take at most a
// share of a CPU's time, the stalest one first: until the time of the previous answers is paid,
// viewers receive the newest answer that there is. The failure of an answer reaches all viewers
// that wait for it. Answers without requests are removed. Thread-safe.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <absl/status/statusor.h>

#include "common/time/time.h"
#include "daemon/http_message.h"
#include "daemon/work_pool.h"

namespace muster::coordinator {

struct SharedAnswersOptions {
  const char* content_type = "";
  // Whether browsers may store an answer, and revalidate it.
  bool has_etags = false;
  Duration every{};       // the least time between two answers to the same request
  int cost_share = 1;     // all answers take at most 1/cost_share of a CPU's time
  size_t at_once = 1;     // the maximum number of answers that are made at the same time
  size_t stored_max = 1;  // the maximum number of stored answers without waiting viewers
  // Whether requests without a stored answer are refused while much time is unpaid.
  bool refuses_debtors = false;
};

class SharedAnswers {
 public:
  // The data of an answer, of which `text` makes the text on a thread of the pool.
  struct Data {
    Duration cost{};  // the time to collect the data
    std::function<absl::StatusOr<std::string>()> text;
  };
  using Done = std::function<void(absl::StatusOr<Data> data)>;
  // Collects the data: calls `done` once, on any thread, or returns an error and does not call it.
  using Make = std::function<absl::Status(Done done)>;

  // Requires that `texts` outlives the object, and that this object outlives all calls of `done`
  // and the pool's tasks.
  SharedAnswers(daemon::WorkPool& texts, SharedAnswersOptions options)
      : texts_(texts), options_(options) {}

  // Answers the request, whose answer is that of all requests with the same `key`. `make` must not
  // use the request.
  void get(const std::string& key, const daemon::HttpRequest& request,
           const daemon::HttpReply& reply, Make make);
  // Makes the answers again for the next requests.
  void expire();

 private:
  struct Waiter {
    bool takes_gzip = false;
    std::string known_etags;
    daemon::HttpReply reply;
  };
  struct Answer {
    std::shared_ptr<const std::string> plain, gzip;  // null: there is none
    std::string etag;
    Instant begun{};  // when the newest one was begun
    Instant made{};   // when the stored one was begun
    Instant used{};
    bool is_due = false;  // it is being made, or in the line
    Make make;
    std::vector<Waiter> waiting;
  };

  bool may_refresh_locked(const std::string& key, const Answer& answer, Instant now) const;
  daemon::HttpResponse response_locked(const Answer& answer, const Waiter& waiter) const;
  void begin_next();
  void take(const std::string& key, absl::StatusOr<Data> data);
  void finish(const std::string& key, absl::StatusOr<std::string> text, Duration cost);
  void remove_idle_locked();

  daemon::WorkPool& texts_;
  const SharedAnswersOptions options_;
  std::mutex mutex_;
  std::map<std::string, Answer> answers_;
  std::deque<std::string> line_;  // the answers to make, in order
  size_t being_made_ = 0;
  size_t waiting_ = 0;  // viewers
  Instant paid_at_{};   // when the time of all answers so far has been paid
  Instant expired_at_{};
};

}  // namespace muster::coordinator
