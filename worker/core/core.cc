// The stream to the coordinator, heartbeats and reports. The ranks are in core_ranks.cc, their GPUs
// in core_gpus.cc, finished launches in core_launches.cc, node checks in core_checks.cc, dumps of
// stacks in core_stacks.cc, and the end of the worker in core_leaving.cc.
#include "worker/core/core.h"

#include <algorithm>
#include <utility>

#include <absl/strings/str_cat.h>

#include "common/job/limits.h"
#include "common/random/philox.h"
#include "common/text/absl_view.h"

namespace muster::worker {
namespace {

// Bounds of the requested interval: a shorter one floods the coordinator, a longer one lets every
// lease expire.
constexpr Duration kHeartbeatIntervalMin = std::chrono::milliseconds(20);
constexpr Duration kHeartbeatIntervalMax = std::chrono::minutes(1);
// The upper bound of the requested spread of reconnections, above that of the largest fleets.
constexpr Duration kSpreadMax = std::chrono::minutes(2);
// The upper bound of the delay of a worker without ranks that the coordinator refuses. While a
// fleet is upgraded, all workers of the earlier version are refused: 12,500 of them then request
// some 550 registrations per second. They return within this time to the earlier coordinator.
constexpr Duration kRefusedRetryMax = std::chrono::seconds(30);
// Philox stream of the jitter, so that other uses of the incarnation as a key draw other numbers.
constexpr uint64_t kJitterStream = 1;

void update_minimum(std::optional<Instant>& earliest, const std::optional<Instant>& candidate) {
  if (candidate && (!earliest || *candidate < *earliest)) earliest = candidate;
}

}  // namespace

Core::Core(CoreOptions options, Instant now) : options_(std::move(options)), retry_at_(now) {}

void Core::step(const Event& event, Instant now, ActionList& out) {
  if (left_) return;
  std::visit([&](const auto& e) { on(e, now, out); }, event);
}

std::optional<Instant> Core::next_deadline() const {
  if (left_) return std::nullopt;
  std::optional<Instant> earliest;
  for (const auto& deadline : {connect_at(), greeting_until_, heartbeat_at_, farewell_until_,
                               coordinator_deadline_, check_gone_by_, answer_by_}) {
    update_minimum(earliest, deadline);
  }
  for (const auto& [key, rank] : ranks_) update_minimum(earliest, rank.kill_at);
  for (const auto& [id, dump] : dumps_) update_minimum(earliest, dump.read_at);
  if (leaving_ && !ranks_.empty() && !farewell_until_)
    update_minimum(earliest, leave_by_ + kLeaveWithout);
  return earliest;
}

void Core::on(const Connected&, Instant now, ActionList& out) {
  if (link_ != Link::kConnecting) return;
  link_ = Link::kGreeting;
  SendRegister message{.worker = options_.name,
                       .incarnation = options_.incarnation,
                       .version = options_.version,
                       .host = options_.host,
                       .slots = options_.slots,
                       .rendezvous_address = options_.rendezvous_address,
                       .addresses = options_.addresses,
                       .program_ports = options_.program_ports,
                       .switches = options_.switches,
                       .domain = options_.domain,
                       .labels = options_.labels,
                       .gpus = options_.gpus,
                       .no_gpus_because = options_.no_gpus_because,
                       .store = store_.value_or(StoreId{}),
                       .running = {},
                       .leaving = std::nullopt};
  if (leaving_) message.leaving = grace_left(now);
  std::map<RankKey, int32_t> running;
  for (const auto& [id, report] : reports_) running[report.key] = 0;
  for (const auto& [key, rank] : ranks_) running[key] = rank.pid;
  for (const auto& [key, pid] : running) message.running.push_back({key, pid});
  out.push_back(std::move(message));
}

void Core::on(const Disconnected& event, Instant now, ActionList& out) {
  const bool was_asking = link_ == Link::kConnecting || link_ == Link::kGreeting;
  link_ = Link::kDown;
  greeting_until_.reset();
  heartbeat_at_.reset();
  answer_by_.reset();
  dumps_.clear();
  forget_checks(out);
  retry_at_.reset();
  // The coordinator may be restarting as well, and return soon.
  if (coordinator_deadline_) coordinator_deadline_ = leave_requested_at() + wait_for_coordinator();
  if (event.end == StreamEnd::kReplaced || (event.end == StreamEnd::kRefused && !store_)) {
    begin_leaving(2, absl::StrCat("the coordinator refused this worker: ", event.reason), now, out);
  } else {
    const bool is_last = event.end != StreamEnd::kElsewhere;
    retry_at_ = is_last ? now + next_retry_delay(event.end) : now;
    if (was_asking && is_last && std::exchange(connection_problem_, event.reason) != event.reason) {
      out.push_back(Note{true, absl::StrCat("cannot register and retries (ranks that continue: ",
                                            ranks_.size(), "): ", event.reason)});
    }
  }
  leave_when_done(now, out);
}

void Core::on(const Registered& event, Instant now, ActionList& out) {
  if (link_ != Link::kGreeting && link_ != Link::kRegistered) return;
  if (store_ && *store_ != event.store) return change_store(event.store, now, out);
  // A coordinator without etcd has begun with an old copy of etcd's state. Its epoch, which grows
  // with each of its starts, does not show this.
  if (is_replicated_ && !event.is_replicated && event.left_at < epoch_) {
    out.push_back(Disconnect{absl::StrCat(
        "it runs without etcd, and its state is older than that of epoch ", epoch_.value(),
        " in etcd, which this worker has seen; if etcd was given up, run muster-coordinator "
        "--leave-etcd where the last leader ran")});
    return;
  }
  if (event.is_replicated && event.epoch < epoch_) {
    out.push_back(Disconnect{absl::StrCat("its epoch is ", event.epoch.value(),
                                          ", and this worker has seen the coordinator of epoch ",
                                          epoch_.value(), ", which has deposed it")});
    return;
  }
  // A lower epoch means that the store was restored from an older copy, which may assign the same
  // numbers again.
  if (event.epoch < epoch_) {
    std::erase_if(seen_, [&](const auto& entry) {
      return std::none_of(ranks_.begin(), ranks_.end(),
                          [&](const auto& rank) { return rank.first.job == entry.first; });
    });
  }
  link_ = Link::kRegistered;
  store_ = event.store;
  epoch_ = event.epoch;
  greeting_until_.reset();
  retries_ = 0;
  connection_problem_.clear();
  set_pace(event.heartbeat_interval, event.busy_interval, event.spread);
  is_replicated_ = event.is_replicated;
  heartbeat_at_ = now;  // the new coordinator needs every figure at once
  for (auto& [key, rank] : ranks_) rank.dirty = true;
  if (leaving_)
    out.push_back(SendLeaving{grace_left(now)});  // leaving may have begun after the greeting
  send_last_figures(0, now, out);
  for (const auto& [id, report] : reports_) out.push_back(report);
  out.push_back(KeepLocalCopies{event.store, event.unfinished});
  // Their ranks are gone: the worker registers only after that.
  for (const StoreId old : std::exchange(abandoned_, {})) out.push_back(KeepLocalCopies{old, {}});
}

// Job 1 of another store is another job, so state of the earlier store is dropped. Closes the
// stream, whose registration listed that state; the stream opens again when the last rank is gone.
void Core::change_store(StoreId store, Instant now, ActionList& out) {
  out.push_back(Note{
      true,
      absl::StrCat("the coordinator has another state store than the one that this worker ran ",
                   "ranks of; stopping ", ranks_.size(), " of them")});
  coordinator_deadline_.reset();
  abandoned_.insert(*store_);
  abandoned_.erase(store);
  store_ = store;
  epoch_ = Epoch{};
  seen_.clear();
  last_figures_.clear();
  std::set<RankKey> ended = std::exchange(unsettled_, {});
  for (const auto& [id, report] : std::exchange(reports_, {})) ended.insert(report.key);
  for (const RankKey& key : ended) {
    out.push_back(DropLog{key});
    end_launch(key.launch(), out);
  }
  for (auto& [key, rank] : ranks_) rank.disowned = true;
  stop_all(leaving_ ? grace_left(now) : options_.leave_grace,
           "its coordinator's state store is gone", now, out);
  link_ = Link::kDown;
  greeting_until_.reset();
  heartbeat_at_.reset();
  answer_by_.reset();
  dumps_.clear();
  forget_checks(out);
  retries_ = 0;
  out.push_back(Disconnect{"the coordinator has another state store"});
}

// The worker connects to the next store only without ranks of an earlier one.
std::optional<Instant> Core::connect_at() const {
  const bool disowned = std::any_of(ranks_.begin(), ranks_.end(),
                                    [](const auto& rank) { return rank.second.disowned; });
  return disowned ? std::nullopt : retry_at_;
}

void Core::on(const ReportAcked& event, Instant now, ActionList& out) {
  const auto report = reports_.find(event.report_id);
  if (report == reports_.end()) return;
  out.push_back(ForgetRank{report->second.key});
  unsettled_.insert(report->second.key);
  reports_.erase(report);
  last_figures_.erase(event.report_id);
  leave_when_done(now, out);
}

void Core::on(const PageResults& event, Instant now, ActionList& out) {
  for (const PageResults::Page& page : event.pages) {
    const auto rank = ranks_.find(page.key);
    if (rank != ranks_.end()) take_figures(rank->second, page.figures, now);
  }
  extend_for_saves(now);
  send_heartbeat(now, out);
}

// A page is a file in which the rank may write anything. Clamps its times to the past.
void Core::take_figures(RankState& rank, RankFigures figures, Instant now) {
  figures.last_progress = std::clamp(figures.last_progress, Instant{}, std::max(Instant{}, now));
  figures.phase_start = std::clamp(figures.phase_start, Instant{}, std::max(Instant{}, now));
  if (same_figures(rank.figures, figures)) {
    rank.figures.main_thread = figures.main_thread;
    return;
  }
  rank.figures = figures;
  rank.dirty = true;
}

void Core::on(const HeartbeatAnswered&, Instant, ActionList&) { answer_by_.reset(); }

// A new connection reaches the coordinator as soon as the network is back.
void Core::on(const StreamUnanswered&, Instant, ActionList& out) {
  if (link_ == Link::kRegistered)
    out.push_back(Disconnect{"its host acknowledges nothing; opening a new connection"});
}

void Core::on(const Tick&, Instant now, ActionList& out) {
  if (is_due(connect_at(), now)) {
    retry_at_.reset();
    link_ = Link::kConnecting;
    greeting_until_ = now + greeting_budget();
    out.push_back(Connect{connection_budget()});
  }
  if (is_due(greeting_until_, now)) {
    greeting_until_.reset();
    out.push_back(Disconnect{"no answer to the registration"});
  }
  if (is_due(answer_by_, now)) {
    answer_by_.reset();
    out.push_back(Disconnect{"it answers no heartbeat; another coordinator may lead"});
  }
  if (is_due(coordinator_deadline_, now)) stop_without_coordinator(now, out);
  if (is_due(check_gone_by_, now)) spawn_beside_check(out);
  for (auto& [key, rank] : ranks_) {
    if (!is_due(rank.kill_at, now)) continue;
    out.push_back(Note{
        true, absl::StrCat(to_string(key), " has not left within its grace; killing it",
                           rank.save.total > 0 ? absl::StrCat(" with ", rank.save.written, " of ",
                                                              rank.save.total, " MiB saved")
                                               : "")});
    stop(key, rank, Duration::zero(), rank.stop_reason, now, out);
  }
  if (is_due(heartbeat_at_, now)) {
    heartbeat_at_ = now + heartbeat_interval();
    ReadPages pages;
    for (const auto& [key, rank] : ranks_) {
      if (rank.life == Life::kUp) pages.ranks.push_back(key);
    }
    if (pages.ranks.empty()) {
      send_heartbeat(now, out);
    } else {
      out.push_back(std::move(pages));
    }
  }
  read_due_samples(now, out);
  if (leaving_) leave_when_done(now, out);
}

Duration Core::heartbeat_interval() const {
  return ranks_.empty() ? heartbeat_interval_ : busy_interval_;
}

void Core::set_pace(Duration idle, Duration busy, Duration spread) {
  if (busy <= Duration::zero()) busy = idle / kBusyHeartbeats;
  heartbeat_interval_ = std::clamp(idle, kHeartbeatIntervalMin, kHeartbeatIntervalMax);
  busy_interval_ = std::clamp(busy, kHeartbeatIntervalMin, heartbeat_interval_);
  spread_ = std::clamp(spread, Duration::zero(), kSpreadMax);
}

// All workers receive a change within a moment. Heartbeats that were spread over the earlier
// interval are spread over the longer one by chance.
void Core::on(const PaceChanged& event, Instant now, ActionList& out) {
  if (is_stale(event.epoch, "SetPace", out)) return;
  const Duration before = heartbeat_interval();
  set_pace(event.heartbeat_interval, event.busy_interval, event.spread);
  if (!heartbeat_at_) return;
  const Duration more = heartbeat_interval() - before;
  if (more > Duration::zero())
    *heartbeat_at_ += std::chrono::duration_cast<Duration>(more * jitter());
  heartbeat_at_ = std::min(*heartbeat_at_, now + heartbeat_interval());
}

void Core::send_heartbeat(Instant now, ActionList& out) {
  if (link_ != Link::kRegistered) return;
  SendHeartbeat heartbeat;
  for (auto& [key, rank] : ranks_) {
    if (!rank.dirty || rank.life != Life::kUp) continue;
    rank.dirty = false;
    heartbeat.ranks.push_back({key, rank.pid, rank.figures, now - rank.figures.last_progress,
                               now - rank.figures.phase_start});
  }
  out.push_back(std::move(heartbeat));
  if (is_replicated_ && !answer_by_) answer_by_ = now + kHeartbeatAnswerMax + 2 * spread_;
}

// Sends the progress of ended ranks since their last heartbeat. Precedes their reports, because the
// coordinator ignores figures of ended ranks.
void Core::send_last_figures(uint64_t first_report_id, Instant now, ActionList& out) {
  if (link_ != Link::kRegistered) return;
  SendHeartbeat heartbeat;
  for (auto it = last_figures_.lower_bound(first_report_id); it != last_figures_.end(); ++it) {
    RankProgress& progress = heartbeat.ranks.emplace_back(it->second);
    progress.last_progress_age = now - progress.figures.last_progress;
    progress.phase_age = now - progress.figures.phase_start;
  }
  if (!heartbeat.ranks.empty()) out.push_back(std::move(heartbeat));
}

void Core::report(SendRankExited report, ActionList& out) {
  report.report_id = next_report_id_++;
  if (link_ == Link::kRegistered) out.push_back(report);
  reports_.emplace(report.report_id, std::move(report));
}

Duration Core::next_retry_delay(StreamEnd end) {
  const bool is_awaited = !ranks_.empty() || !reports_.empty();
  RetryTimes times = options_.retry;
  if (end == StreamEnd::kRefused && !is_awaited) times.max = std::max(times.max, kRefusedRetryMax);
  return retry_delay(times, retries_++, spread_, is_awaited, [this] { return jitter(); });
}

// A coordinator that is late answers later. If all workers gave up and began again, it would never
// catch up.
Duration Core::greeting_budget() const {
  constexpr uint32_t kDoublingsMax = 2;
  return std::max(options_.registration_budget * (1 << std::min(retries_, kDoublingsMax)),
                  2 * spread_);
}

// TCP repeats the first packet of a connection after 1, 3 and 7 s, so several short attempts find a
// network that is back sooner than a long one. A coordinator that is late gets more time, and so
// does the first registration: a new fleet makes many TLS handshakes at once.
Duration Core::connection_budget() const {
  constexpr Duration kShort = std::chrono::milliseconds(1500);
  constexpr uint32_t kShortAttempts = 8;
  const bool was_registered = store_.has_value();
  return (was_registered && retries_ < kShortAttempts ? kShort : options_.registration_budget) +
         2 * spread_;
}

// Returns a random number between 0 and 1.
double Core::jitter() {
  const Philox random{options_.incarnation.value(), kJitterStream};
  return static_cast<double>(uniform_from_bits(random(draws_++)[0]));
}

bool Core::is_stale(Epoch epoch, std::string_view what, ActionList& out) const {
  if (link_ == Link::kRegistered && epoch >= epoch_) return false;
  out.push_back(
      Note{true, absl::StrCat("ignoring a ", av(what), " of epoch ", epoch.value(),
                              ": this worker is registered with epoch ", epoch_.value())});
  return true;
}

}  // namespace muster::worker
