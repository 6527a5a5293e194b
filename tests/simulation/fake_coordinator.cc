#include "tests/simulation/fake_coordinator.h"

#include <algorithm>

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

std::string describe_call(const std::optional<Event>& event) {
  return event ? describe(*event) : "queue pass";
}

// The chance that a Tick reports unread messages of many workers.
constexpr double kBehindChance = 0.005;
// The chance that a part of a message is unread when a lease ends.
constexpr double kPartChance = 0.1;

// Returns the duration of an iteration: the decisions, and the wait for the disk. Events of this
// time are taken together by the next iteration.
Duration draw_iteration(Random& random, bool faults_on) {
  if (!faults_on) return random.between_ms(0, 5);
  if (random.chance(0.6)) return Duration::zero();
  return random.chance(0.9) ? random.between_ms(1, 30) : random.between_ms(30, 400);
}

}  // namespace

void FakeCoordinator::boot() {
  ++life_;
  epoch_ = Epoch(epoch_.value() + 1);
  born_ = world_.scheduler.now();
  silent_since_ = born_;
  stalled_until_ = born_;
  busy_until_ = born_;
  last_call_ = born_;
  next_iteration_.reset();
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
  for (const auto& [party, usage] : disk_usages_) began_with_.usages.push_back(usage);
  record_.clear();
  last_messages_.clear();
  core_.emplace(world_.core_options, began_with_, born_);
  world_.invariants.begin(*core_);
  inbox_.push_back({kNoStream, QueuePolicyChanged{queue_policy()}});
  world_.note(absl::StrCat("coordinator boots, epoch ", epoch_.value()));
  plan_iteration();
}

void FakeCoordinator::crash(Duration down) {
  if (!core_) return;
  world_.note("coordinator crashes");
  if (std::string difference = replay(); !difference.empty()) world_.fail(difference);
  ++life_;
  core_.reset();
  links_.clear();
  inbox_.clear();
  ending_.clear();
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
  disk_usages_.clear();
  disk_last_job_id_ = JobId(0);
  world_.invariants.forget_store();
}

bool FakeCoordinator::is_stalled() const { return stalled_until_ > world_.scheduler.now(); }

void FakeCoordinator::stall(Duration time) {
  if (!core_ || is_stalled()) return;
  world_.note("coordinator stands still");
  stalled_until_ = world_.scheduler.now() + time;
}

// Excludes stalls from silence, by the core's rule: a pause of more than an interval since its last
// step is a stall.
void FakeCoordinator::forgive_stall() {
  const Duration late =
      world_.scheduler.now() - (last_call_ + world_.core_options.heartbeat_interval);
  if (late <= Duration::zero()) return;
  silent_since_ += late;
  for (auto& [life, last_message] : last_messages_) last_message += late;
}

std::string FakeCoordinator::replay() const {
  Core again(world_.core_options, began_with_, born_);
  for (const Recorded& r : record_) {
    ActionList actions;
    if (r.event) {
      again.take(*r.event, r.now, actions);
    } else {
      again.place_jobs(actions);
    }
    if (const std::string text = describe_all(actions); text != r.actions) {
      return absl::StrCat("a replay decided differently on: ", describe_call(r.event), "\n",
                          r.actions, "instead:\n", text);
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
  if (!core_) return;
  const RequestToken token(next_token_++);
  replies_.emplace(token, std::move(on_reply));
  request(JobSubmitted{token, request_id, spec, 0, unrestricted_caller()});
}

void FakeCoordinator::accept(StreamId stream, int host) { peers_[stream] = {host, std::nullopt}; }

void FakeCoordinator::stream_broke(StreamId stream) {
  const auto peer = peers_.find(stream);
  if (peer == peers_.end()) return;
  const auto life = peer->second.life;
  if (life) post(stream, WorkerDisconnected{life->first, life->second});
  peers_.erase(stream);
}

void FakeCoordinator::post(StreamId stream, Event event) {
  const auto peer = peers_.find(stream);
  if (!core_ || peer == peers_.end() || !peer->second.life) return;
  std::visit(
      [&](auto& e) {
        if constexpr (requires { e.incarnation; }) {
          e.worker = peer->second.life->first;
          e.incarnation = peer->second.life->second;
        }
      },
      event);
  inbox_.push_back({stream, std::move(event)});
  plan_iteration();
}

void FakeCoordinator::request(Event event) {
  if (!core_) return;
  inbox_.push_back({kNoStream, std::move(event)});
  plan_iteration();
}

// As CoreLoop::run().
void FakeCoordinator::iterate() {
  const Instant now = world_.scheduler.now();
  const std::optional<Instant> deadline = core_->next_deadline();
  if (inbox_.empty() && (!deadline || *deadline > now)) return plan_iteration();
  forgive_stall();
  ActionList actions;
  for (Item& item : std::exchange(inbox_, {})) take(std::move(item), actions);
  if (deadline && *deadline <= now) call_core(tick(), actions);
  give_stale_event(actions);
  call_core(std::nullopt, actions);
  const bool may_crash = world_.faults_on && !actions.empty();
  if (may_crash && world_.random.chance(0.001)) return crash(world_.random.between_ms(10, 8'000));
  const StorageBatch batch = batch_of(*core_, actions);
  commit(batch);
  world_.invariants.after_commit(actions.empty());
  for (const auto& [stream, status] : std::exchange(ending_, {})) close(stream, status);
  for (const Action& action : actions) {
    if (may_crash && world_.random.chance(0.0005))
      return crash(world_.random.between_ms(10, 8'000));
    carry_out(action);
    if (!core_) return;
  }
  busy_until_ = now + draw_iteration(world_.random, world_.faults_on);
  plan_iteration();
}

void FakeCoordinator::take(Item item, ActionList& actions) {
  if (item.stream == kNoStream) return call_core(std::move(item.event), actions);
  if (auto* heartbeat = std::get_if<HeartbeatReceived>(&item.event)) {
    const auto peer = peers_.find(item.stream);
    if (peer != peers_.end() && peer->second.pages)
      heartbeat->ranks = *std::exchange(peer->second.pages, std::nullopt);
  }
  if (std::holds_alternative<WorkerRegistered>(item.event)) {
    register_worker(std::move(item), actions);
  } else if (belongs_to_current_stream(item)) {
    remember(item.event);
    call_core(std::move(item.event), actions);
  }
}

// As CoreLoop::tick(). A message that is on its way stands for one that waits in the connection. A
// part of a message may wait there although its worker sends nothing more.
Tick FakeCoordinator::tick() {
  Tick event;
  for (const WorkerName& name : core_->silent_workers(world_.scheduler.now())) {
    const auto link = links_.find({name, core_->workers().at(name).incarnation});
    const bool is_part = world_.faults_on && world_.random.chance(kPartChance);
    if (link != links_.end() && (is_part || world_.network.has_undelivered(link->second)))
      event.unread.push_back(name);
  }
  unread_ += std::ssize(event.unread);
  event.is_behind = world_.faults_on && world_.random.chance(kBehindChance);
  return event;
}

// As CoreLoop::register_worker(): an admitted registration takes over the worker's link.
void FakeCoordinator::register_worker(Item item, ActionList& actions) {
  const auto peer = peers_.find(item.stream);
  if (peer == peers_.end()) return;
  const Life life = peer->second.life.value();
  const size_t before = actions.size();
  call_core(std::move(item.event), actions);
  // Not before the call: the core first ends a lease that has expired before the registration.
  last_messages_[life] = world_.scheduler.now();
  for (size_t i = before; i < actions.size(); ++i) {
    if (const auto* refused = std::get_if<RefuseRegistration>(&actions[i])) {
      ending_.emplace_back(item.stream, refused->status);
      return;
    }
  }
  StreamId& current = links_[life];
  if (current != kNoStream && current != item.stream)
    ending_.emplace_back(current, absl::AbortedError("another stream"));
  current = item.stream;
}

// As in coordinator/shell/loop/core_loop.cc: events of a replaced stream are dropped.
bool FakeCoordinator::belongs_to_current_stream(const Item& item) {
  const auto life = life_of(item.event);
  const auto link = links_.find(life);
  if (link == links_.end() || link->second != item.stream) return false;
  if (std::holds_alternative<WorkerDisconnected>(item.event)) {
    links_.erase(link);
  } else {
    last_messages_[life] = world_.scheduler.now();
  }
  return true;
}

// Calls the core's take(), or place_jobs() without an event, and checks the result.
void FakeCoordinator::call_core(std::optional<Event> event, ActionList& actions) {
  const Instant now = world_.scheduler.now();
  ActionList made;
  if (event) {
    std::visit([&](auto& e) { e.unix_ns = world_.scheduler.unix_ns(); }, *event);
    world_.invariants.before_call(*event);
    core_->take(*event, now, made);
  } else {
    core_->place_jobs(made);
  }
  if (world_.is_logging())
    world_.note(absl::StrCat("  ", describe_call(event), "\n", describe_all(made)));
  world_.invariants.after_call(event ? &*event : nullptr, made);
  if (world_.is_replayed()) record_.push_back({std::move(event), now, describe_all(made)});
  last_call_ = now;
  for (Action& action : made) {
    if (const auto* refuse = std::get_if<RefuseWorker>(&action)) {
      const auto link = links_.extract({refuse->worker, refuse->incarnation});
      if (!link.empty()) ending_.emplace_back(link.mapped(), refuse->status);
    }
    actions.push_back(std::move(action));
  }
}

// As SqliteStorage::write().
void FakeCoordinator::commit(const StorageBatch& batch) {
  for (const auto& [id, job] : batch.jobs) {
    if (!disk_jobs_.contains(id)) world_.give_nature(id, job.spec);
    disk_jobs_.insert_or_assign(id, job);
  }
  for (const StoredExit& exit : batch.exits) {
    Job& job = disk_jobs_.at(exit.job);
    if (exit.attempt != job.attempt || exit.position > job.exits.size())
      world_.fail(absl::StrCat("exit ", exit.position, " of job ", exit.job.value(),
                               " does not continue the stored ones"));
    if (exit.position == job.exits.size()) job.exits.push_back(exit.exit);
  }
  for (const auto& [request_id, job] : batch.request_ids)
    disk_requests_.insert_or_assign(request_id, job);
  if (batch.last_job_id != JobId(0)) disk_last_job_id_ = batch.last_job_id;
  for (const auto& [id, incident] : batch.incidents) disk_incidents_.insert_or_assign(id, incident);
  for (const auto& [name, node] : batch.nodes) {
    NodeRecord& stored = disk_nodes_[name];
    stored = node;
    stored.until.reset();
  }
  for (const WorkerName& name : batch.forgotten_nodes) disk_nodes_.erase(name);
  for (const auto& [party, usage] : batch.usages) disk_usages_.insert_or_assign(party, usage);
  for (const JobId id : batch.forgotten) {
    disk_jobs_.erase(id);
    std::erase_if(disk_requests_, [&](const auto& e) { return e.second == id; });
  }
  for (const IncidentId id : batch.forgotten_incidents) disk_incidents_.erase(id);
}

void FakeCoordinator::carry_out(const Action& action) {
  if (const auto* send = std::get_if<SendToWorker>(&action)) {
    const auto link = links_.find({send->worker, send->incarnation});
    // A stream that broke drops messages until the loop takes its end.
    if (link == links_.end() || !peers_.contains(link->second)) return;
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
  worker::StreamEnd end = worker::StreamEnd::kBroken;  // as in worker/shell/stream/stream.cc
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

// Plans the next iteration: as soon as the one in progress is over if an event waits, and otherwise
// at the core's deadline.
void FakeCoordinator::plan_iteration() {
  if (!core_) return;
  const std::optional<Instant> deadline =
      inbox_.empty() ? core_->next_deadline() : world_.scheduler.now();
  if (!deadline) return;
  const Instant when = std::max({*deadline, stalled_until_, busy_until_, world_.scheduler.now()});
  if (next_iteration_ && *next_iteration_ <= when) return;
  next_iteration_ = when;
  world_.scheduler.at(when, [this, life = life_, when] {
    if (life != life_ || !core_ || next_iteration_ != when) return;
    next_iteration_.reset();
    if (is_stalled()) return plan_iteration();
    iterate();
  });
}

}  // namespace muster::simulation
