#include "bench/durability/worker.h"

#include <signal.h>

#include <algorithm>
#include <chrono>
#include <utility>
#include <vector>

#include "common/progress/progress_page.h"
#include "common/progress/step_times.h"
#include "common/version.h"
#include "daemon/limits.h"

namespace muster::bench {
namespace {

using std::chrono::milliseconds;

constexpr Duration kRetry = milliseconds(10);
constexpr Duration kBeat = milliseconds(40);
constexpr int64_t kRankMsMin = 20;
constexpr int64_t kRankMsMax = 600;
// One rank in this many dies, which costs its job a restart.
constexpr uint64_t kDeathOneIn = 40;

// Sets the job, attempt and rank of a message about a rank.
template <class Proto>
void identify(const LaunchedRank& id, Proto& proto) {
  proto.set_job_id(id.job);
  proto.set_attempt(id.attempt);
  proto.set_rank(id.rank);
}

}  // namespace

Worker::Worker(std::string coordinator, std::string name, int32_t slots, uint64_t seed,
               Observations& observations)
    : coordinator_(std::move(coordinator)),
      name_(std::move(name)),
      slots_(slots),
      observations_(observations),
      random_(seed),
      reader_([this] { serve(); }),
      beater_([this] { beat(); }) {}

Worker::~Worker() {
  stopping_ = true;
  {
    const std::lock_guard lock(mutex_);
    if (context_ != nullptr) context_->TryCancel();
  }
  reader_.join();
  beater_.join();
}

void Worker::serve() {
  while (!stopping_) {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
    arguments.SetMaxReceiveMessageSize(daemon::kMessageBytesMax);
    const auto stub = v1::Fleet::NewStub(
        grpc::CreateCustomChannel(coordinator_, grpc::InsecureChannelCredentials(), arguments));
    grpc::ClientContext context;
    const std::unique_ptr<Stream> stream = stub->Connect(&context);
    {
      const std::lock_guard lock(mutex_);
      context_ = &context;
      if (stopping_) context.TryCancel();
      stream->Write(registration());
    }
    v1::CoordinatorMessage message;
    while (stream->Read(&message)) {
      observations_.epoch(message.epoch());
      const std::lock_guard lock(mutex_);
      if (message.has_registered()) {
        store_ = message.registered().store_id();
        stream_ = stream.get();
        observations_.count("registrations");
        for (const auto& [id, report] : reports_) {
          observations_.count("reports_sent");
          send(report);
        }
      } else {
        on_message(message);
      }
    }
    {
      const std::lock_guard lock(mutex_);
      stream_ = nullptr;
      context_ = nullptr;
    }
    const grpc::Status status = stream->Finish();
    const bool is_refused = status.error_code() == grpc::StatusCode::FAILED_PRECONDITION ||
                            status.error_code() == grpc::StatusCode::INVALID_ARGUMENT;
    if (is_refused)
      observations_.violate("worker " + name_ + " is refused: " + status.error_message());
    std::this_thread::sleep_for(kRetry);
  }
}

// Requires the lock, as the methods below.
void Worker::send(const v1::WorkerMessage& message) {
  if (stream_ != nullptr) stream_->Write(message);
}

v1::WorkerMessage Worker::registration() {
  v1::WorkerMessage message;
  v1::Register& registration = *message.mutable_register_();
  registration.set_worker(name_);
  registration.set_incarnation(1);
  registration.set_version(kVersion);
  registration.set_host(name_);
  registration.set_slots(slots_);
  registration.set_rendezvous_address("127.0.0.1:1");
  registration.mutable_program_ports()->set_first(20'000);
  registration.mutable_program_ports()->set_count(100);
  registration.set_store_id(store_);
  for (const auto& [id, rank] : running_) {
    v1::RunningRank& running = *registration.add_running();
    identify(id, running);
    running.set_pid(rank.pid);
  }
  return message;
}

void Worker::on_message(const v1::CoordinatorMessage& message) {
  if (message.has_start_ranks()) {
    start_ranks(message.start_ranks());
  } else if (message.has_stop_ranks()) {
    stop_ranks(message.stop_ranks());
  } else if (message.has_report_ack()) {
    reports_.erase(message.report_ack().report_id());
  } else if (message.has_check_node()) {
    v1::WorkerMessage passed;
    passed.mutable_node_checked()->set_check_id(message.check_node().check_id());
    passed.mutable_node_checked()->set_passed(true);
    send(passed);
  }
}

void Worker::start_ranks(const v1::StartRanks& order) {
  for (const v1::RankPlacement& placed : order.ranks()) {
    const LaunchedRank id{order.job_id(), order.attempt(), placed.rank()};
    if (!known_.insert(id).second) {
      observations_.count("orders_repeated");
      continue;
    }
    const auto time = static_cast<int64_t>(random_() % (kRankMsMax - kRankMsMin)) + kRankMsMin;
    running_[id] = {next_pid_++, 0, monotonic_now() + milliseconds(time),
                    random_() % kDeathOneIn == 0};
    observations_.started(id, name_);
  }
}

void Worker::stop_ranks(const v1::StopRanks& order) {
  for (const int32_t rank : order.ranks()) {
    const LaunchedRank id{order.job_id(), order.attempt(), rank};
    const bool has_reported = std::ranges::any_of(reports_, [&](const auto& entry) {
      const v1::RankExited& exit = entry.second.rank_exited();
      return LaunchedRank{exit.job_id(), exit.attempt(), exit.rank()} == id;
    });
    known_.insert(id);  // a late order to start does not start it any more
    if (!has_reported) end_rank(id, -1, SIGKILL, true);
  }
  const LaunchedRank first{order.job_id(), order.attempt(), 0};
  for (auto it = running_.lower_bound(first); it != running_.end();) {
    const LaunchedRank id = it->first;
    ++it;
    if (id.job != order.job_id() || id.attempt != order.attempt()) break;
    end_rank(id, -1, SIGKILL, true);
  }
}

void Worker::end_rank(const LaunchedRank& id, int32_t exit_code, int32_t signal, bool ordered) {
  const bool ran = running_.erase(id) > 0;
  // An ordered stop is no fault of the job.
  if (ran && !ordered) observations_.ended(id, exit_code == 0);
  if (ran && ordered) observations_.stopped(id);
  v1::WorkerMessage message;
  v1::RankExited& exit = *message.mutable_rank_exited();
  exit.set_report_id(next_report_++);
  identify(id, exit);
  exit.set_exit_code(exit_code);
  exit.set_signal(signal);
  exit.set_last_step(1);
  exit.set_told_to_stop(ordered);
  reports_.emplace(exit.report_id(), message);
  observations_.count("reports");
  observations_.count("reports_sent");
  send(message);
}

void Worker::beat() {
  while (!stopping_) {
    std::this_thread::sleep_for(kBeat);
    const std::lock_guard lock(mutex_);
    const Instant now = monotonic_now();
    v1::WorkerMessage message;
    v1::Heartbeat& heartbeat = *message.mutable_heartbeat();
    std::vector<std::pair<LaunchedRank, bool>> over;
    for (auto& [id, rank] : running_) {
      if (rank.ends_at <= now) over.emplace_back(id, rank.dies);
      v1::RankProgress& progress = *heartbeat.add_ranks();
      identify(id, progress);
      progress.set_pid(rank.pid);
      progress.set_phase(static_cast<uint32_t>(Phase::kStep));
      progress.set_step(++rank.step);
      progress.set_process_state('R');
      v1::StepTimes& times = *progress.mutable_step_times();
      for (size_t i = 0; i < StepTimes().counts.size(); ++i)
        times.add_counts(i == 0 ? static_cast<uint64_t>(rank.step) : 0);
      times.set_seconds(to_seconds(kBeat) * static_cast<double>(rank.step));
    }
    send(message);
    if (stream_ != nullptr) observations_.count("heartbeats");
    for (const auto& [id, dies] : over) end_rank(id, dies ? -1 : 0, dies ? SIGKILL : 0, false);
  }
}

}  // namespace muster::bench
