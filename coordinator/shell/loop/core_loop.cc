#include "coordinator/shell/loop/core_loop.h"

#include <set>
#include <type_traits>

#include <absl/strings/str_cat.h>
#include <spdlog/spdlog.h>

#include "common/text/absl_view.h"
#include "common/text/escape.h"
#include "coordinator/shell/messages/incident_messages.h"
#include "daemon/limits.h"

namespace muster::coordinator {
namespace {

constexpr size_t kLogLineBytesMax = 2'000;

absl::Status stopping() { return absl::UnavailableError("the coordinator is stopping"); }

LogScope scope_of(const Job& job) {
  return {job.attempt, job.spec.world_size(), is_terminal(job.state), job_owner(job.spec),
          job.log_leaders};
}

void log_refusal(const WorkerName& worker, const absl::Status& status) {
  spdlog::warn("worker {} is refused: {}", printable(worker.value(), kLogLineBytesMax),
               std::string(status.message()));
}

}  // namespace

CoreLoop::CoreLoop(Core core, Storage& storage, LogStore& logs, Metrics& metrics,
                   std::function<void(absl::Status)> on_fatal, SpaceReserve* reserve,
                   OverloadLimits overload, std::function<absl::Status()> check_leads)
    : core_(std::move(core)),
      storage_(storage),
      logs_(logs),
      metrics_(metrics),
      on_fatal_(std::move(on_fatal)),
      check_leads_(std::move(check_leads)),
      patient_(storage, reserve),
      overload_(overload),
      queue_(daemon::kEventQueueMax) {
  // An earlier run has logged the stored incidents.
  const auto known = storage_.incidents(JobId(0), kIncidentsKeptMax);
  if (known.ok() && !known->empty()) newest_incident_ = IncidentId(known->front().id());
  if (known.ok()) {
    for (const v1::Incident& record : *known) {
      if (const auto incident = incident_from_proto(record); incident.ok())
        metrics_.restore_incident(core_, *incident);
    }
  }
  for (const auto& [id, job] : core_.jobs()) logs_.set_scope(id, scope_of(job), job.placement);
  thread_ = std::thread([this] { run(); });
}

CoreLoop::~CoreLoop() { stop(); }

void CoreLoop::stop() {
  queue_.close();
  if (thread_.joinable()) thread_.join();
}

absl::Status CoreLoop::push(Item item) {
  // Workers' events wait in the queue.
  if (patient_.is_waiting() && !std::holds_alternative<FleetEvent>(item))
    return PatientStorage::refusal();
  if (queue_.try_push({std::move(item), monotonic_now()})) return absl::OkStatus();
  if (queue_.closed()) return stopping();
  return absl::ResourceExhaustedError(absl::StrCat(
      "the coordinator is overloaded: ", daemon::kEventQueueMax, " events wait; try again later"));
}

absl::Status CoreLoop::submit(JobSubmitted event, ReplyFn reply) {
  event.token = RequestToken(next_token_++);
  return push(Request{std::move(event), Answer(std::move(reply))});
}

absl::Status CoreLoop::cancel(JobCancelRequested event, ReplyFn reply) {
  event.token = RequestToken(next_token_++);
  return push(Request{event, Answer(std::move(reply))});
}

absl::Status CoreLoop::checkpoint(JobCheckpointRequested event, ReplyFn reply) {
  event.token = RequestToken(next_token_++);
  return push(Request{event, Answer(std::move(reply))});
}

absl::Status CoreLoop::update(JobUpdateRequested event, ReplyFn reply) {
  event.token = RequestToken(next_token_++);
  return push(Request{std::move(event), Answer(std::move(reply))});
}

absl::Status CoreLoop::stacks(StacksRequested event, StacksFn reply) {
  event.token = RequestToken(next_token_++);
  return push(Request{event, Answer(std::move(reply))});
}

absl::Status CoreLoop::exclude_node(NodeExcludeRequested event, ReplyFn reply) {
  event.token = RequestToken(next_token_++);
  return push(Request{std::move(event), Answer(std::move(reply))});
}

absl::Status CoreLoop::admit_node(NodeAdmitRequested event, ReplyFn reply) {
  event.token = RequestToken(next_token_++);
  return push(Request{std::move(event), Answer(std::move(reply))});
}

absl::Status CoreLoop::check_nodes(NodeSweepRequested event, ReplyFn reply) {
  event.token = RequestToken(next_token_++);
  return push(Request{std::move(event), Answer(std::move(reply))});
}

absl::Status CoreLoop::query(QueryFn query) { return push(std::move(query)); }

absl::Status CoreLoop::read(ReadFn read) { return push(std::move(read)); }

absl::Status CoreLoop::watch(JobId job, std::shared_ptr<JobWatcher> watcher) {
  return push(Watch{job, std::move(watcher)});
}

absl::Status CoreLoop::post(Event event, std::shared_ptr<WorkerLink> link) {
  return push(FleetEvent{std::move(event), std::move(link)});
}

void CoreLoop::run() {
  while (true) {
    const std::optional<Instant> deadline = core_.next_deadline();
    life_.rest();
    backlog_.end();
    std::deque<Queued> items = take_items(deadline);
    now_ = life_.show();
    if (items.empty() && queue_.closed()) break;
    backlog_.begin(items.size(), items.empty() ? now_ : items.front().arrived);
    ActionList actions;
    std::vector<Item> after;  // requests that need the stored state
    // Processes received events before the deadline's Tick.
    Instant begun = now_;
    for (Queued& queued : items) {
      lag_ = begun - queued.arrived;
      take(queued.item, actions, after);
      backlog_.handled_one();
      begun = life_.show();
    }
    if (deadline && *deadline <= now_) {
      lag_ = now_ - *deadline;
      step(tick(), actions);
    }
    core_.place_jobs(actions);
    if (absl::Status status = persist(batch_of(core_, actions)); !status.ok()) {
      queue_.close();
      end_everything(absl::UnavailableError("the coordinator cannot store its state"), after);
      on_fatal_(std::move(status));
      return;
    }
    carry_out(actions);
    for (Item& item : after) answer(item);
    // The longest lag of an iteration is that at its end.
    const Instant end = monotonic_now();
    overload_.observe(backlog_.age(end), end);
  }
  std::vector<Item> none;
  end_everything(stopping(), none);
}

void CoreLoop::step(Event event, ActionList& actions) {
  std::visit([](auto& e) { e.unix_ns = wall_clock_unix_ns(); }, event);
  const size_t before = actions.size();
  core_.take(event, now_, actions);
  metrics_.observe(core_, event);
  metrics_.shell().count_event(event, lag_);
  // Resolves the worker's stream now, because another stream may replace it before the action is
  // carried out.
  for (size_t i = before; i < actions.size(); ++i) {
    const auto* refuse = std::get_if<RefuseWorker>(&actions[i]);
    if (refuse == nullptr) continue;
    auto link = links_.extract({refuse->worker, refuse->incarnation});
    if (!link.empty()) ending_.emplace_back(std::move(link.mapped()), refuse->status);
  }
}

void CoreLoop::take(Item& item, ActionList& actions, std::vector<Item>& after) {
  if (auto* request = std::get_if<Request>(&item)) {
    const RequestToken token = std::visit(
        [](const auto& e) {
          if constexpr (requires { e.token; }) return e.token;
          return RequestToken(0);
        },
        request->event);
    answers_.emplace(token, std::move(request->answer));
    step(std::move(request->event), actions);
  } else if (auto* policy = std::get_if<QueuePolicyChanged>(&item)) {
    step(std::move(*policy), actions);
  } else if (auto* fleet = std::get_if<FleetEvent>(&item)) {
    if (auto* heartbeat = std::get_if<HeartbeatReceived>(&fleet->event))
      fleet->link->fill(*heartbeat);
    if (std::holds_alternative<WorkerRegistered>(fleet->event)) {
      register_worker(*fleet, actions);
    } else if (belongs_to_current_stream(*fleet)) {
      step(std::move(fleet->event), actions);
    }
  } else {
    after.push_back(std::move(item));
  }
}

// Registers a worker on a new stream. The new stream replaces the worker's earlier stream only when
// the core admits it; otherwise anyone who sends the name and incarnation of a live worker could
// end that worker's stream.
// Ignores a registration whose stream has ended since: under load, a worker may have given up and
// opened another stream before the loop takes its first registration.
void CoreLoop::register_worker(FleetEvent& item, ActionList& actions) {
  if (!item.link->is_open()) return;
  const auto& event = std::get<WorkerRegistered>(item.event);
  const LinkKey key{event.worker, event.incarnation};
  const auto known = core_.workers().find(key.first);
  const bool is_known = known != core_.workers().end() && known->second.incarnation == key.second;
  const size_t before = actions.size();
  step(std::move(item.event), actions);
  for (size_t i = before; i < actions.size(); ++i) {
    if (const auto* refuse = std::get_if<RefuseRegistration>(&actions[i])) {
      metrics_.shell().count_registration(Registration::kRefused);
      ending_.emplace_back(std::move(item.link), refuse->status);
      return;
    }
  }
  metrics_.shell().count_registration(is_known ? Registration::kReconnected : Registration::kNew);
  std::shared_ptr<WorkerLink>& current = links_[key];
  if (current != nullptr && current != item.link) {
    ending_.emplace_back(current, absl::AbortedError("the worker opened another stream"));
  }
  current = std::move(item.link);
}

bool CoreLoop::belongs_to_current_stream(const FleetEvent& item) {
  const auto key_of = [](const auto& e) -> LinkKey {
    if constexpr (requires { e.incarnation; }) return {e.worker, e.incarnation};
    return {};
  };
  const LinkKey key = std::visit(key_of, item.event);
  const auto current = links_.find(key);
  if (current == links_.end() || current->second != item.link) return false;
  if (std::holds_alternative<WorkerDisconnected>(item.event)) {
    spdlog::info("worker {} is disconnected", key.first.value());
    links_.erase(current);
  }
  return true;
}

absl::Status CoreLoop::persist(const StorageBatch& batch) {
  // No commit, which the store could refuse, prevents stale answers and orders.
  if (batch.empty()) return check_leads_ == nullptr ? absl::OkStatus() : check_leads_();
  const Instant begun = life_.show();
  // The disk of another coordinator may respond; a single one can only wait for its own.
  if (check_leads_ == nullptr) life_.rest();
  // Called after each attempt that found no space.
  const auto wait = [this](Duration time) {
    life_.rest();
    metrics_.shell().count_failed_transaction(absl::ResourceExhaustedError(""));
    return queue_.wait_until_closed(time);
  };
  const absl::Status status = patient_.commit(batch, wait);
  metrics_.shell().count_transaction(life_.show() - begun);
  if (!status.ok()) metrics_.shell().count_failed_transaction(status);
  return status;
}

void CoreLoop::carry_out(ActionList& actions) {
  for (const auto& [link, status] : std::exchange(ending_, {})) link->close(status);
  // Publishes a launch to log readers before its orders: its first output then has a scope.
  std::set<JobId> changed;
  for (const Action& action : actions) {
    if (const auto* change = std::get_if<JobChanged>(&action)) changed.insert(change->job);
    if (const auto* persisted = std::get_if<PersistJob>(&action)) log_decision(*persisted);
    if (const auto* opened = std::get_if<PersistIncident>(&action)) log_incident(opened->incident);
    if (const auto* change = std::get_if<NodeDecision>(&action)) log_node(*change);
  }
  for (const JobId id : changed) publish(id);
  for (Action& action : actions) {
    if (auto* send = std::get_if<SendToWorker>(&action)) {
      if (std::holds_alternative<SendRegistered>(send->payload)) {
        spdlog::info("worker {} is registered", send->worker.value());
      }
      const auto it = links_.find({send->worker, send->incarnation});
      if (it != links_.end()) it->second->send(send->payload);
    } else if (auto* refuse = std::get_if<RefuseWorker>(&action)) {
      log_refusal(refuse->worker, refuse->status);
    } else if (auto* refused = std::get_if<RefuseRegistration>(&action)) {
      log_refusal(refused->worker, refused->status);
    } else if (auto* reply = std::get_if<Reply>(&action)) {
      const auto job = core_.jobs().find(reply->job);
      if (const auto answer = waiting<ReplyFn>(reply->token))
        answer(reply->status, core_, job == core_.jobs().end() ? nullptr : &job->second, now_);
    } else if (auto* stacks = std::get_if<ReplyStacks>(&action)) {
      if (const auto answer = waiting<StacksFn>(stacks->token))
        answer(stacks->status, stacks->status.ok() ? &stacks->dump : nullptr);
    } else if (auto* forget = std::get_if<ForgetJob>(&action)) {
      logs_.forget(forget->job);
      watchers_.erase(forget->job);
    }
  }
}

// Removes and returns the callback that waits for the answer; null if there is none.
template <class F>
F CoreLoop::waiting(RequestToken token) {
  auto found = answers_.extract(token);
  auto* answer = found.empty() ? nullptr : std::get_if<F>(&found.mapped());
  return answer == nullptr ? F() : std::move(*answer);
}

void CoreLoop::refuse(const Answer& answer, const absl::Status& status) {
  if (const auto* reply = std::get_if<ReplyFn>(&answer)) (*reply)(status, core_, nullptr, now_);
  if (const auto* stacks = std::get_if<StacksFn>(&answer)) (*stacks)(status, nullptr);
}

void CoreLoop::publish(JobId id) {
  const auto it = core_.jobs().find(id);
  if (it == core_.jobs().end()) return;
  logs_.set_scope(id, scope_of(it->second), it->second.placement);
  const auto watched = watchers_.find(id);
  if (watched == watchers_.end()) return;
  std::erase_if(watched->second, [](const auto& watcher) { return watcher.expired(); });
  for (const auto& watcher : watched->second) {
    if (const auto alive = watcher.lock()) alive->on_job(core_, it->second, now_);
  }
  if (is_terminal(it->second.state) || watched->second.empty()) watchers_.erase(watched);
}

void CoreLoop::log_decision(const PersistJob& decision) {
  const auto job = core_.jobs().find(decision.job);
  if (job == core_.jobs().end()) return;
  std::string line = absl::StrCat(av(job_state_name(decision.state)), ": ", decision.reason);
  std::string& last = logged_[decision.job];
  if (line != last) {
    spdlog::info("job {} ({}) {}", decision.job.value(), job->second.spec.name,
                 printable(line, kLogLineBytesMax));
    last = std::move(line);
  }
  if (is_terminal(decision.state)) logged_.erase(decision.job);
}

// Logs an incident once, when it is opened; later findings are available on request.
void CoreLoop::log_incident(const Incident& incident) {
  if (incident.id <= newest_incident_) return;
  newest_incident_ = incident.id;
  metrics_.count_incident(core_, incident, wall_clock_unix_ns());
  spdlog::warn("job {} ({}) incident {}: {} (muster incident show {})", incident.job.value(),
               printable(incident.job_name, kLogLineBytesMax), incident.id.value(),
               printable(incident.sentence, kLogLineBytesMax), incident.id.value());
}

void CoreLoop::log_node(const NodeDecision& change) {
  metrics_.count_node(change);
  const bool good = change.what == NodeDecision::What::kAdmitted ||
                    change.what == NodeDecision::What::kCheckPassed;
  spdlog::log(good ? spdlog::level::info : spdlog::level::warn, "worker {} {}",
              change.worker.value(), printable(change.text, kLogLineBytesMax));
}

void CoreLoop::answer(Item& item) {
  if (auto* query = std::get_if<QueryFn>(&item)) {
    (*query)(&core_, now_);
  } else if (auto* read = std::get_if<ReadFn>(&item)) {
    (*read)(&storage_);
  } else if (auto* watch = std::get_if<Watch>(&item)) {
    const auto job = core_.jobs().find(watch->job);
    if (job == core_.jobs().end()) {
      watch->watcher->on_end(
          absl::NotFoundError(absl::StrCat("there is no job ", watch->job.value())));
      return;
    }
    if (!is_terminal(job->second.state)) {
      auto& watchers = watchers_[watch->job];
      std::erase_if(watchers, [](const auto& watcher) { return watcher.expired(); });
      watchers.push_back(watch->watcher);
    }
    watch->watcher->on_job(core_, job->second, now_);
  }
}

void CoreLoop::end_everything(const absl::Status& status, std::vector<Item>& items) {
  for (const auto& [token, answer] : std::exchange(answers_, {})) refuse(answer, status);
  for (const auto& [key, link] : std::exchange(links_, {})) link->close(status);
  for (const auto& [link, why] : std::exchange(ending_, {})) link->close(why);
  for (const auto& [id, watchers] : std::exchange(watchers_, {}))
    for (const auto& watcher : watchers)
      if (const auto alive = watcher.lock()) alive->on_end(status);
  for (Queued& queued : queue_.pop_all(Instant{})) items.push_back(std::move(queued.item));
  for (Item& item : items) {
    if (auto* query = std::get_if<QueryFn>(&item)) (*query)(nullptr, now_);
    if (auto* watch = std::get_if<Watch>(&item)) watch->watcher->on_end(status);
    if (auto* read = std::get_if<ReadFn>(&item)) (*read)(nullptr);
    if (auto* request = std::get_if<Request>(&item)) refuse(request->answer, status);
    if (auto* fleet = std::get_if<FleetEvent>(&item)) fleet->link->close(status);
  }
}

}  // namespace muster::coordinator
