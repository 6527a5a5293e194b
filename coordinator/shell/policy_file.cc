#include "coordinator/shell/policy_file.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include <absl/strings/str_cat.h>
#include <nlohmann/json.hpp>
#include <spdlog/spdlog.h>

#include "common/files/file_read.h"
#include "common/job/job_spec.h"
#include "common/text/absl_view.h"
#include "common/text/escape.h"
#include "common/text/json_depth.h"

namespace muster::coordinator {
namespace {

using nlohmann::json;

// Tens of thousands of users.
constexpr size_t kPolicyBytesMax = size_t{4} << 20;
constexpr double kSharesMax = 1e6;
constexpr double kSharesMin = 1e-6;
constexpr double kHalfLifeHoursMax = 24 * 365;
constexpr double kHalfLifeHoursMin = 0.01;
constexpr int64_t kAmountMax = int64_t{1} << 40;

absl::Status wrong(const std::string& key, const json& value, std::string_view right) {
  constexpr size_t kShownMax = 64;
  return absl::InvalidArgumentError(absl::StrCat(
      key, " is ", printable(value.dump(-1, ' ', false, json::error_handler_t::replace), kShownMax),
      ": it must be ", av(right)));
}

absl::Status unknown(const std::string& key, std::string_view known) {
  constexpr size_t kShownMax = 200;
  return absl::InvalidArgumentError(
      absl::StrCat("there is no key ", printable(key, kShownMax), ": the keys are ", av(known)));
}

absl::Status read_number(const std::string& key, const json& value, double least, double most,
                         double& number) {
  if (value.is_number() && value.get<double>() >= least && value.get<double>() <= most) {
    number = value.get<double>();
    return absl::OkStatus();
  }
  return wrong(key, value, absl::StrCat("a number from ", least, " to ", most));
}

absl::Status read_whole(const std::string& key, const json& value, int64_t least, int64_t most,
                        int64_t& number) {
  if (value.is_number_integer() && value.get<double>() >= static_cast<double>(least) &&
      value.get<double>() <= static_cast<double>(most)) {
    number = value.get<int64_t>();
    return absl::OkStatus();
  }
  return wrong(key, value, absl::StrCat("a whole number from ", least, " to ", most));
}

// Reads the keys of a quota into `quota`, which has the defaults.
absl::Status read_quota(const std::string& where, const json& object, Quota& quota) {
  if (!object.is_object()) return wrong(where, object, "an object");
  for (const auto& [name, value] : object.items()) {
    const std::string key = absl::StrCat(where, ".", name);
    const auto kind = std::ranges::find(kQuotaNames, name);
    int64_t number = 0;
    absl::Status status;
    if (kind != kQuotaNames.end()) {
      status = read_whole(key, value, 0, kAmountMax, number);
      quota.max[static_cast<size_t>(kind - kQuotaNames.begin())] = number;
    } else if (name == "priority_max") {
      status = read_whole(key, value, -kPriorityMax, kPriorityMax, number);
      quota.priority_max = static_cast<int32_t>(number);
    } else if (name == "shares") {
      status = read_number(key, value, kSharesMin, kSharesMax, quota.shares);
    } else {
      status = unknown(key,
                       "running_ranks_max, running_gpus_max, running_nodes_max, "
                       "running_jobs_max, waiting_jobs_max, priority_max and shares");
    }
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status read_entries(const std::string& where, const json& object, const Quota& defaults,
                          std::map<std::string, Quota>& quotas) {
  if (!object.is_object()) return wrong(where, object, "an object with an entry for each name");
  for (const auto& [name, value] : object.items()) {
    Quota& quota = quotas[name] = defaults;
    if (auto status = read_quota(absl::StrCat(where, ".", name), value, quota); !status.ok())
      return status;
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<QueuePolicy> parse_queue_policy(std::string_view text) {
  if (!is_shallow_json(text))
    return absl::InvalidArgumentError(absl::StrCat("it has more than ", kJsonDepthMax, " levels"));
  const json root = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!root.is_object())
    return absl::InvalidArgumentError("it is no JSON object: {\"users\": {…}, \"teams\": {…}}");
  QueuePolicy policy;
  for (const auto& [key, value] : root.items()) {
    absl::Status status;
    if (key == "half_life_hours") {
      double hours = 0;
      status = read_number(key, value, kHalfLifeHoursMin, kHalfLifeHoursMax, hours);
      policy.half_life = Duration(std::llround(hours * 3600e9));
    } else if (key == "user_defaults" || key == "team_defaults") {
      status = read_quota(key, value,
                          key == "user_defaults" ? policy.user_defaults : policy.team_defaults);
    } else if (key != "users" && key != "teams") {
      status = unknown(key, "half_life_hours, user_defaults, team_defaults, users and teams");
    }
    if (!status.ok()) return status;
  }
  absl::Status status;
  if (root.contains("users"))
    status = read_entries("users", root["users"], policy.user_defaults, policy.users);
  if (status.ok() && root.contains("teams"))
    status = read_entries("teams", root["teams"], policy.team_defaults, policy.teams);
  if (!status.ok()) return status;
  return policy;
}

absl::StatusOr<PolicyFile::Version> PolicyFile::read(const std::string& path) {
  const std::string what = absl::StrCat("--queue-policy=", path);
  auto text = read_plain_file_up_to(kPolicyBytesMax, path, what);
  if (!text.ok()) return text.status();
  auto policy = parse_queue_policy(*text);
  if (policy.ok()) return Version{*std::move(policy), *std::move(text)};
  return absl::Status(policy.status().code(), absl::StrCat(what, ": ", policy.status().message()));
}

absl::StatusOr<PolicyFile::Version> PolicyFile::read_or(const std::string& path,
                                                        const std::string& stored,
                                                        ShellMetrics& metrics) {
  auto version = read(path);
  metrics.show_policy(version.ok());
  if (version.ok() || stored.empty()) return version;
  auto policy = parse_queue_policy(stored);
  if (!policy.ok()) return version;
  spdlog::warn("the policy that was last in force is used: {}",
               std::string(version.status().message()));
  return Version{*std::move(policy), stored};
}

PolicyFile::PolicyFile(std::string path, Version first, Duration every, Use use,
                       std::shared_ptr<ShellMetrics> metrics)
    : path_(std::move(path)), every_(every), use_(std::move(use)), metrics_(std::move(metrics)) {
  offer(std::move(first));
  thread_ = std::thread([this] { run(); });
}

PolicyFile::~PolicyFile() {
  {
    const std::lock_guard lock(mutex_);
    is_stopped_ = true;
  }
  stopped_.notify_all();
  thread_.join();
}

void PolicyFile::run() {
  std::unique_lock lock(mutex_);
  while (!stopped_.wait_for(lock, every_, [this] { return is_stopped_; })) {
    lock.unlock();
    refresh();
    lock.lock();
  }
}

void PolicyFile::refresh() {
  auto version = read(path_);
  metrics_->show_policy(version.ok());
  const std::string trouble(version.status().message());
  if (!trouble.empty() && trouble != trouble_) spdlog::warn("the policy is unchanged: {}", trouble);
  trouble_ = trouble;
  if (version.ok() && used_ != version->policy) {
    offer(*std::move(version));
  } else if (offered_) {
    offer(*offered_);
  }
}

// Retains the version until it is used: if it is the stored one, the file cannot replace it.
void PolicyFile::offer(Version version) {
  offered_ = version;
  if (!use_(std::move(version)).ok()) return;
  if (used_) spdlog::info("the queue policy is read again from {}", path_);
  used_ = std::move(offered_->policy);
  offered_.reset();
}

}  // namespace muster::coordinator
