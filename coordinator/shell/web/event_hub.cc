#include "coordinator/shell/web/event_hub.h"

#include <algorithm>
#include <future>
#include <utility>

#include <absl/strings/numbers.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_split.h>

#include "coordinator/shell/web/fleet_json.h"
#include "coordinator/shell/web/guarded_events.h"
#include "daemon/json/job_json.h"

namespace muster::coordinator {
namespace {

using nlohmann::json;

// The time between two samples: with viewers or a small fleet, and otherwise. Samples of a large
// fleet follow each other more slowly, so that they and their messages take 1/kCostShare of a CPU's
// time.
constexpr Duration kSampleEvery = std::chrono::seconds(1);
constexpr int kCostShare = 100;
constexpr Duration kPauseMax = std::chrono::seconds(10);
constexpr Duration kSampleUnseenEvery = std::chrono::seconds(5);
constexpr int64_t kSmallFleet = 4'096;  // ranks
// The time between two counts of nodes and accounts.
constexpr Duration kTotalsEvery = std::chrono::seconds(2);
// The time within which the loop must answer.
constexpr auto kLoopBudget = std::chrono::seconds(10);
// The bounds of the messages that are stored for viewers who come back.
constexpr size_t kRecentMax = 256;
constexpr size_t kRecentBytesMax = 8 << 20;

class ViewerSource final : public daemon::HttpSource {
 public:
  ViewerSource(std::function<void()> remove, std::shared_ptr<void> ticket)
      : remove_(std::move(remove)), ticket_(std::move(ticket)) {}
  ~ViewerSource() override { remove_(); }

 private:
  const std::function<void()> remove_;
  const std::shared_ptr<void> ticket_;
};

}  // namespace

void EventHub::start() {
  thread_ = std::thread([this] { run(); });
}

EventHub::~EventHub() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void EventHub::get_fleet(FleetFn done) {
  const std::lock_guard lock(mutex_);
  waiting_.push_back(std::move(done));
  changed_.notify_all();
}

std::vector<MetricPoint> EventHub::metrics(JobId job, int64_t unix_ns) const {
  const std::lock_guard lock(mutex_);
  const auto found = metrics_.find(job);
  return found == metrics_.end() ? std::vector<MetricPoint>() : found->second.since(unix_ns);
}

json EventHub::fleet_history() const {
  const std::lock_guard lock(mutex_);
  return history_.to_json();
}

std::shared_ptr<void> EventHub::take_ticket() {
  if (++*tickets_ > kViewersMax) {
    --*tickets_;
    return nullptr;
  }
  return {tickets_.get(), [tickets = tickets_](void*) { --*tickets; }};
}

std::shared_ptr<daemon::HttpSource> EventHub::open(std::shared_ptr<daemon::HttpSink> sink,
                                                   std::shared_ptr<void> ticket,
                                                   const std::string& last_event_id, JobId job) {
  static const auto kHello = std::make_shared<const std::string>("retry: 2000\n\n");
  sink->send(kHello);
  const std::lock_guard lock(mutex_);
  const uint64_t number = next_viewer_++;
  viewers_[number] = {.sink = std::move(sink), .last_event_id = last_event_id, .job = job};
  sent_jobs_.erase(job);
  changed_.notify_all();
  return std::make_shared<ViewerSource>([this, number] { remove(number); }, std::move(ticket));
}

void EventHub::remove(uint64_t viewer) {
  const std::lock_guard lock(mutex_);
  viewers_.erase(viewer);
}

bool EventHub::is_asked_locked() const {
  return !waiting_.empty() || std::any_of(viewers_.begin(), viewers_.end(),
                                          [](const auto& viewer) { return viewer.second.is_new; });
}

Duration EventHub::pause_locked() const {
  const bool is_seen = !viewers_.empty() || ranks_ <= kSmallFleet;
  const Duration every = std::max(is_seen ? kSampleEvery : kSampleUnseenEvery, sample_pause_);
  return std::max(sampled_at_ + every - monotonic_now(), Duration::zero());
}

// Without a new sample, requests receive the newest one.
bool EventHub::is_due_locked(Instant now) const {
  if (fleet_.is_null() || now - sampled_at_ >= std::max(kSampleEvery, sample_pause_)) return true;
  return !waiting_.empty() && now - totals_at_ >= std::max(kTotalsEvery, totals_pause_);
}

void EventHub::run() {
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    changed_.wait_for(lock, pause_locked(), [this] { return stopping_ || is_asked_locked(); });
    if (stopping_) break;
    absl::Status status;
    if (is_due_locked(monotonic_now())) {
      lock.unlock();
      const absl::StatusOr<FleetSample> sample = take_sample();
      lock.lock();
      sampled_at_ = monotonic_now();
      status = sample.status();
      if (sample.ok()) {
        const Instant begun = monotonic_now();
        store_locked(*sample);
        publish_fleet_locked(*sample);
        publish_jobs_locked(*sample);
        Duration& pause = sample->has_totals ? totals_pause_ : sample_pause_;
        pause = std::min(kCostShare * (sample->cost + (monotonic_now() - begun)), kPauseMax);
      }
    }
    if (!fleet_.is_null()) {
      for (auto& [number, viewer] : viewers_)
        if (viewer.is_new) welcome_locked(viewer);
    }
    const std::vector<FleetFn> waiting = std::exchange(waiting_, {});
    const absl::StatusOr<json> fleet = status.ok() ? absl::StatusOr<json>(fleet_) : status;
    lock.unlock();
    for (const FleetFn& done : waiting) done(fleet);
    lock.lock();
    // The next query of a loop that does not answer follows after a pause.
    if (fleet_.is_null() && !stopping_) changed_.wait_for(lock, kSampleEvery);
  }
  for (const FleetFn& done : std::exchange(waiting_, {}))
    done(absl::UnavailableError("the coordinator is stopping"));
}

absl::StatusOr<FleetSample> EventHub::take_sample() {
  const Instant now = monotonic_now();
  if (const absl::Status status = loop_.admit_read(now); !status.ok()) return status;
  std::set<JobId> watched;
  bool is_seen = false;
  bool is_point_due = false;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [number, viewer] : viewers_)
      if (viewer.job != JobId(0)) watched.insert(viewer.job);
    is_seen = !viewers_.empty() || !waiting_.empty();
    is_point_due = history_.is_due(now);
  }
  const bool with_totals = totals_at_ == Instant{} || is_point_due ||
                           (is_seen && now - totals_at_ >= std::max(kTotalsEvery, totals_pause_));
  if (with_totals) totals_at_ = now;
  const auto answer = std::make_shared<std::promise<absl::StatusOr<FleetSample>>>();
  std::future<absl::StatusOr<FleetSample>> sample = answer->get_future();
  const absl::Status status = loop_.query([=](const Core* core, Instant time) {
    if (core == nullptr)
      return answer->set_value(absl::UnavailableError("the coordinator is stopping"));
    const Instant begun = monotonic_now();
    FleetSample taken = sample_fleet(*core, time, wall_clock_unix_ns(), with_totals, watched);
    taken.cost = monotonic_now() - begun;
    answer->set_value(std::move(taken));
  });
  if (!status.ok()) return status;
  if (sample.wait_for(kLoopBudget) != std::future_status::ready)
    return absl::UnavailableError("the coordinator does not answer in time");
  return sample.get();
}

// Adds the sample to the curves, and removes those of jobs without rows.
void EventHub::store_locked(const FleetSample& sample) {
  ranks_ = sample.ranks;
  if (sample.has_totals && history_.is_due(sampled_at_)) history_.add(sample, sampled_at_);
  std::set<JobId> known;
  for (const JobRow& row : sample.rows) {
    const JobId id(row.id);
    known.insert(id);
    if (!row.has_figures || !is_live(row.state)) continue;
    if (!metrics_[id].add(row.figures)) continue;
    send_locked(id, event_text("point", point_to_json(row.figures)));
  }
  std::erase_if(metrics_, [&](const auto& job) { return !known.contains(job.first); });
}

void EventHub::publish_fleet_locked(const FleetSample& sample) {
  const json fleet = fleet_to_json(sample, fleet_);
  json delta = json::object();
  json jobs = json::array();
  json removed = json::array();
  std::map<uint64_t, JobRow> rows;
  for (const JobRow& row : sample.rows) {
    const auto before = rows_.find(row.id);
    json changes = row_to_json(before == rows_.end() ? nullptr : &before->second, row);
    if (!changes.is_null()) jobs.push_back(std::move(changes));
    rows.emplace(row.id, row);
  }
  for (const auto& [id, row] : rows_)
    if (!rows.contains(id)) removed.push_back(id);
  const bool is_first = fleet_.is_null();
  if (!is_first) {
    json changes = changed_members(fleet_, fleet);
    // The time alone is no news.
    if (changes.size() > 1) delta["fleet"] = std::move(changes);
  }
  fleet_ = fleet;
  rows_ = std::move(rows);
  if (std::exchange(has_more_jobs_, sample.has_more_jobs) != sample.has_more_jobs && !is_first)
    delta["more"] = sample.has_more_jobs;
  if (!jobs.empty()) delta["jobs"] = std::move(jobs);
  if (!removed.empty()) delta["removed"] = std::move(removed);
  if (is_first || delta.empty()) return;
  ++number_;
  snapshot_ = nullptr;
  const auto text = event_text("delta", delta, message_id(number_));
  recent_bytes_ += text->size();
  recent_.push_back({number_, text});
  while (recent_.size() > kRecentMax || recent_bytes_ > kRecentBytesMax) {
    recent_bytes_ -= recent_.front().text->size();
    recent_.pop_front();
  }
  for (const auto& [number, viewer] : viewers_)
    if (!viewer.is_new) viewer.sink->send(text);
}

void EventHub::publish_jobs_locked(const FleetSample& sample) {
  std::erase_if(sent_jobs_, [&](const auto& job) { return !sample.watched.contains(job.first); });
  for (const auto& [id, job] : sample.watched) {
    auto text = job == nullptr ? event_text("gone", {{"job", id.value()}})
                               : event_text("job", daemon::job_to_json(*job));
    auto& sent = sent_jobs_[id];
    if (sent != nullptr && *sent == *text) continue;
    sent = text;
    send_locked(id, text);
  }
}

// Sends to the viewers of the job.
void EventHub::send_locked(JobId job, const std::shared_ptr<const std::string>& text) {
  for (const auto& [number, viewer] : viewers_)
    if (viewer.job == job) viewer.sink->send(text);
}

std::string EventHub::message_id(uint64_t number) const {
  return absl::StrCat(epoch_.value(), "-", number);
}

std::shared_ptr<const std::string> EventHub::snapshot_locked() {
  if (snapshot_ != nullptr) return snapshot_;
  json jobs = json::array();
  for (const auto& [id, row] : rows_) jobs.push_back(row_to_json(nullptr, row));
  snapshot_ = event_text("snapshot",
                         {{"fleet", fleet_}, {"jobs", std::move(jobs)}, {"more", has_more_jobs_}},
                         message_id(number_));
  return snapshot_;
}

// Sends what a new viewer lacks: the messages since its last one if they are stored, otherwise
// everything.
void EventHub::welcome_locked(Viewer& viewer) {
  viewer.is_new = false;
  const std::vector<std::string> parts = absl::StrSplit(viewer.last_event_id, '-');
  uint64_t epoch = 0, number = 0;
  const bool is_known = parts.size() == 2 && absl::SimpleAtoi(parts[0], &epoch) &&
                        absl::SimpleAtoi(parts[1], &number) && epoch == epoch_.value() &&
                        number <= number_ && number_ - number <= recent_.size();
  if (!is_known) return viewer.sink->send(snapshot_locked());
  for (const Message& message : recent_)
    if (message.number > number) viewer.sink->send(message.text);
}

}  // namespace muster::coordinator
