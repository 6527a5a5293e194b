// Deep checks of nodes: their requests, and the checks on simulated workers.
#include <absl/strings/str_cat.h>

#include "tests/simulation/fake_coordinator.h"
#include "tests/simulation/fake_worker.h"
#include "tests/simulation/world.h"

namespace muster::simulation {
namespace {

// Above the time of a sweep in which nodes fail to answer, try again, and test links.
constexpr Duration kSweepTimeMax = std::chrono::minutes(20);
// The wait of ranks for a check that cannot be killed (worker/core/core_checks.cc).
constexpr Duration kCheckGoneWithin = std::chrono::seconds(5);

}  // namespace

void FakeCoordinator::check_nodes(bool links) {
  coordinator::NodeSweepRequested event;
  event.token = RequestToken(next_token_++);
  event.links = links;
  request(event);
}

// Requests deep checks again and again while there are faults, beside jobs. Admits excluded nodes
// now and then, and all of them after the faults, because a job may need the complete fleet.
void World::sweep_later() {
  scheduler.after(sweeps.between_ms(2'000, 20'000), [this] {
    sweep_later();
    if (!coordinator.is_up()) return;
    const coordinator::Core& core = coordinator.core();
    for (const auto& [name, node] : std::map(core.nodes())) {
      const bool is_out =
          node.excluded && node.suspicion == coordinator::Suspicion::kDeepCheckFailed;
      if (is_out && (!faults_on || sweeps.chance(0.2))) coordinator.admit(name);
    }
    if (const coordinator::Sweep* sweep = core.sweep(); sweep != nullptr) {
      require(sweep->is_over() ||
                  Duration(scheduler.unix_ns() - sweep->started_unix_ns()) < kSweepTimeMax,
              "sweep ", sweep->id(), " does not end: ", sweep->stage_text());
      if (!sweep->is_over()) return;
    }
    if (!faults_on) return;
    ++totals_.sweeps;
    note("someone checks the nodes deeply");
    coordinator.check_nodes(sweeps.chance(0.8));
  });
}

// Some checks find a fault, and some hang until the worker kills them.
void FakeWorker::check_deeply(const worker::DeepCheckOrder& order) {
  world_.require(!deep_check_, name_.value(), " runs two deep checks at once");
  const bool is_bad = world_.faults_on && world_.sweeps.chance(0.1);
  const bool hangs = world_.faults_on && world_.sweeps.chance(0.05);
  deep_stopped_at_.reset();
  worker::DeepCheckDone done;
  done.result = {!is_bad, 1, is_bad ? "a GEMM is wrong" : "good", ""};
  done.figures.kind = "simulated";
  done.figures.wrong = is_bad && world_.sweeps.chance(0.5);
  done.figures.measurements = {
      {order.group_size > 1 ? "all_reduce" : "gemm", world_.sweeps.chance(0.05) ? 1.0 : 10.0, ""}};
  end_deep_check_after(hangs ? order.deadline : world_.sweeps.between_ms(100, 8'000), done);
}

// Some checks wait for a dead file system, and end late.
void FakeWorker::stop_deep_check() {
  if (!deep_check_ || deep_stopped_at_) return;
  deep_stopped_at_ = world_.scheduler.now();
  worker::DeepCheckDone done;
  done.result.sentence = "ranks need the node";
  done.figures.stopped = true;
  const bool hangs = world_.faults_on && world_.sweeps.chance(0.1);
  end_deep_check_after(
      hangs ? world_.sweeps.between_ms(5'000, 30'000) : world_.sweeps.between_ms(5, 4'500), done);
}

void FakeWorker::end_deep_check_after(Duration time, const worker::DeepCheckDone& done) {
  deep_check_ = ++deep_checks_;
  world_.scheduler.after(time, [this, life = life_, number = deep_checks_, done] {
    if (life != life_ || deep_check_ != number) return;
    deep_check_.reset();
    step(done);
  });
}

void FakeWorker::spares_the_deep_check() const {
  world_.require(!deep_check_ || (deep_stopped_at_ &&
                                  world_.scheduler.now() >= *deep_stopped_at_ + kCheckGoneWithin),
                 name_.value(), " starts a rank beside a deep check");
}

}  // namespace muster::simulation
