#include "tests/simulation/fake_worker.h"

#include <algorithm>
#include <csignal>

#include <absl/strings/str_cat.h>

#include "tests/simulation/world.h"

namespace muster::simulation {

// As in worker/shell/stream/stream.h.
constexpr Duration kAnswerMax = std::chrono::seconds(2);
// The time that the core waits for an absent coordinator.
constexpr Duration kCoordinatorWait = std::min(
    worker::kLeaveGrace / worker::kCoordinatorWaitFraction, worker::kAbsentCoordinatorWaitMax);

FakeWorker::FakeWorker(World& world, int host, int32_t slots)
    : world_(world), host_(host), slots_(slots), name_(absl::StrCat("node", host)) {}

void FakeWorker::boot() {
  ++life_;
  leave_requested_at_.reset();
  waits_until_.reset();
  deep_check_.reset();
  incarnation_ = Incarnation(life_ * 100 + static_cast<uint64_t>(host_));
  worker::CoreOptions options;
  options.name = name_;
  options.incarnation = incarnation_;
  options.version = "simulated";
  options.host = name_.value();
  options.slots = slots_;
  options.switches = absl::StrCat("spine.leaf", host_ / 4);
  options.domain = absl::StrCat("rack", host_ / 2);
  for (int32_t gpu = 0; gpu < slots_; ++gpu) options.gpus.push_back({.index = gpu});
  options.launches_kept_max = 2;  // so that each run removes some
  options.rendezvous_address = absl::StrCat(name_.value(), ":", life_);
  core_.emplace(options, world_.scheduler.now());
  world_.note(absl::StrCat(name_.value(), " boots as #", incarnation_.value()));
  plan_tick();
}

void FakeWorker::crash(Duration down) {
  if (!core_) return;
  world_.note(absl::StrCat(name_.value(), " crashes"));
  if (stream_) world_.network.cut(*stream_);
  world_.trainers.host_died(host_);
  reboot_after(down);
}

void FakeWorker::reboot_after(Duration down) {
  ++life_;
  core_.reset();
  stream_.reset();
  connecting_.reset();
  world_.scheduler.after(down, [this, life = life_] {
    if (life == life_) boot();
  });
}

void FakeWorker::request_shutdown() {
  if (!core_) return;
  world_.note(absl::StrCat(name_.value(), " begins to leave"));
  leave_requested_at_ = world_.scheduler.now();
  waits_until_ = *leave_requested_at_ +
                 (core_->registered() ? worker::kCoordinatorAnswerMax : kCoordinatorWait);
  step(worker::ShutdownRequested{});
}

bool FakeWorker::shares_a_gpu() const {
  if (!core_) return false;
  std::set<int32_t> taken;
  for (const auto& [key, rank] : core_->ranks()) {
    if (rank.life == worker::Core::Life::kWaiting) continue;
    for (const int32_t gpu : rank.launch->gpus_of(rank.local_rank))
      if (!taken.insert(gpu).second) return true;
  }
  return false;
}

void FakeWorker::step(const worker::Event& event) {
  if (!core_) return;
  worker::ActionList actions;
  core_->step(event, world_.scheduler.now(), actions);
  const uint64_t life = life_;
  for (const worker::Action& action : actions) {
    carry_out(action);
    if (life != life_) return;
  }
  plan_tick();
}

void FakeWorker::plan_tick() {
  const auto deadline = core_->next_deadline();
  if (!deadline) return;
  world_.scheduler.at(*deadline, [this, life = life_, when = *deadline] {
    if (life != life_ || !core_) return;
    const auto due = core_->next_deadline();
    if (due && *due <= when) step(worker::Tick{});
  });
}

void FakeWorker::connect(Duration within) {
  connecting_ = ++attempts_;
  const Instant deadline = world_.scheduler.now() + within;
  world_.scheduler.after(world_.random.between_ms(1, 10), [this, attempt = attempts_, deadline] {
    try_to_connect(attempt, deadline, std::chrono::seconds(1));
  });
}

// TCP repeats the first packet of a connection after 1, 3 and 7 s.
void FakeWorker::try_to_connect(uint64_t attempt, Instant deadline, Duration wait) {
  if (connecting_ != attempt) return;
  if (world_.network.is_partitioned(host_)) {
    const Instant next = world_.scheduler.now() + wait;
    world_.scheduler.at(std::min(next, deadline), [this, attempt, deadline, wait] {
      if (connecting_ != attempt) return;
      if (world_.scheduler.now() >= deadline) return end_connecting("no answer in time");
      try_to_connect(attempt, deadline, 2 * wait);
    });
    return;
  }
  if (!world_.coordinator.is_up()) return end_connecting("connection refused");
  connecting_.reset();
  const uint64_t life = life_;
  stream_ =
      world_.network.open(host_, {[this, life](StreamId id) {
                            if (life == life_)
                              stream_ended(id, worker::StreamEnd::kBroken, "the connection broke");
                          }},
                          {[this](StreamId id) { world_.coordinator.stream_broke(id); }});
  world_.coordinator.accept(*stream_, host_);
  step(worker::Connected{});
}

void FakeWorker::end_connecting(const std::string& reason) {
  connecting_.reset();
  step(worker::Disconnected{worker::StreamEnd::kBroken, reason});
}

void FakeWorker::stream_ended(StreamId stream, worker::StreamEnd end, const std::string& reason) {
  if (stream_ != stream) return;
  stream_.reset();
  if (leave_requested_at_) waits_until_ = *leave_requested_at_ + kCoordinatorWait;
  step(worker::Disconnected{end, reason});
}

void FakeWorker::deliver(StreamId stream, const coordinator::WorkerPayload& payload, StoreId store,
                         Epoch epoch) {
  if (stream_ != stream || !core_) return;
  if (const auto* p = std::get_if<coordinator::SendRegistered>(&payload)) {
    step(worker::Registered{epoch,
                            p->heartbeat_interval,
                            p->store,
                            {p->unfinished.begin(), p->unfinished.end()},
                            p->busy_interval,
                            p->spread});
  } else if (const auto* pace = std::get_if<coordinator::SendPace>(&payload)) {
    step(worker::PaceChanged{epoch, pace->heartbeat_interval, pace->busy_interval, pace->spread});
  } else if (const auto* start = std::get_if<coordinator::SendStartRanks>(&payload)) {
    worker::StartRanks event{epoch, {}};
    event.launch.job = start->job;
    event.launch.attempt = start->attempt;
    event.launch.spec = *start->spec;
    event.launch.rendezvous_address = start->rendezvous_address;
    for (const auto& rank : start->ranks)
      event.launch.ranks.push_back({rank.rank, rank.local_rank});
    stores_[{start->job, start->attempt}] = store;
    step(event);
  } else if (const auto* stop = std::get_if<coordinator::SendStopRanks>(&payload)) {
    step(
        worker::StopRanks{epoch, stop->job, stop->attempt, stop->grace, stop->reason, stop->ranks});
  } else if (const auto* save = std::get_if<coordinator::SendSaveCheckpoint>(&payload)) {
    step(worker::SaveCheckpoint{epoch, {save->job, save->attempt, save->rank}});
  } else if (const auto* dump = std::get_if<coordinator::SendDumpStacks>(&payload)) {
    step(worker::DumpStacks{epoch,
                            {dump->job, dump->attempt},
                            dump->dump.value(),
                            dump->samples,
                            dump->apart,
                            dump->deadline,
                            dump->ranks});
  } else if (const auto* check = std::get_if<coordinator::SendCheckNode>(&payload)) {
    worker::CheckNode event{epoch, check->check};
    if (check->deep) {
      worker::DeepCheckOrder& deep = event.deep.emplace();
      deep.deadline = check->deep->deadline;
      deep.group_size = check->deep->seat.size;
    }
    step(event);
  } else if (const auto* ended = std::get_if<coordinator::SendJobEnded>(&payload)) {
    step(worker::JobEnded{epoch, ended->job});
  } else if (const auto* ack = std::get_if<coordinator::SendReportAck>(&payload)) {
    step(worker::ReportAcked{ack->report_id});
  }
}

void FakeWorker::spawn(const worker::SpawnRank& action) {
  spares_the_deep_check();
  const Duration delay = world_.random.between_ms(5, 60);
  const bool fails = world_.faults_on && world_.random.chance(0.005);
  world_.scheduler.after(delay, [this, life = life_, action, fails,
                                 store = stores_[action.key.launch()]] {
    if (life != life_) return;
    if (fails) {
      step(worker::SpawnFailed{action.key, "no memory"});
      return;
    }
    const int32_t pid = world_.trainers.spawn(
        host_, store, action.key, action.launch->spec.world_size(),
        action.launch->spec.train_config_json,
        [this, life, key = action.key](const ProcessEnd& end) {
          if (life == life_)
            step(worker::RankReaped{key, end.exit_code, end.signal, end.last_step, ""});
        });
    world_.invariants.note_spawn(store, action.key.launch(), action.launch->spec.train_config_json);
    world_.invariants.processes_fit();
    step(worker::RankStarted{action.key, pid});
  });
}

void FakeWorker::read_pages(const worker::ReadPages& action) {
  world_.scheduler.after(std::chrono::milliseconds(1), [this, life = life_, action] {
    if (life != life_) return;
    worker::PageResults pages;
    for (const worker::RankKey& key : action.ranks) {
      worker::RankFigures figures = world_.trainers.figures(host_, key);
      figures.checkpoint_step = world_.trainers.checkpoint_of(stores_[key.launch()], key.job);
      figures.checkpoints.on_request = figures.step >= 0 ? 1 : 0;
      pages.pages.push_back({key, figures});
    }
    step(pages);
  });
}

// Reads stacks with a delay, which is sometimes longer than the deadline.
void FakeWorker::read_stacks(const worker::ReadStacks& action) {
  const bool late = world_.faults_on && world_.random.chance(0.1);
  const Duration time = late ? action.deadline * 2 : world_.random.between_ms(20, 300);
  worker::StackResults read{action.launch, action.dump, action.sample, {}, {}, {}};
  StackSample sample;
  for (const Rank rank : action.ranks) {
    const worker::RankKey key{action.launch.job, action.launch.attempt, rank};
    read.ranks.push_back(world_.trainers.evidence(host_, key));
    RankStacks& one = sample.ranks.emplace_back();
    one.rank = rank.value();
    one.threads.push_back(world_.trainers.stack(host_, key));
  }
  auto stacks = std::make_shared<StackTree>();
  stacks->add(sample);
  read.stacks = std::move(stacks);
  world_.scheduler.after(time, [this, life = life_, read = std::move(read)] {
    if (life == life_) step(read);
  });
}

// Some nodes are unhealthy for a while, and some answer after the deadline.
void FakeWorker::check_node() {
  const bool bad = world_.faults_on && world_.random.chance(0.25);
  const bool late = world_.faults_on && world_.random.chance(0.05);
  const Duration time =
      late ? world_.random.between_ms(9'000, 15'000) : world_.random.between_ms(50, 600);
  world_.scheduler.after(time, [this, life = life_, bad] {
    if (life != life_) return;
    step(worker::NodeCheckDone{!bad, 0.1, bad ? "a core computes wrongly" : "good", ""});
  });
}

void FakeWorker::carry_out(const worker::Action& action) {
  if (const auto* connection = std::get_if<worker::Connect>(&action)) {
    connect(connection->within);
  } else if (std::holds_alternative<worker::Disconnect>(action)) {
    if (stream_) world_.network.worker_closes(*stream_);
    world_.scheduler.after(Duration(1),
                           [this, life = life_, stream = stream_, connecting = connecting_] {
                             if (life != life_) return;
                             if (stream)
                               stream_ended(*stream, worker::StreamEnd::kBroken, "given up");
                             if (connecting && connecting_ == connecting)
                               end_connecting("given up");
                           });
  } else if (const auto* rank = std::get_if<worker::SpawnRank>(&action)) {
    copies_.emplace(rank->store, rank->key.job);
    spawn(*rank);
  } else if (const auto* drop = std::get_if<worker::DropLocalCopies>(&action)) {
    std::set<JobId> others;
    for (const auto& [store, job] : copies_)
      if (job != drop->job) others.insert(job);
    drop_copies(drop->store, others);
  } else if (const auto* keep = std::get_if<worker::KeepLocalCopies>(&action)) {
    drop_copies(keep->store, keep->jobs);
  } else if (const auto* signal = std::get_if<worker::SignalRank>(&action)) {
    // A process without a handler dies of the signal.
    world_.require(signal->signo != SIGUSR2 || world_.trainers.step_of(host_, signal->key) >= 0,
                   worker::to_string(signal->key), " receives a request before it can answer");
    const bool is_request = signal->signo == SIGTERM || signal->signo == SIGUSR1;
    if (is_request && waits_until_ && world_.scheduler.now() >= *waits_until_)
      world_.stopped_by_workers.insert({stores_.at(signal->key.launch()), signal->key.launch()});
    world_.trainers.signal(host_, signal->key, signal->signo);
  } else if (const auto* pages = std::get_if<worker::ReadPages>(&action)) {
    read_pages(*pages);
  } else if (const auto* stacks = std::get_if<worker::ReadStacks>(&action)) {
    read_stacks(*stacks);
  } else if (std::holds_alternative<worker::RunNodeCheck>(action)) {
    check_node();
  } else if (const auto* deep = std::get_if<worker::RunDeepCheck>(&action)) {
    check_deeply(deep->order);
  } else if (std::holds_alternative<worker::StopDeepCheck>(action)) {
    stop_deep_check();
  } else if (const auto* checked = std::get_if<worker::SendNodeChecked>(&action)) {
    if (stream_) world_.coordinator.send_node_checked(*stream_, *checked);
  } else if (const auto* report = std::get_if<worker::SendStackReport>(&action)) {
    if (stream_) world_.coordinator.send_stack_report(*stream_, *report);
  } else if (const auto* message = std::get_if<worker::SendRegister>(&action)) {
    if (stream_) world_.coordinator.send_register(*stream_, *message);
  } else if (const auto* leaving = std::get_if<worker::SendLeaving>(&action)) {
    if (stream_) world_.coordinator.send_leaving(*stream_, *leaving);
  } else if (const auto* heartbeat = std::get_if<worker::SendHeartbeat>(&action)) {
    send_heartbeat(*heartbeat);
  } else if (const auto* forget = std::get_if<worker::ForgetRank>(&action)) {
    world_.scheduler.after(Duration(1), [this, life = life_, key = forget->key] {
      if (life == life_) step(worker::LogSettled{key});
    });
  } else if (const auto* remove = std::get_if<worker::RemoveLaunch>(&action)) {
    world_.note(absl::StrCat(name_.value(), " forgets ", worker::to_string(remove->launch)));
    for (const auto& [key, process] : world_.trainers.processes()) {
      world_.require(key.first != host_ || key.second.launch() != remove->launch, name_.value(),
                     " removes the folder under ", worker::to_string(key.second));
    }
  } else if (const auto* exited = std::get_if<worker::SendRankExited>(&action)) {
    if (stream_) world_.coordinator.send_exit(*stream_, *exited);
  } else if (std::holds_alternative<worker::Exit>(action)) {
    world_.note(absl::StrCat(name_.value(), " leaves: ", std::get<worker::Exit>(action).reason));
    if (stream_) world_.network.worker_closes(*stream_);
    for (const auto& [key, process] : world_.trainers.processes())
      world_.require(key.first != host_ || !process.running, name_.value(), " leaves ",
                     worker::to_string(key.second), " without having killed it");
    world_.trainers.host_died(host_);
    reboot_after(world_.random.between_ms(500, 4'000));
  }
}

// As Worker::carry_out(): the shell checks for acknowledgements after each heartbeat.
void FakeWorker::send_heartbeat(const worker::SendHeartbeat& heartbeat) {
  if (!stream_) return;
  world_.coordinator.send_heartbeat(*stream_, heartbeat);
  if (!world_.network.is_unanswered(*stream_, kAnswerMax)) return;
  world_.count_unanswered();
  world_.scheduler.after(Duration(1), [this, life = life_] {
    if (life == life_) step(worker::StreamUnanswered{});
  });
}

void FakeWorker::drop_copies(StoreId store, const std::set<JobId>& kept) {
  std::erase_if(copies_, [&](const auto& copy) {
    const auto& [of, job] = copy;
    if (of != store || kept.contains(job)) return false;
    const auto& disk = world_.coordinator.disk();
    const auto stored = disk.find(job);
    world_.require(store != world_.coordinator.store() || stored == disk.end() ||
                       coordinator::is_terminal(stored->second.state),
                   name_.value(), " drops its copies of job ", job.value(), ", which continues");
    return true;
  });
}

bool FakeWorker::has_copies_of(StoreId store) const {
  return std::any_of(copies_.begin(), copies_.end(),
                     [&](const auto& copy) { return copy.first == store; });
}

}  // namespace muster::simulation
