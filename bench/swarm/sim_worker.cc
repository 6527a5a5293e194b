#include "bench/swarm/sim_worker.h"

#include <signal.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <utility>

#include <absl/strings/str_cat.h>
#include <nlohmann/json.hpp>

#include "bench/swarm/channel.h"
#include "common/job/limits.h"
#include "common/progress/progress_page.h"
#include "common/progress/step_times.h"
#include "common/random/philox.h"
#include "common/text/absl_view.h"
#include "common/version.h"
#include "worker/core/retry_delay.h"

namespace muster::bench {
namespace {

// The interval between checks of a worker that is not registered.
constexpr Duration kUnregistered = std::chrono::milliseconds(250);
constexpr int32_t kFirstPid = 1000;
constexpr double kStepSeconds = 0.5;

double percentile(std::vector<double>& sorted, double share) {
  if (sorted.empty()) return 0;
  const auto last = static_cast<double>(sorted.size() - 1);
  return sorted[static_cast<size_t>(share * last)];
}

}  // namespace

void SwarmRecord::registered() {
  const std::lock_guard lock(mutex_);
  ++registered_;
  ++registrations_;
  registered_at_ns_ = monotonic_now().time_since_epoch().count();
}

void SwarmRecord::ended(const grpc::Status& status, bool was_registered) {
  const std::lock_guard lock(mutex_);
  registered_ -= was_registered ? 1 : 0;
  ++ends_[status.error_message()];
}

void SwarmRecord::started(int64_t ranks) {
  const std::lock_guard lock(mutex_);
  started_ += ranks;
  started_at_ns_ = monotonic_now().time_since_epoch().count();
}

void SwarmRecord::stopped(int64_t ranks) {
  const std::lock_guard lock(mutex_);
  stopped_ += ranks;
  stopped_at_ns_ = monotonic_now().time_since_epoch().count();
}

void SwarmRecord::heartbeat() {
  const std::lock_guard lock(mutex_);
  ++heartbeats_;
}

void SwarmRecord::round_trip(Duration time) {
  const std::lock_guard lock(mutex_);
  round_trips_ms_.push_back(1e3 * to_seconds(time));
}

std::string SwarmRecord::take() {
  const std::lock_guard lock(mutex_);
  std::sort(round_trips_ms_.begin(), round_trips_ms_.end());
  const nlohmann::json record = {{"registered", registered_},
                                 {"registrations", registrations_},
                                 {"registered_at_ns", registered_at_ns_},
                                 {"started", std::exchange(started_, 0)},
                                 {"started_at_ns", started_at_ns_},
                                 {"stopped", std::exchange(stopped_, 0)},
                                 {"stopped_at_ns", stopped_at_ns_},
                                 {"heartbeats", std::exchange(heartbeats_, 0)},
                                 {"round_trips", round_trips_ms_.size()},
                                 {"p50_ms", percentile(round_trips_ms_, 0.5)},
                                 {"p99_ms", percentile(round_trips_ms_, 0.99)},
                                 {"stream_ends", ends_}};
  round_trips_ms_.clear();
  return record.dump();
}

// One connection. Keeps itself alive until gRPC calls OnDone().
class SimWorker::Stream : public grpc::ClientBidiReactor<v1::WorkerMessage, v1::CoordinatorMessage>,
                          public std::enable_shared_from_this<Stream> {
 public:
  Stream(SimWorker* owner, const SimWorkerOptions& options)
      : owner_(owner),
        stub_(v1::Fleet::NewStub(make_channel(options.coordinator, options.credentials))) {}

  void start(v1::WorkerMessage first) {
    self_ = shared_from_this();
    outbox_.push_back(std::move(first));
    stub_->async()->Connect(&context_, this);
    AddHold();
    StartRead(&incoming_);
    write_next_locked();
    StartCall();
  }

  void send(v1::WorkerMessage message) {
    const std::lock_guard lock(mutex_);
    if (ended_) return;
    outbox_.push_back(std::move(message));
    if (!writing_) write_next_locked();
  }

  void cancel() { context_.TryCancel(); }

  void OnReadDone(bool ok) override {
    if (ok) {
      owner_->on_message(incoming_);
      StartRead(&incoming_);
      return;
    }
    {
      const std::lock_guard lock(mutex_);
      ended_ = true;
    }
    RemoveHold();
  }

  void OnWriteDone(bool ok) override {
    const std::lock_guard lock(mutex_);
    outbox_.pop_front();
    writing_ = false;
    if (ok && !ended_ && !outbox_.empty()) write_next_locked();
  }

  void OnDone(const grpc::Status& status) override {
    owner_->on_done(status);
    self_.reset();
  }

 private:
  // As the worker does, sends messages that wait in one packet.
  void write_next_locked() {
    writing_ = true;
    grpc::WriteOptions options;
    if (outbox_.size() > 1) options.set_buffer_hint();
    StartWrite(&outbox_.front(), options);
  }

  SimWorker* owner_;
  std::unique_ptr<v1::Fleet::Stub> stub_;
  grpc::ClientContext context_;
  v1::CoordinatorMessage incoming_;
  std::shared_ptr<Stream> self_;
  std::mutex mutex_;
  std::deque<v1::WorkerMessage> outbox_;
  bool writing_ = false;
  bool ended_ = false;
};

Instant SimWorker::connect_if_due(Instant now) {
  const std::lock_guard lock(mutex_);
  if (stream_ == nullptr && now >= retry_at_) connect_locked();
  return stream_ == nullptr ? std::max(retry_at_, now + worker::RetryTimes().first)
                            : now + kUnregistered;
}

Instant SimWorker::beat(Instant now, bool probe) {
  std::shared_ptr<Stream> stream;
  v1::WorkerMessage message;
  v1::WorkerMessage report;
  std::vector<v1::WorkerMessage> exits;
  Duration interval{};
  {
    const std::lock_guard lock(mutex_);
    if (stream_ == nullptr || !registered_) return now + kUnregistered;
    stream = stream_;
    message = heartbeat_message();
    exits = std::exchange(ending_, {});
    interval = ranks_.empty() ? idle_interval_ : busy_interval_;
    if (probe) {
      report.mutable_rank_exited()->set_report_id(++report_);
      probes_.emplace(report_, monotonic_now());
    }
  }
  stream->send(std::move(message));
  for (v1::WorkerMessage& exit : exits) stream->send(std::move(exit));
  record_.heartbeat();
  if (probe) stream->send(std::move(report));
  return now + interval;
}

// Requires the lock.
template <class Proto>
void SimWorker::identify(int32_t rank, Proto& proto) const {
  proto.set_job_id(job_);
  proto.set_attempt(attempt_);
  proto.set_rank(rank);
}

// Requires the lock.
void SimWorker::connect_locked() {
  stream_ = std::make_shared<Stream>(this, options_);
  v1::WorkerMessage message;
  v1::Register& registration = *message.mutable_register_();
  registration.set_worker(options_.name);
  registration.set_incarnation(incarnation_);
  registration.set_version(kVersion);
  registration.set_host(options_.name);
  registration.set_slots(options_.slots);
  registration.set_rendezvous_address("127.0.0.1:1");
  registration.mutable_program_ports()->set_first(20'000);
  registration.mutable_program_ports()->set_count(100);
  registration.set_store_id(store_);
  for (const int32_t rank : ranks_) {
    v1::RunningRank& running = *registration.add_running();
    identify(rank, running);
    running.set_pid(kFirstPid + rank);
  }
  stream_->start(std::move(message));
  ended_stream_.reset();
}

// Requires the lock. Coordinators of earlier versions send no `busy_ms`.
void SimWorker::set_pace_locked(int64_t idle_ms, int64_t busy_ms, int64_t spread_ms) {
  idle_interval_ = std::chrono::milliseconds(idle_ms);
  busy_interval_ =
      busy_ms > 0 ? Duration(std::chrono::milliseconds(busy_ms)) : idle_interval_ / kBusyHeartbeats;
  spread_ = std::chrono::milliseconds(spread_ms);
}

v1::WorkerMessage SimWorker::heartbeat_message() {
  v1::WorkerMessage message;
  v1::Heartbeat& heartbeat = *message.mutable_heartbeat();
  steps_ += ranks_.empty() ? 0 : 1;
  for (const int32_t rank : ranks_) {
    v1::RankProgress& progress = *heartbeat.add_ranks();
    identify(rank, progress);
    progress.set_pid(kFirstPid + rank);
    progress.set_phase(static_cast<uint32_t>(Phase::kStep));
    progress.set_step(static_cast<int64_t>(steps_));
    progress.set_loss(2.5);
    progress.set_step_seconds(kStepSeconds);
    progress.set_process_state('R');
    v1::StepTimes& times = *progress.mutable_step_times();
    for (size_t i = 0; i < StepTimes().counts.size(); ++i) times.add_counts(i == 0 ? steps_ : 0);
    times.set_seconds(kStepSeconds * static_cast<double>(steps_));
  }
  return message;
}

void SimWorker::on_message(const v1::CoordinatorMessage& message) {
  switch (message.body_case()) {
    case v1::CoordinatorMessage::kRegistered: {
      const std::lock_guard lock(mutex_);
      const v1::Registered& body = message.registered();
      registered_ = true;
      failures_ = 0;
      store_ = body.store_id();
      set_pace_locked(body.heartbeat_interval_ms(), body.busy_interval_ms(),
                      body.reconnect_spread_ms());
      record_.registered();
      return;
    }
    case v1::CoordinatorMessage::kSetPace: {
      const std::lock_guard lock(mutex_);
      const v1::SetPace& body = message.set_pace();
      return set_pace_locked(body.heartbeat_interval_ms(), body.busy_interval_ms(),
                             body.reconnect_spread_ms());
    }
    case v1::CoordinatorMessage::kStartRanks:
      return start_ranks(message.start_ranks());
    case v1::CoordinatorMessage::kStopRanks:
      return stop_ranks(message.stop_ranks());
    case v1::CoordinatorMessage::kReportAck: {
      const std::lock_guard lock(mutex_);
      const auto probe = probes_.extract(message.report_ack().report_id());
      if (!probe.empty()) record_.round_trip(monotonic_now() - probe.mapped());
      return;
    }
    case v1::CoordinatorMessage::kCheckNode:
      return pass_check(message.check_node().check_id());
    default:
      return;
  }
}

void SimWorker::pass_check(uint64_t check) {
  v1::WorkerMessage message;
  message.mutable_node_checked()->set_check_id(check);
  message.mutable_node_checked()->set_passed(true);
  std::shared_ptr<Stream> stream;
  {
    const std::lock_guard lock(mutex_);
    stream = stream_;
  }
  if (stream != nullptr) stream->send(std::move(message));
}

void SimWorker::start_ranks(const v1::StartRanks& order) {
  {
    const std::lock_guard lock(mutex_);
    job_ = order.job_id();
    attempt_ = order.attempt();
    steps_ = 0;
    ranks_.clear();
    for (const v1::RankPlacement& rank : order.ranks()) ranks_.push_back(rank.rank());
  }
  record_.started(order.ranks_size());
  (void)beat(monotonic_now(), false);
}

void SimWorker::stop_ranks(const v1::StopRanks& order) {
  record_.stopped(order.ranks_size());
  {
    const std::lock_guard lock(mutex_);
    if (order.job_id() == job_ && order.attempt() == attempt_) ranks_.clear();
    for (const int32_t rank : order.ranks())
      ending_.push_back(exit_message_locked(order.job_id(), order.attempt(), rank, SIGTERM, true));
  }
}

bool SimWorker::kill_a_rank() {
  std::shared_ptr<Stream> stream;
  v1::WorkerMessage message;
  {
    const std::lock_guard lock(mutex_);
    if (ranks_.empty() || stream_ == nullptr) return false;
    stream = stream_;
    message = exit_message_locked(job_, attempt_, ranks_.back(), SIGKILL, false);
    ranks_.pop_back();
  }
  stream->send(std::move(message));
  return true;
}

bool SimWorker::lose_node() {
  std::shared_ptr<Stream> stream;
  {
    const std::lock_guard lock(mutex_);
    if (ranks_.empty() || stream_ == nullptr) return false;
    ranks_.clear();
    ending_.clear();
    ++incarnation_;
    spread_ = {};  // a new process has not received it
    stream = stream_;
  }
  stream->cancel();
  return true;
}

v1::WorkerMessage SimWorker::exit_message_locked(uint64_t job, uint32_t attempt, int32_t rank,
                                                 int32_t signal, bool ordered) {
  v1::WorkerMessage message;
  v1::RankExited& exit = *message.mutable_rank_exited();
  exit.set_report_id(++report_);
  exit.set_job_id(job);
  exit.set_attempt(attempt);
  exit.set_rank(rank);
  exit.set_exit_code(-1);
  exit.set_signal(signal);
  exit.set_last_step(static_cast<int64_t>(steps_));
  exit.set_told_to_stop(ordered);
  return message;
}

// Returns a number between 0 and 1, which depends on the worker's name and the earlier calls.
double SimWorker::random_share() {
  const Philox random{std::hash<std::string>()(options_.name), /*stream=*/1};
  return static_cast<double>(uniform_from_bits(random(draws_++)[0]));
}

void SimWorker::on_done(const grpc::Status& status) {
  const std::lock_guard lock(mutex_);
  record_.ended(status, registered_);
  ended_stream_ = std::move(stream_);
  registered_ = false;
  probes_.clear();
  retry_at_ = monotonic_now() + worker::retry_delay({}, failures_++, spread_, !ranks_.empty(),
                                                    [this] { return random_share(); });
}

}  // namespace muster::bench
