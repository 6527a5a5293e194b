// Messages of workers, as events of the coordinator's loop.
#include "coordinator/shell/grpc/merge_pages.h"
#include "tests/simulation/fake_coordinator.h"
#include "tests/simulation/world.h"

namespace muster::simulation {

using namespace coordinator;  // NOLINT: this file is about its types

namespace {

// More than the pages of any simulated worker.
constexpr size_t kPagesMax = 1'000;

}  // namespace

void FakeCoordinator::send_register(StreamId stream, const worker::SendRegister& message) {
  WorkerRegistered event;
  event.worker = message.worker;
  event.incarnation = message.incarnation;
  event.version = message.version;
  event.host = message.host;
  event.slots = message.slots;
  event.gpus = message.gpus;
  event.place = {message.switches, message.domain};
  event.rendezvous_address = message.rendezvous_address;
  event.store = message.store;
  for (const auto& r : message.running)
    event.running.push_back({r.key.job, r.key.attempt, r.key.rank, r.pid});
  event.leaving = message.leaving;
  world_.network.to_coordinator(stream, false, [this, stream, event] {
    const auto peer = peers_.find(stream);
    if (peer == peers_.end()) return;
    if (peer->second.life) return;  // a second registration on one stream
    peer->second.life = Life{event.worker, event.incarnation};
    post(stream, event);
  });
}

void FakeCoordinator::send_leaving(StreamId stream, const worker::SendLeaving& message) {
  WorkerLeaving event;
  event.grace = message.grace;
  world_.network.to_coordinator(stream, false, [this, stream, event] { post(stream, event); });
}

void FakeCoordinator::send_heartbeat(StreamId stream, const worker::SendHeartbeat& message) {
  HeartbeatReceived event;
  for (const auto& r : message.ranks) {
    RankProgress progress;
    progress.job = r.key.job;
    progress.attempt = r.key.attempt;
    progress.rank = r.key.rank;
    progress.pid = r.pid;
    progress.phase = r.figures.phase;
    progress.phase_age = r.phase_age;
    progress.last_progress_age = r.last_progress_age;
    progress.step_seconds = r.figures.step_seconds;
    progress.step_times = r.figures.step_times;
    progress.collective_wait_seconds = r.figures.collective_wait_seconds;
    progress.process_state = r.figures.process_state;
    progress.step = r.figures.step;
    progress.checkpoint_step = r.figures.checkpoint_step;
    progress.checkpoints = r.figures.checkpoints;
    event.ranks.push_back(progress);
  }
  // Not overtaken: a stream preserves the order of heartbeats, on which their merging depends.
  world_.network.to_coordinator(stream, false, [this, stream, event] {
    const auto peer = peers_.find(stream);
    if (peer == peers_.end()) return;
    // As in coordinator/shell/grpc/fleet_service.cc.
    if (peer->second.pages) return merge_pages(*peer->second.pages, event.ranks, kPagesMax);
    peer->second.pages = event.ranks;
    post(stream, HeartbeatReceived{});
  });
}

void FakeCoordinator::send_stack_report(StreamId stream, const worker::SendStackReport& message) {
  StackReportReceived event;
  event.dump = DumpId(message.dump);
  event.job = message.launch.job;
  event.attempt = message.launch.attempt;
  event.sample = message.sample;
  if (message.stacks != nullptr) event.stacks = *message.stacks;
  event.ranks = message.ranks;
  world_.network.to_coordinator(stream, true, [this, stream, event] { post(stream, event); });
}

void FakeCoordinator::send_node_checked(StreamId stream, const worker::SendNodeChecked& message) {
  NodeChecked event;
  event.check = message.check;
  event.result = {message.passed, message.seconds, message.sentence, message.details};
  if (message.deep) {
    DeepCheckFigures& deep = event.deep.emplace();
    deep.kind = message.deep->kind;
    deep.stopped = message.deep->stopped;
    deep.wrong = message.deep->wrong;
    for (const worker::CheckMeasurement& one : message.deep->measurements)
      deep.measurements.push_back({one.name, one.value, one.unit});
  }
  world_.network.to_coordinator(stream, false, [this, stream, event] { post(stream, event); });
}

void FakeCoordinator::send_exit(StreamId stream, const worker::SendRankExited& message) {
  RankExited event;
  event.report_id = message.report_id;
  event.job = message.key.job;
  event.attempt = message.key.attempt;
  event.rank = message.key.rank;
  event.exit_code = message.exit_code;
  event.signal = message.signal;
  event.last_step = message.last_step;
  event.detail = message.detail;
  world_.network.to_coordinator(stream, false, [this, stream, event] { post(stream, event); });
}

}  // namespace muster::simulation
