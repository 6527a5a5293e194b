// Requests of users: cancellations, checkpoints, stacks, updates, and exclusions of nodes.
#include <array>
#include <string>
#include <string_view>

#include <absl/strings/str_cat.h>

#include "common/text/absl_view.h"
#include "tests/simulation/fake_coordinator.h"
#include "tests/simulation/world.h"

namespace muster::simulation {

using namespace coordinator;  // NOLINT: this file is about its types

void FakeCoordinator::cancel(JobId job, bool force) {
  request(JobCancelRequested{RequestToken(next_token_++), job, force, 0});
}

void FakeCoordinator::checkpoint(JobId job) {
  request(JobCheckpointRequested{RequestToken(next_token_++), job, 0});
}

void FakeCoordinator::update(JobId job, const std::string& config, UpdateTime time) {
  if (!is_up() || !core_->jobs().contains(job)) return;
  const Job& known = core_->jobs().at(job);
  // The restarts of a bad revision without a trial take too long.
  const bool needs_trial = known.spec.restarts_max > 0 && !config.ends_with("good");
  if (needs_trial && known.attempt == Attempt(0)) return;
  JobUpdateRequested event{RequestToken(next_token_++),
                           job,
                           config,
                           known.revision,
                           config,
                           known.spec,
                           !needs_trial && world_.random.chance(0.3) ? 0 : 5,  // 0: without a trial
                           time};
  event.spec.train_config_json = config;
  for (SmallerJob& size : event.spec.smaller)
    size.train_config_json = absl::StrCat(size.nodes, config);
  request(event);
  if (world_.random.chance(0.2)) request(event);  // the answer was lost
}

void FakeCoordinator::withdraw_update(JobId job) {
  JobUpdateRequested event;
  event.token = RequestToken(next_token_++);
  event.job = job;
  event.withdraws = true;
  request(event);
}

void FakeCoordinator::stacks(JobId job) {
  request(StacksRequested{RequestToken(next_token_++), job, Rank(-1), 0});
}

void FakeCoordinator::exclude(const WorkerName& worker, Duration time,
                              std::optional<Duration> drained_in) {
  const int64_t at = drained_in ? world_.scheduler.unix_ns() + drained_in->count() : 0;
  request(NodeExcludeRequested{RequestToken(next_token_++), worker, "a person's reason", time, 0,
                               false, at, world_.random.chance(0.5)});
}

void FakeCoordinator::admit(const WorkerName& worker) {
  request(NodeAdmitRequested{RequestToken(next_token_++), worker, 0});
}

// Plans a checkpoint, a dump of stacks and a cancellation of the job, each with some probability.
void World::plan_requests(JobId job) {
  if (random.chance(0.5)) {
    scheduler.after(random.between_ms(1'000, 15'000), [this, job] {
      note(absl::StrCat("a request to job ", job.value(), " for a checkpoint"));
      coordinator.checkpoint(job);
    });
  }
  if (random.chance(0.3)) {
    scheduler.after(random.between_ms(1'000, 20'000), [this, job] { coordinator.stacks(job); });
  }
  if (faults_ == Faults::kAll) plan_updates(job);
  if (!random.chance(0.15)) return;
  scheduler.after(random.between_ms(0, 20'000), [this, job, force = random.chance(0.3)] {
    note(absl::StrCat("someone cancels job ", job.value()));
    coordinator.cancel(job, force);
  });
}

void World::plan_updates(JobId job) {
  constexpr std::array<std::string_view, 4> kKinds = {"good", "good", Trainers::kFailsLater,
                                                      Trainers::kFailsAtStart};
  constexpr std::array<coordinator::UpdateTime, 4> kTimes = {
      coordinator::UpdateTime::kAfterSave, coordinator::UpdateTime::kAfterSave,
      coordinator::UpdateTime::kAtCheckpoint, coordinator::UpdateTime::kNow};
  while (random.chance(0.4)) {
    const std::string config =
        absl::StrCat("config-", next_config_++, "-", av(kKinds[random.below(kKinds.size())]));
    const coordinator::UpdateTime time = kTimes[random.below(kTimes.size())];
    scheduler.after(random.between_ms(500, 15'000), [this, job, config, time] {
      note(absl::StrCat("someone updates job ", job.value(), " to ", config));
      coordinator.update(job, config, time);
      if (!random.chance(0.2)) return;
      scheduler.after(random.between_ms(0, 3'000), [this, job, config, time] {
        note(absl::StrCat("someone withdraws the update of job ", job.value()));
        coordinator.withdraw_update(job);
        // The answer to the request was lost, and the client repeats it.
        if (random.chance(0.5)) coordinator.update(job, config, time);
      });
    });
  }
}

}  // namespace muster::simulation
