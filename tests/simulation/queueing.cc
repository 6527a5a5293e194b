// Jobs with dependencies, time limits and quotas, and arrays: what users submit, and the
// invariants.
#include <algorithm>

#include "coordinator/core/queue/dependencies.h"
#include "tests/simulation/fake_coordinator.h"
#include "tests/simulation/invariants.h"
#include "tests/simulation/world.h"

namespace muster::simulation {

using namespace coordinator;  // NOLINT: this file is about its types

QueuePolicy queue_policy() {
  QueuePolicy policy;
  policy.half_life = std::chrono::seconds(20);
  policy.users["ada"].max[static_cast<size_t>(QuotaKind::kRunningJobs)] = 1;
  policy.teams["vision"].max[static_cast<size_t>(QuotaKind::kRunningJobs)] = 2;
  policy.users["bob"].shares = 3;
  return policy;
}

// Draws nothing from the random generator, so that faults stay those of the seed.
void World::draw_queueing(JobSpec& spec) {
  spec.user = next_request_ % 2 == 0 ? "ada" : "bob";
  if (next_request_ % 4 < 2) spec.team = "vision";
  if (next_request_ % 5 == 2) {
    spec.array = "sweep";
    spec.array_index = static_cast<int32_t>(next_request_);
    spec.array_running_max = 1;
  }
  if (next_request_ % 7 == 3 && faults_ == Faults::kAll) spec.time_limit_seconds = 25;
  if (next_request_ % 3 != 1 || !coordinator.is_up()) return;
  // The newest jobs are rarely forgotten before the job is submitted.
  const auto& jobs = coordinator.core().jobs();
  size_t kind = next_request_ / 3;
  for (auto job = jobs.rbegin(); job != jobs.rend() && spec.dependencies.size() < 2; ++job)
    spec.dependencies.push_back(
        {job->first, static_cast<DependencyKind>(kind++ % kDependencyKindNames.size())});
}

// Requires that a job starts only if its dependencies are met, and neither its array nor its quotas
// are exceeded.
void Invariants::starts_are_permitted(const Job* was, const Job& job) {
  if (job.attempt != Attempt(1) || (was != nullptr && was->attempt == job.attempt)) return;
  const Core& core = world_.coordinator.core();
  world_.require(job.waits_for.empty(), "job ", job.id.value(), " starts and waits for others");
  for (const JobDependency& one : job.spec.dependencies) {
    const auto other = core.jobs().find(one.job);
    if (other == core.jobs().end()) continue;  // its record was deleted
    world_.require(is_met(one.kind, other->second.state), "job ", job.id.value(),
                   " starts, and job ", one.job.value(), " is ",
                   std::string(job_state_name(other->second.state)));
  }
  int64_t of_array = 0, of_user = 0, of_team = 0;
  for (const auto& [id, other] : core.jobs()) {
    if (is_terminal(other.state) || other.attempt == Attempt(0)) continue;
    of_array += other.spec.array == job.spec.array && other.spec.user == job.spec.user;
    of_user += other.spec.user == job.spec.user;
    of_team += other.spec.team == job.spec.team;
  }
  const std::string who = "job " + std::to_string(job.id.value()) + " starts above ";
  if (job.spec.is_array_task())
    world_.require(of_array <= job.spec.array_running_max, who, "the limit of its array");
  if (core.policy() == nullptr) return;
  world_.require(job.spec.user != "ada" || of_user <= 1, who, "its user's quota");
  world_.require(job.spec.team != "vision" || of_team <= 2, who, "its team's quota");
}

// Requires that no attempt continues after the job's time limit. The coordinator ends it at its
// ticks, which may be late.
void Invariants::time_limits_end_jobs(const Event* event) {
  constexpr Duration kLate = std::chrono::seconds(2);
  if (event == nullptr || !std::holds_alternative<Tick>(*event)) return;
  const Core& core = world_.coordinator.core();
  for (const auto& [id, job] : core.jobs()) {
    if (job.spec.time_limit_seconds == 0 || !is_running(job.state) || job.cancel_requested)
      continue;
    const Duration used = table_of(core.account_of(job, world_.scheduler.now())).running();
    world_.require(used <= std::chrono::seconds(job.spec.time_limit_seconds) + kLate, "job ",
                   id.value(), " runs after its time limit");
  }
}

}  // namespace muster::simulation
