#include "coordinator/shell/etcd/leader_lease.h"

#include <algorithm>
#include <chrono>
#include <ctime>
#include <utility>

#include <absl/strings/str_cat.h>
#include <nlohmann/json.hpp>
#include <spdlog/spdlog.h>

#include "etcd/etcd.pb.h"

namespace muster::coordinator {
namespace {

namespace api = etcdserverpb;

// How often a standby reads the leader's key: a part of the time of a failover.
constexpr Duration kPollInterval = std::chrono::milliseconds(200);
// The time of one call while there is no lease to lose.
constexpr Duration kElectionCall = std::chrono::milliseconds(1'500);
constexpr Duration kWarnEvery = std::chrono::seconds(30);
constexpr Duration kRevokeCall = std::chrono::milliseconds(500);
// The renewals in a lease's time to live, and the time between two while etcd does not answer.
constexpr int kRenewalsPerTtl = 6;
constexpr Duration kRenewalRetry = std::chrono::milliseconds(100);
// The part of the time to live for which the leader considers itself deposed before etcd does:
// clocks of two machines may differ in speed.
constexpr int kMarginPart = 10;

// CLOCK_BOOTTIME continues while the machine is suspended, when etcd's clock continues, too.
int64_t boot_time_ns() {
  timespec time{};
  clock_gettime(CLOCK_BOOTTIME, &time);
  return time.tv_sec * 1'000'000'000 + time.tv_nsec;
}

int64_t deadline_ns(int64_t asked_ns, Duration ttl) {
  return asked_ns + (ttl - ttl / kMarginPart).count();
}

// Returns whether etcd would refuse a repeated request, too.
bool is_refusal(const absl::Status& status) {
  return absl::IsPermissionDenied(status) || absl::IsUnauthenticated(status) ||
         absl::IsInvalidArgument(status) || absl::IsUnimplemented(status) ||
         absl::IsFailedPrecondition(status) || absl::IsDataLoss(status);
}

std::string record_to_text(const LeaderRecord& record) {
  return nlohmann::json{
      {"grpc", record.grpc}, {"http", record.http}, {"host", record.host}, {"pid", record.pid}}
      .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

// Unknown members are ignored; missing members have their default.
absl::StatusOr<LeaderRecord> record_from(const api::KeyValue& entry) {
  try {
    const auto json = nlohmann::json::parse(entry.value());
    LeaderRecord record;
    record.grpc = json.value("grpc", record.grpc);
    record.http = json.value("http", record.http);
    record.host = json.value("host", record.host);
    record.pid = json.value("pid", record.pid);
    return record;
  } catch (const nlohmann::json::exception& error) {
    return absl::DataLossError(
        absl::StrCat("etcd's key ", entry.key(), " names no leader: ", error.what()));
  }
}

}  // namespace

absl::StatusOr<std::optional<LeaderRecord>> current_leader(EtcdClient& client, Duration timeout) {
  api::RangeRequest request;
  request.set_key(client.key("leader"));
  const auto found = client.range(request, timeout);
  if (!found.ok()) return found.status();
  if (found->kvs().empty()) return std::nullopt;
  auto record = record_from(found->kvs(0));
  if (!record.ok()) return record.status();
  return *std::move(record);
}

LeaderLease::LeaderLease(EtcdClient& client, LeaderOptions options)
    : client_(client), options_(std::move(options)), key_(client.key("leader")) {}

LeaderLease::~LeaderLease() { resign(); }

// Waits for `time`; returns false if `stop` was requested.
bool LeaderLease::wait(const std::stop_token& stop, Duration time) {
  std::unique_lock lock(mutex_);
  wakeup_.wait_for(lock, stop, time, [] { return false; });
  return !stop.stop_requested();
}

void LeaderLease::note_leader(std::optional<LeaderRecord> leader) {
  const std::lock_guard lock(mutex_);
  seen_ = std::move(leader);
}

std::optional<LeaderRecord> LeaderLease::seen_leader() const {
  const std::lock_guard lock(mutex_);
  return seen_;
}

bool LeaderLease::is_held() const { return time_left() > Duration(0); }

absl::Status LeaderLease::check_held() const {
  if (is_held()) return absl::OkStatus();
  return absl::AbortedError("the lease has expired: another coordinator may lead");
}

Duration LeaderLease::time_left() const {
  return std::max(Duration(held_until_ns_.load() - boot_time_ns()), Duration(0));
}

// Creates the leader's key, which does not exist. The caller revokes the lease if this fails.
absl::StatusOr<LeaderLease::Attempt> LeaderLease::take_key() {
  const int64_t asked_ns = boot_time_ns();
  const auto granted = client_.grant_lease(options_.ttl, kElectionCall);
  if (!granted.ok()) return granted.status();
  lease_ = granted->id;
  api::TxnRequest request;
  api::Compare& compare = *request.add_compare();
  compare.set_key(key_);
  compare.set_target(api::Compare::CREATE);
  compare.set_create_revision(0);
  api::PutRequest& put = *request.add_success()->mutable_request_put();
  put.set_key(key_);
  put.set_value(record_to_text(options_.self));
  put.set_lease(lease_);
  const auto taken = client_.txn(request, kElectionCall);
  if (!taken.ok()) return taken.status();
  if (!taken->succeeded()) return Attempt::kOther;
  term_ = taken->header().revision();
  held_until_ns_ = deadline_ns(asked_ns, granted->ttl);
  return Attempt::kElected;
}

absl::StatusOr<LeaderLease::Attempt> LeaderLease::try_once() {
  auto leader = current_leader(client_, kElectionCall);
  if (!leader.ok()) return leader.status();
  note_leader(*leader);
  if (leader->has_value()) return Attempt::kOther;
  auto attempt = take_key();
  if (attempt.ok() && *attempt == Attempt::kElected) return attempt;
  // If the transaction's answer was lost, the key disappears with the lease.
  if (lease_ != 0) client_.revoke_lease(std::exchange(lease_, 0), kRevokeCall).IgnoreError();
  return attempt;
}

absl::Status LeaderLease::campaign(const std::stop_token& stop) {
  std::optional<int64_t> warned_ns;
  do {
    const auto attempt = try_once();
    if (attempt.ok() && *attempt == Attempt::kElected && is_held()) {
      note_leader(options_.self);
      renewal_ = std::jthread([this](const std::stop_token& ended) { renew(ended); });
      return absl::OkStatus();
    }
    if (attempt.ok()) continue;
    if (is_refusal(attempt.status())) return attempt.status();
    const int64_t now_ns = boot_time_ns();
    if (warned_ns.has_value() && now_ns - *warned_ns < kWarnEvery.count()) continue;
    warned_ns = now_ns;
    spdlog::warn("no coordinator can be elected: {}", std::string(attempt.status().message()));
  } while (wait(stop, kPollInterval));
  return absl::CancelledError("the election was stopped");
}

void LeaderLease::renew_while(std::function<absl::Status()> check) {
  const std::lock_guard lock(check_mutex_);
  check_ = std::move(check);
}

absl::Status LeaderLease::check_work() {
  const std::lock_guard lock(check_mutex_);
  return check_ ? check_() : absl::OkStatus();
}

void LeaderLease::renew(const std::stop_token& stop) {
  const Duration interval = options_.ttl / kRenewalsPerTtl;
  absl::Status trouble = absl::UnavailableError(
      "its lease in etcd could not be renewed: this process or its machine was stopped");
  Duration pause = interval;
  while (wait(stop, std::min(pause, time_left()))) {
    const int64_t asked_ns = boot_time_ns();
    const Duration left = time_left();
    if (left == Duration(0)) break;
    if (absl::Status working = check_work(); !working.ok()) {
      trouble = std::move(working);
      break;
    }
    const auto renewed = client_.keep_lease_alive(lease_, left);
    if (renewed.ok() && is_held()) {
      held_until_ns_ = deadline_ns(asked_ns, *renewed);
      pause = interval;
      continue;
    }
    if (!renewed.ok()) {
      trouble = absl::Status(
          renewed.status().code(),
          absl::StrCat("its lease in etcd could not be renewed: ", renewed.status().message()));
    }
    if (!renewed.ok() && !absl::IsUnavailable(trouble)) break;
    pause = kRenewalRetry;
  }
  if (stop.stop_requested()) return;
  held_until_ns_ = 0;
  note_leader(std::nullopt);
  if (options_.on_lost) {
    options_.on_lost(
        absl::AbortedError(absl::StrCat("this coordinator no longer leads: ", trouble.message())));
  }
}

void LeaderLease::resign() {
  const bool had_term = renewal_.joinable();
  if (had_term) {
    renewal_.request_stop();
    renewal_.join();
    note_leader(std::nullopt);
  }
  held_until_ns_ = 0;
  if (lease_ != 0) client_.revoke_lease(std::exchange(lease_, 0), kRevokeCall).IgnoreError();
}

}  // namespace muster::coordinator
