// Invariants of updates, and of all planned ends of attempts.
#include <algorithm>
#include <set>
#include <string>

#include "coordinator/core/recovery/restart_policy.h"
#include "tests/simulation/invariants.h"
#include "tests/simulation/world.h"

namespace muster::simulation {

using namespace coordinator;  // NOLINT: this file is about its types

void Invariants::note_spawn(StoreId store, const worker::LaunchKey& launch,
                            const std::string& config) {
  const auto& known = configs_.try_emplace({store, launch}, config).first->second;
  world_.require(known == config, "one attempt of job ", launch.job.value(), " has the configs ",
                 known, " and ", config);
}

void Invariants::forget_unstored_revisions() {
  std::erase_if(specs_, [&](const auto& entry) {
    const auto job = before_.find(entry.first.first);
    return job == before_.end() || job->second.newest_revision < entry.first.second;
  });
  std::erase_if(failed_, [&](const auto& entry) {
    const auto& [store, id, revision] = entry;
    const auto job = before_.find(id);
    return store == world_.coordinator.store() && job != before_.end() &&
           job->second.revision == revision;
  });
}

// Requires that an attempt has one revision, that a revision has one spec, that a rollback reaches
// the revision before the trial, and that a revision that was rolled back does not return.
void Invariants::revisions_change_between_attempts(const Job* was, const Job& job) {
  accepted_updates_are_kept(was, job);
  const StoreId store = world_.coordinator.store();
  const auto name = absl::StrCat("job ", job.id.value(), " with revision ", job.revision);
  if (!is_terminal(job.state)) {
    const auto& spec = specs_.try_emplace({job.id, job.revision}, job.spec).first->second;
    world_.require(spec == job.spec, name, " has another spec than before");
    world_.require(!failed_.contains({store, job.id, job.revision}), name,
                   " has a revision that was rolled back");
  }
  if (was == nullptr || was->revision == job.revision) return;
  world_.require(job.attempt != was->attempt || !is_live(job.state), name,
                 " has changed its revision during an attempt");
  if (job.revision > was->revision) {
    ++updates_;
    world_.require(was->state == JobState::kQueued || was->update, name, " was never updated");
    world_.require(!was->update || was->update->spec == job.spec || is_terminal(job.state), name,
                   " has another spec than its update");
    return;
  }
  failed_.emplace(store, job.id, was->revision);
  world_.require(
      was->trial && was->trial->former_revision == job.revision && was->trial->former == job.spec,
      name, " did not return to the revision before its trial");
}

// Requires that an update that was accepted is pending or has a note, and that a request is
// accepted once, also after it was withdrawn.
void Invariants::accepted_updates_are_kept(const Job* was, const Job& job) {
  std::set<std::string> requests;
  const auto take = [&](const RevisionNote& note) {
    world_.require(requests.insert(note.request_id).second, "job ", job.id.value(),
                   " has accepted the request ", note.request_id, " twice");
  };
  for (const RevisionNote& note : job.revisions) take(note);
  if (job.update) take(job.update->note);
  if (was == nullptr || !was->update) return;
  const std::string& request = was->update->note.request_id;
  world_.require(requests.contains(request), "job ", job.id.value(), " has lost the update ",
                 request);
}

// Requires that ranks that were ordered to leave for an update or a drain, and that have left
// together, have saved their last step, so that the next attempt repeats none.
void Invariants::planned_leaves_repeat_no_step(const Job* was, const Job& job) {
  if (was == nullptr) return;
  const bool leaves = job.state == JobState::kRestarting && was->state != JobState::kRestarting &&
                      job.faults.back().is_planned && job.stop_grace > Duration::zero();
  if (leaves) {
    ++planned_;
    leaving_since_[job.id] = world_.scheduler.now();
  }
  const auto since = leaving_since_.find(job.id);
  if (since == leaving_since_.end() || (job.attempt == was->attempt && is_live(job.state))) return;
  // Later, a rank may have left without its peers.
  constexpr Duration kTogether = std::chrono::milliseconds(2'500);
  const bool is_together =
      world_.scheduler.now() - since->second < kTogether &&
      was->exits.size() + 1 >= was->ranks.size() && !was->exits.empty() &&
      std::ranges::all_of(was->exits, [](const RankExit& exit) { return is_preempted(exit); });
  leaving_since_.erase(since);
  if (!is_together || is_terminal(job.state)) return;
  int64_t step = -1;
  for (const RankExit& exit : was->exits) step = std::max(step, exit.last_step);
  if (step < 0) return;  // it had not begun to train
  ++saved_as_planned_;
  const int64_t saved = world_.trainers.checkpoint_of(world_.coordinator.store(), job.id);
  world_.require(saved >= step, "job ", job.id.value(), " left as planned after step ", step,
                 ", and has saved only step ", saved);
}

}  // namespace muster::simulation
