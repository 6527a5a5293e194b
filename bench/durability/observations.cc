#include "bench/durability/observations.h"

#include <algorithm>

#include <absl/strings/str_cat.h>
#include <nlohmann/json.hpp>

namespace muster::bench {
namespace {

// The first violations of a run explain the others.
constexpr size_t kViolationsMax = 20;

bool has_ended(v1::JobState state) {
  return state == v1::SUCCEEDED || state == v1::FAILED || state == v1::CANCELLED;
}

std::string name_of(const LaunchedRank& rank) {
  return absl::StrCat("rank ", rank.rank, " of job ", rank.job, " attempt ", rank.attempt);
}

}  // namespace

void Observations::violate_locked(std::string text) {
  ++counts_["violations"];
  if (violations_.size() < kViolationsMax) violations_.push_back(std::move(text));
}

void Observations::violate(std::string text) {
  const std::lock_guard lock(mutex_);
  violate_locked(std::move(text));
}

void Observations::count(const std::string& what) {
  const std::lock_guard lock(mutex_);
  ++counts_[what];
}

void Observations::started(const LaunchedRank& rank, const std::string& worker) {
  const std::lock_guard lock(mutex_);
  ++counts_["ranks_started"];
  JobObservations& job = jobs_[rank.job];
  const auto [known, is_new] = job.started.emplace(rank, worker);
  if (!is_new)
    violate_locked(
        absl::StrCat(name_of(rank), " was started on ", worker, " and on ", known->second));
  for (const LaunchedRank& other : job.running)
    if (other.attempt != rank.attempt)
      violate_locked(absl::StrCat(name_of(rank), " was started while ", name_of(other), " runs"));
  if (rank.attempt < job.newest_attempt)
    violate_locked(absl::StrCat(name_of(rank), " was started after attempt ", job.newest_attempt));
  if (rank.attempt > job.newest_attempt) {
    ++counts_["attempts"];
    // Only a rank that died by itself justifies another attempt.
    if (rank.attempt > 1 + job.faulty.size())
      violate_locked(absl::StrCat(name_of(rank), " was started after ", job.faulty.size(),
                                  " faults of the job"));
    job.newest_attempt = rank.attempt;
  }
  if (job.state != 0)
    violate_locked(absl::StrCat(name_of(rank), " was started after the job had ended"));
  job.running.insert(rank);
}

void Observations::ended(const LaunchedRank& rank, bool well) {
  const std::lock_guard lock(mutex_);
  JobObservations& job = jobs_[rank.job];
  job.running.erase(rank);
  if (well) job.well.insert(rank);
  if (!well) job.faulty.insert(rank.attempt);
}

void Observations::stopped(const LaunchedRank& rank) {
  const std::lock_guard lock(mutex_);
  jobs_[rank.job].running.erase(rank);
}

void Observations::confirmed(const std::string& request_id, uint64_t job) {
  const std::lock_guard lock(mutex_);
  const auto [known, is_new] = job_of_request_.emplace(request_id, job);
  if (is_new) ++counts_["submissions_confirmed"];
  if (known->second != job)
    violate_locked(absl::StrCat("request ", request_id, " was confirmed as job ", known->second,
                                " and then as job ", job));
  const auto [other, is_first] = request_of_job_.emplace(job, request_id);
  if (!is_first && other->second != request_id)
    violate_locked(absl::StrCat("job ", job, " was confirmed for request ", other->second,
                                " and for request ", request_id));
}

void Observations::request_cancel(uint64_t job) {
  const std::lock_guard lock(mutex_);
  jobs_[job].cancelled = true;
}

bool Observations::observed(const v1::Job& job) {
  const std::lock_guard lock(mutex_);
  JobObservations& observations = jobs_[job.id()];
  const auto request = request_of_job_.find(job.id());
  if (request != request_of_job_.end() && job.spec().name() != request->second)
    violate_locked(absl::StrCat("job ", job.id(), " has the name ", job.spec().name(),
                                " and was confirmed for request ", request->second));
  if (observations.state != 0 && observations.state != job.state())
    violate_locked(absl::StrCat("job ", job.id(), " is ", v1::JobState_Name(job.state()),
                                " and was ",
                                v1::JobState_Name(static_cast<v1::JobState>(observations.state))));
  if (!has_ended(job.state())) return false;
  if (observations.state == 0) {
    ++counts_[absl::StrCat("jobs_", v1::JobState_Name(job.state()))];
    observations.state = job.state();
    if (!observations.running.empty())
      violate_locked(absl::StrCat("job ", job.id(), " has ended while ",
                                  name_of(*observations.running.begin()), " runs"));
  }
  if (job.state() == v1::FAILED)
    violate_locked(absl::StrCat("job ", job.id(), " failed: ", job.reason()));
  if (job.state() == v1::CANCELLED && !observations.cancelled)
    violate_locked(absl::StrCat("job ", job.id(), " is cancelled without a request"));
  if (job.state() == v1::SUCCEEDED) {
    const auto good = std::ranges::count_if(
        observations.well, [&](const LaunchedRank& rank) { return rank.attempt == job.attempt(); });
    if (good != int64_t{job.spec().nodes()} * job.spec().ranks_per_node())
      violate_locked(absl::StrCat("job ", job.id(), " succeeded with ", good,
                                  " ranks that exited with code 0"));
  }
  return true;
}

void Observations::missed(uint64_t job) {
  violate(absl::StrCat("job ", job, " was confirmed and is lost"));
}

void Observations::epoch(uint64_t epoch) {
  const std::lock_guard lock(mutex_);
  if (epoch < newest_epoch_)
    violate_locked(absl::StrCat("epoch ", epoch, " follows epoch ", newest_epoch_));
  newest_epoch_ = std::max(newest_epoch_, epoch);
}

std::vector<std::string> Observations::violations() {
  const std::lock_guard lock(mutex_);
  return violations_;
}

std::string Observations::report() {
  const std::lock_guard lock(mutex_);
  nlohmann::json report(counts_);
  report["newest_epoch"] = newest_epoch_;
  report["first_violations"] = violations_;
  return report.dump();
}

}  // namespace muster::bench
