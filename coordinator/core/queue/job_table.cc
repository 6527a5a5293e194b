#include "coordinator/core/queue/job_table.h"

#include <algorithm>
#include <filesystem>

#include <absl/strings/escaping.h>
#include <absl/strings/str_cat.h>

#include "common/text/absl_view.h"
#include "coordinator/core/records/sizes.h"

namespace muster::coordinator {
namespace {

// Normalises the path of an output folder: /out, /out/ and /x/../out are equal. Does not resolve
// links.
std::string output_key(const JobSpec& spec) {
  std::string key = std::filesystem::path(spec.output_directory).lexically_normal().string();
  while (key.size() > 1 && key.back() == '/') key.pop_back();
  return key;
}

}  // namespace

Job* JobTable::find(JobId id) {
  const auto it = jobs_.find(id);
  return it == jobs_.end() ? nullptr : &it->second;
}

const Job* JobTable::find(JobId id) const {
  const auto it = jobs_.find(id);
  return it == jobs_.end() ? nullptr : &it->second;
}

absl::StatusOr<Job*> JobTable::unfinished(JobId id, const Caller& caller, std::string_view purpose,
                                          Access access) {
  Job* job = find(id);
  if (job == nullptr) return absl::NotFoundError(absl::StrCat("there is no job ", id.value()));
  absl::Status status = check_access(caller, job_owner(job->spec), id, purpose, access);
  if (!status.ok()) return status;
  if (!is_terminal(job->state)) return job;
  return absl::FailedPreconditionError(absl::StrCat(
      "job ", id.value(), " has already ended: it is ", av(job_state_name(job->state))));
}

Job* JobTable::live(JobId id, Attempt attempt) {
  Job* job = find(id);
  return job != nullptr && is_live(job->state) && job->attempt == attempt ? job : nullptr;
}

Job* JobTable::owner_of(const RankId& id, const Worker& worker) {
  Job* job = live(id.job, id.attempt);
  if (job == nullptr || id.rank.value() < 0 || id.rank.value() >= std::ssize(job->placement)) {
    return nullptr;
  }
  const auto index = static_cast<size_t>(id.rank.value());
  const RankPlacement& placed = job->placement[index];
  const bool owned = placed.worker == worker.name && placed.incarnation == worker.incarnation &&
                     job->ranks[index].life != RankState::Life::kExited;
  return owned ? job : nullptr;
}

Job& JobTable::restore(Job job) {
  const JobId id = job.id;
  last_id_ = std::max(last_id_, id);  // state from an earlier version has no last number
  const size_t bytes = bytes_of(job);
  bytes_.insert_or_assign(id, bytes);
  (is_terminal(job.state) ? finished_bytes_ : unfinished_bytes_) += bytes;
  if (is_terminal(job.state)) {
    finished_.emplace(job.finished_unix_ns, id);
  } else {
    outputs_.emplace(output_key(job.spec), id);
    if (job.attempt > Attempt(0)) launched_.insert(id);
  }
  return jobs_.insert_or_assign(id, std::move(job)).first->second;
}

Job& JobTable::submit(JobSpec spec, const std::string& request_id, int64_t unix_ns) {
  last_id_ = JobId(last_id_.value() + 1);
  Job& job = jobs_[last_id_];
  job.id = last_id_;
  job.spec = std::move(spec);
  unfinished_bytes_ += bytes_[job.id] = bytes_of(job.spec);
  job.submitted_unix_ns = unix_ns;
  outputs_.emplace(output_key(job.spec), job.id);
  if (!request_id.empty()) request_ids_.emplace(request_id, job.id);
  return job;
}

absl::Status JobTable::check_output_is_free(const JobSpec& spec) const {
  const std::string key = output_key(spec);
  const auto it = outputs_.lower_bound({key, JobId(0)});
  if (it == outputs_.end() || it->first != key) return absl::OkStatus();
  const Job& other = jobs_.at(it->second);
  return absl::FailedPreconditionError(absl::StrCat(
      "spec.output_directory is \"", absl::CHexEscape(spec.output_directory), "\", where job ",
      other.id.value(), " (", other.spec.name, "), which is ", av(job_state_name(other.state)),
      ", writes: give this job another run_name, or wait until that one has ended or cancel it"));
}

void JobTable::measure(const Job& job) {
  size_t& bytes = bytes_[job.id];
  unfinished_bytes_ -= bytes;
  bytes = bytes_of(job);
  unfinished_bytes_ += bytes;
}

void JobTable::end(const Job& job) {
  outputs_.erase({output_key(job.spec), job.id});
  launched_.erase(job.id);
  size_t& bytes = bytes_[job.id];
  unfinished_bytes_ -= bytes;
  bytes = bytes_of(job.spec);
  finished_bytes_ += bytes;
  finished_.emplace(job.finished_unix_ns, job.id);
}

std::vector<JobId> JobTable::forget_oldest(size_t count_max, size_t bytes_max) {
  std::vector<JobId> forgotten;
  while (!finished_.empty() && (finished_.size() > count_max || finished_bytes_ > bytes_max)) {
    const JobId id = finished_.begin()->second;
    finished_bytes_ -= bytes_.extract(id).mapped();
    finished_.erase(finished_.begin());
    std::erase_if(request_ids_, [id](const auto& entry) { return entry.second == id; });
    jobs_.erase(id);
    changes_.stored.erase(id);
    changes_.published.erase(id);
    forgotten.push_back(id);
  }
  return forgotten;
}

void JobTable::add_exit(Job& job, RankExit exit) {
  changes_.exits.emplace_back(job.id, job.exits.size());
  job.exits.push_back(std::move(exit));
}

void JobTable::note(Job& job, std::string reason) {
  job.reason = std::move(reason);
  store(job.id);
  publish(job.id);
}

void JobTable::set_incident(const Incident& incident) {
  Job* job = find(incident.job);
  if (job == nullptr || incident.id < job->incident.id) return;
  IncidentNote note{incident.id, incident.sentence};
  if (job->incident == note) return;
  job->incident = std::move(note);
  store(job->id);
  publish(job->id);
}

}  // namespace muster::coordinator
