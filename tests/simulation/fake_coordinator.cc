#include "tests/simulation/fake_coordinator.h"

#include <absl/strings/str_cat.h>

#include "tests/simulation/describe.h"
#include "tests/simulation/world.h"

namespace muster::simulation {
namespace {

using namespace coordinator;  // NOLINT: this file is about its types

std::string describe_all(const ActionList& actions) {
  std::string text;
  for (const Action& action : actions) absl::StrAppend(&text, "      ", describe(action), "\n");
  return text;
}

}  // namespace

void FakeCoordinator::boot() {
  ++life_;
  epoch_ = Epoch(epoch_.value() + 1);
  born_ = world_.scheduler.now();
  silent_since_ = born_;
  stalled_until_ = born_;
  began_with_ = DurableState{};
  began_with_.store = store_;
  for (const auto& [id, job] : disk_jobs_) began_with_.jobs.push_back(job);
  began_with_.request_ids = disk_requests_;
  began_with_.last_job_id = disk_last_job_id_;
  for (const auto& [id, incident] : disk_incidents_) {
    began_with_.incidents.push_back(id);
    if (is_unfinished(incident)) began_with_.open_incidents.push_back(incident);
  }
  for (const auto& [name, node] : disk_nodes_) began_with_.nodes.push_back(node);
  record_.clear();
  last_messages_.clear();
  core_.emplace(world_.core_options, began_with_, born_);
  world_.note(absl::StrCat("coordinator boots, epoch ", epoch_.value()));
  plan_tick();
}

void FakeCoordinator::crash(Duration down) {
  if (!core_) return;
  world_.note("coordinator crashes");
  if (std::string difference = replay(); !difference.empty()) world_.fail(difference);
  ++life_;
  core_.reset();
  links_.clear();
  replies_.clear();
  for (const auto& [stream, peer] : std::exchange(peers_, {})) world_.network.cut(stream);
  world_.scheduler.after(down, [this, life = life_] {
    if (life == life_) boot();
  });
}

void FakeCoordinator::crash_and_lose_disk(Duration down) {
  if (!core_) return;
  crash(down);
  world_.note("and its disk is lost");
  store_ = StoreId(store_.value() + 1);
  epoch_ = Epoch(0);
  disk_jobs_.clear();
  disk_requests_.clear();
  disk_incidents_.clear();
  disk_nodes_.clear();
  disk_last_job_id_ = JobId(0);
  world_.invariants.forget_store();
}

bool FakeCoordinator::is_stalled() const { return stalled_until_ > world_.scheduler.now(); }

void FakeCoordinator::stall(Duration time) {
  if (!core_ || is_stalled()) return;
  world_.note("coordinator stands still");
  stalled_until_ = world_.scheduler.now() + time;
  world_.scheduler.at(stalled_until_, [this, life = life_] {
    if (life == life_) forgive_stall();
  });
}

// Excludes stalls from silence, by the core's rule: a pause of more than an interval since its last
// step is a stall.
void FakeCoordinator::forgive_stall() {
  const Instant last_step = record_.empty() ? born_ : record_.back().now;
  const Duration late =
      world_.scheduler.now() - (last_step + world_.core_options.heartbeat_interval);
  if (late <= Duration::zero()) return;
  silent_since_ += late;
  for (auto& [life, last_message] : last_messages_) last_message += late;
}

std::string FakeCoordinator::replay() const {
  Core again(world_.core_options, began_with_, born_);
  for (const Recorded& r : record_) {
    ActionList actions;
    again.step(r.event, r.now, actions);
    if (const std::string text = describe_all(actions); text != r.actions) {
      return absl::StrCat("a replay decided differently on: ", describe(r.event), "\n", r.actions,
                          "instead:\n", text);
    }
  }
  return "";
}

Instant FakeCoordinator::last_message_of(const WorkerName& worker, Incarnation incarnation) const {
  const auto it = last_messages_.find({worker, incarnation});
  return it == last_messages_.end() ? silent_since_ : it->second;
}

void FakeCoordinator::submit(const std::string& request_id, const JobSpec& spec,
                             std::function<void(const Reply&)> on_reply) {
  if (!core_ || is_stalled()) return;
  const RequestToken token(next_token_++);
  replies_.emplace(token, std::move(on_reply));
  step(JobSubmitted{token, request_id, spec, 0});
}

void FakeCoordinator::cancel(JobId job, bool force) {
  if (core_ && !is_stalled()) step(JobCancelRequested{RequestToken(next_token_++), job, force, 0});
}

void FakeCoordinator::checkpoint(JobId job) {
  if (core_ && !is_stalled()) step(JobCheckpointRequested{RequestToken(next_token_++), job, 0});
}

void FakeCoordinator::stacks(JobId job) {
  if (core_ && !is_stalled()) step(StacksRequested{RequestToken(next_token_++), job, Rank(-1), 0});
}

void FakeCoordinator::exclude(const WorkerName& worker, Duration time) {
  if (core_ && !is_stalled())
    step(NodeExcludeRequested{RequestToken(next_token_++), worker, "a person's reason", time, 0,
                              false});
}

void FakeCoordinator::admit(const WorkerName& worker) {
  if (core_ && !is_stalled()) step(NodeAdmitRequested{RequestToken(next_token_++), worker, 0});
}

void FakeCoordinator::accept(StreamId stream, int host) { peers_[stream] = {host, std::nullopt}; }

void FakeCoordinator::stream_broke(StreamId stream) {
  if (is_stalled()) {
    world_.scheduler.at(stalled_until_, [this, stream] { stream_broke(stream); });
    return;
  }
  const auto peer = peers_.find(stream);
  if (peer == peers_.end()) return;
  const auto life = peer->second.life;
  if (life) post(stream, WorkerDisconnected{life->first, life->second});
  peers_.erase(stream);
}

void FakeCoordinator::send_register(StreamId stream, const worker::SendRegister& message) {
  WorkerRegistered event;
  event.worker = message.worker;
  event.incarnation = message.incarnation;
  event.version = message.version;
  event.host = message.host;
  event.slots = message.slots;
  event.gpus = message.gpus;
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
  world_.network.to_coordinator(stream, true, [this, stream, event] { post(stream, event); });
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

// As in coordinator/shell/core_loop.cc: an admitted registration takes over the worker's link, and
// events of a replaced stream are dropped.
void FakeCoordinator::post(StreamId stream, Event event) {
  if (is_stalled()) {
    world_.scheduler.at(stalled_until_, [this, stream, event] { post(stream, event); });
    return;
  }
  const auto peer = peers_.find(stream);
  if (!core_ || peer == peers_.end() || !peer->second.life) return;
  const Life life = *peer->second.life;
  std::visit(
      [&](auto& e) {
        if constexpr (requires { e.incarnation; }) {
          e.worker = life.first;
          e.incarnation = life.second;
        }
      },
      event);
  const auto link = links_.find(life);
  const bool registers = std::holds_alternative<WorkerRegistered>(event);
  if (!registers && (link == links_.end() || link->second != stream)) return;
  if (std::holds_alternative<WorkerDisconnected>(event)) {
    links_.erase(life);
  } else {
    last_messages_[life] = world_.scheduler.now();
  }
  step(std::move(event), registers ? stream : kNoStream);
}

// Ends the streams of refused workers. The registering stream takes over its worker's link unless
// it is refused.
void FakeCoordinator::settle_streams(const ActionList& actions, StreamId registering) {
  for (const Action& action : actions) {
    if (const auto* refuse = std::get_if<RefuseWorker>(&action)) {
      const auto link = links_.extract({refuse->worker, refuse->incarnation});
      if (!link.empty()) close(link.mapped(), refuse->status);
    } else if (const auto* refused = std::get_if<RefuseRegistration>(&action)) {
      close(registering, refused->status);
      registering = kNoStream;
    }
  }
  if (registering == kNoStream) return;
  const Life life = peers_.at(registering).life.value();
  if (const auto old = links_.find(life); old != links_.end() && old->second != registering)
    close(old->second, absl::AbortedError("another stream"));
  links_[life] = registering;
}

void FakeCoordinator::step(Event event, StreamId registering) {
  if (!core_) return;
  std::visit([&](auto& e) { e.unix_ns = world_.scheduler.unix_ns(); }, event);
  const Instant now = world_.scheduler.now();
  world_.invariants.before_step(*core_, event);
  ActionList actions;
  core_->step(event, now, actions);
  const std::string text = describe_all(actions);
  record_.push_back({event, now, text});
  world_.note(absl::StrCat("  ", describe(event), "\n", text));

  const bool may_crash = world_.faults_on && !actions.empty();
  if (may_crash && world_.random.chance(0.001)) return crash(world_.random.between_ms(10, 8'000));
  if (!commit(actions)) return;
  world_.invariants.after_commit(event);
  settle_streams(actions, registering);
  for (const Action& action : actions) {
    if (may_crash && world_.random.chance(0.0005))
      return crash(world_.random.between_ms(10, 8'000));
    carry_out(action);
    if (!core_) return;
  }
  plan_tick();
}

bool FakeCoordinator::commit(const ActionList& actions) {
  for (const Action& action : actions) {
    if (const auto* persist = std::get_if<PersistJob>(&action)) {
      disk_jobs_.insert_or_assign(persist->job, durable(core_->jobs().at(persist->job)));
    } else if (const auto* exit = std::get_if<PersistExit>(&action)) {
      Job& job = disk_jobs_.at(exit->job);
      if (exit->attempt != job.attempt || exit->position > job.exits.size())
        world_.fail(absl::StrCat("an exit does not continue the stored ones: ", describe(action)));
      if (exit->position == job.exits.size()) job.exits.push_back(exit->exit);
    } else if (const auto* request = std::get_if<PersistRequestId>(&action)) {
      disk_requests_.insert_or_assign(request->request_id, request->job);
    } else if (const auto* last = std::get_if<PersistLastJobId>(&action)) {
      disk_last_job_id_ = last->job;
    } else if (const auto* incident = std::get_if<PersistIncident>(&action)) {
      disk_incidents_.insert_or_assign(incident->incident.id, incident->incident);
    } else if (const auto* old = std::get_if<ForgetIncident>(&action)) {
      disk_incidents_.erase(old->incident);
    } else if (const auto* node = std::get_if<PersistNode>(&action)) {
      disk_nodes_.insert_or_assign(node->node.worker, node->node);
      disk_nodes_.at(node->node.worker).until.reset();
    } else if (const auto* sound = std::get_if<ForgetNode>(&action)) {
      disk_nodes_.erase(sound->worker);
    } else if (const auto* forget = std::get_if<ForgetJob>(&action)) {
      disk_jobs_.erase(forget->job);
      std::erase_if(disk_requests_, [&](const auto& e) { return e.second == forget->job; });
    }
  }
  return true;
}

void FakeCoordinator::carry_out(const Action& action) {
  if (const auto* send = std::get_if<SendToWorker>(&action)) {
    const auto link = links_.find({send->worker, send->incarnation});
    if (link == links_.end()) return;
    const int host = peers_.at(link->second).host;
    world_.network.to_worker(
        link->second,
        [this, stream = link->second, host, payload = send->payload, store = store_,
         epoch = epoch_] { world_.worker(host).deliver(stream, payload, store, epoch); });
  } else if (const auto* change = std::get_if<NodeDecision>(&action)) {
    exclusions_ += change->what == NodeDecision::What::kExcluded;
  } else if (const auto* reply = std::get_if<Reply>(&action)) {
    auto waiting = replies_.extract(reply->token);
    if (!waiting.empty()) waiting.mapped()(*reply);
  }
}

void FakeCoordinator::close(StreamId stream, const absl::Status& status) {
  const auto peer = peers_.find(stream);
  if (peer == peers_.end()) return;
  const int host = peer->second.host;
  peers_.erase(peer);
  worker::StreamEnd end = worker::StreamEnd::kBroken;  // as in worker/shell/stream.cc
  if (status.code() == absl::StatusCode::kAlreadyExists) end = worker::StreamEnd::kReplaced;
  if (status.code() == absl::StatusCode::kFailedPrecondition ||
      status.code() == absl::StatusCode::kInvalidArgument) {
    end = worker::StreamEnd::kRefused;
  }
  world_.network.coordinator_closes(
      stream, [this, host, stream, end, reason = std::string(status.message())] {
        world_.worker(host).stream_ended(stream, end, reason);
      });
}

void FakeCoordinator::plan_tick() {
  if (!core_) return;
  const auto deadline = core_->next_deadline();
  if (!deadline) return;
  world_.scheduler.at(std::max(*deadline, stalled_until_), [this, life = life_, when = *deadline] {
    if (life != life_ || !core_) return;
    if (is_stalled()) return plan_tick();
    const auto due = core_->next_deadline();
    if (due && *due <= when) step(Tick{});
  });
}

}  // namespace muster::simulation
