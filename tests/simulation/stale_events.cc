// Events of workers' earlier incarnations, which the simulated shell gives to the core.
#include "tests/simulation/fake_coordinator.h"
#include "tests/simulation/world.h"

namespace muster::simulation {

using namespace coordinator;  // NOLINT: this file is about its types

namespace {

// The chance that an iteration gives the core a stale event of a worker.
constexpr double kStaleEventChance = 0.002;
constexpr size_t kRememberedMax = 50;
// One heartbeat in so many is remembered, because heartbeats would soon replace all other events.
constexpr uint64_t kHeartbeatsPerRemembered = 16;

}  // namespace

std::pair<WorkerName, Incarnation> life_of(const Event& event) {
  return std::visit(
      [](const auto& e) -> std::pair<WorkerName, Incarnation> {
        if constexpr (requires { e.incarnation; }) return {e.worker, e.incarnation};
        return {};
      },
      event);
}

void FakeCoordinator::remember(const Event& event) {
  if (life_of(event).first == WorkerName() || std::holds_alternative<WorkerRegistered>(event))
    return;
  if (std::holds_alternative<HeartbeatReceived>(event) &&
      ++heartbeats_ % kHeartbeatsPerRemembered != 0)
    return;
  remembered_.push_back(event);
  if (remembered_.size() > kRememberedMax) remembered_.pop_front();
}

// The shell drops most events of replaced streams, and the core must not rely on that.
void FakeCoordinator::give_stale_event(ActionList& actions) {
  if (!world_.faults_on || !world_.random.chance(kStaleEventChance)) return;
  std::vector<const Event*> stale;
  for (const Event& event : remembered_)
    if (world_.invariants.is_stale(event)) stale.push_back(&event);
  if (stale.empty()) return;
  ++stale_events_;
  // The core first processes the time that has passed, which may cause actions.
  call_core(tick(), actions);
  call_core(*stale[world_.random.below(stale.size())], actions);
}

}  // namespace muster::simulation
