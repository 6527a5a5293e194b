#include "worker/shell/worker.h"

#include <signal.h>

#include <algorithm>
#include <utility>

#include <boost/asio/executor_work_guard.hpp>
#include <spdlog/spdlog.h>

#include "common/process/stop_requests.h"
#include "common/stacks/self_stacks.h"
#include "worker/shell/stream/translate.h"
#include "worker/stacks/working_process.h"

namespace muster::worker {
namespace {

// Slurm signals every process of a job twice when its time is over. Both SIGTERMs count as one
// request to leave, not as a second one that kills. No person waits for this daemon, so the time is
// longer than kSameStopRequest.
constexpr Duration kSameTermRequest = std::chrono::seconds(2);

// A longer lease is garbage; without a lease the guard does nothing.
constexpr int64_t kLeaseMsMax = 3'600'000;

}  // namespace

Worker::~Worker() { stack_tools_.stop(); }

int Worker::run() {
  const auto keep_running = boost::asio::make_work_guard(context_);
  wait_for_signals();
  show_life();
  handle(LaunchesFound{launcher_.folders().find()});
  handle(Tick{});
  context_.run();
  return exit_code_;
}

void Worker::show_life() {
  if (guard_ == nullptr) return;
  guard_->show_life();
  life_timer_.expires_after(kGuardBeat);
  life_timer_.async_wait([this](const boost::system::error_code& error) {
    if (!error) show_life();
  });
}

void Worker::handle(const Event& event) {
  pending_.push_back(event);
  step_all();
}

// Actions may raise events at once (a spawn succeeds): those wait until the current actions are
// carried out.
void Worker::step_all() {
  if (stepping_) return;
  stepping_ = true;
  while (!pending_.empty()) {
    const Event event = std::move(pending_.front());
    pending_.pop_front();
    ActionList actions;
    core_->step(event, monotonic_now(), actions);
    for (const Action& action : actions) {
      std::visit([this](const auto& a) { carry_out(a); }, action);
    }
  }
  stepping_ = false;
  metrics_.update(*core_, monotonic_now());
  arm_timer();
}

void Worker::arm_timer() {
  const auto deadline = core_->next_deadline();
  if (!deadline) {
    timer_.cancel();
    return;
  }
  timer_.expires_after(std::max(Duration::zero(), *deadline - monotonic_now()));
  timer_.async_wait([this](const boost::system::error_code& error) {
    if (!error) handle(Tick{});
  });
}

void Worker::wait_for_signals() {
  signals_.async_wait([this](const boost::system::error_code& error, int signo) {
    if (error) return;
    wait_for_signals();
    if (signo == SIGCHLD) {
      reap_children();
    } else if (!is_already_requested(signo)) {
      spdlog::info("signal {}: leaving", signo);
      handle(ShutdownRequested{});
    }
  });
}

// A second request kills the ranks.
bool Worker::is_already_requested(int signo) {
  if (!core_->leaving()) {
    leave_requested_at_ = monotonic_now();
    return false;
  }
  // A closing terminal may send two of them.
  if (signo == SIGHUP) return true;
  const Duration since = monotonic_now() - leave_requested_at_;
  return since < (signo == SIGTERM ? kSameTermRequest : kSameStopRequest);
}

void Worker::carry_out(const Connect& action) {
  metrics_.count_connection();
  ++streams_;
  stream_.open(action.within);
  pending_.emplace_back(Connected{});
}

void Worker::carry_out(const Disconnect& action) { stream_.close(action.reason); }

void Worker::carry_out(const SignalRank& action) {
  spdlog::info("{}: sending signal {}", to_string(action.key), action.signo);
  reaper_.signal(action.key, action.signo);
}

// Counts output as progress if the rank reports nothing else. Programs have figures without a page,
// too: the state of their process.
absl::StatusOr<RankFigures> Worker::figures_of(const PageReader::Page& page,
                                               const Core::RankState& rank) {
  auto figures = page.figures;
  const bool speaks =
      figures.ok() && (figures->phase != Phase::kInit || figures->step_times.total() > 0);
  if (!figures.ok() && rank.launch->spec.is_program()) figures = rank.figures;
  if (figures.ok()) {
    figures->process_state = page.process_state;
    const bool moves = figures->last_progress != rank.figures.last_progress;
    if (page.links)
      figures->stalled_links = *page.links;
    else if (!moves)
      figures->stalled_links = rank.figures.stalled_links;
    figures->main_thread = rank.figures.main_thread;
    const bool trains = figures->phase == Phase::kData || figures->phase == Phase::kStep;
    if (page.is_awake && trains) {
      ++figures->main_thread.count;
      figures->main_thread.awake += *page.is_awake ? 1 : 0;
    }
  }
  if (!rank.launch->spec.output_is_progress() || speaks) return figures;
  figures->last_progress =
      std::max(figures->last_progress,
               outputs_.last_written(page.target.key, page.log_bytes, monotonic_now()));
  return figures;
}

void Worker::carry_out(const ReadPages& action) {
  // Reading the table of connections takes milliseconds on a large machine. A rank that makes
  // progress waits for no connection.
  constexpr Duration kLinksInterval = std::chrono::seconds(1);
  const Instant now = monotonic_now();
  const bool links_are_due = links_due_ <= now;
  if (links_are_due) links_due_ = now + kLinksInterval;
  std::vector<PageReader::Target> targets;
  for (const RankKey& key : action.ranks) {
    const auto rank = core_->ranks().find(key);
    if (rank == core_->ranks().end()) continue;
    const bool stands = rank->second.figures.last_progress + kLinksInterval <= now;
    targets.push_back({key, rank->second.local_rank, rank->second.pid,
                       rank->second.launch->spec.output_is_progress(),
                       stands && links_are_due && rank->second.launch->spec.nodes > 1,
                       rank->second.launch->spec.is_program()});
  }
  page_reader_.read(std::move(targets), now,
                    [this](const std::vector<PageReader::Page>& pages) { on_pages(pages); });
}

// Ranks may have ended since the request. Their last figures are read at their end.
void Worker::on_pages(const std::vector<PageReader::Page>& pages) {
  PageResults event;
  for (const PageReader::Page& page : pages) {
    const RankKey& key = page.target.key;
    const auto rank = core_->ranks().find(key);
    if (rank == core_->ranks().end() || ending_.contains(key)) continue;
    const auto figures = figures_of(page, rank->second);
    if (figures.ok()) {
      metrics_.count_steps(rank->second.figures, *figures);
      event.pages.push_back({key, *figures});
    } else {
      // There is nothing to read until the rank has created its page.
      spdlog::debug("{}: {}", to_string(key), std::string(figures.status().message()));
    }
  }
  handle(event);
}

void Worker::carry_out(const ReadStacks& action) {
  network_.request();
  std::vector<StackReader::Target> targets;
  for (const Rank rank : action.ranks) {
    const RankKey key{action.launch.job, action.launch.attempt, rank};
    const auto state = core_->ranks().find(key);
    if (state != core_->ranks().end() && !ending_.contains(key))
      targets.push_back(
          {key, state->second.local_rank, working_process(proc_root_, state->second.pid)});
  }
  stack_reader_.read(action, targets);
}

void Worker::carry_out(const ReadSymbols& action) {
  pid_t pid = 0;
  for (const auto& [key, rank] : core_->ranks()) {
    if (key.launch() == action.launch && rank.life == Core::Life::kUp && !ending_.contains(key))
      pid = working_process(proc_root_, rank.pid);
  }
  stack_reader_.symbolize(action, pid);
}

void Worker::carry_out(const RunNodeCheck&) {
  spdlog::info("the coordinator requests a check of this node");
  network_.request();  // the newest reading may be older than the fault that led to the check
  node_checker_.run();
}

void Worker::carry_out(const RunDeepCheck& action) {
  const bool is_group = action.order.group_size > 1;
  spdlog::info("the coordinator requests {} of this idle node",
               is_group ? "an all-reduce with other nodes" : "a deep check");
  node_checker_.run_deep(action.order,
                         [this, id = action.order.group_id, is_group](DeepCheckDone done) {
                           // No node needs the keys of the group after the end of this part.
                           if (is_group) rendezvous_->drop_scope({JobId(0), Attempt(id)});
                           if (!is_group && !done.figures.stopped)
                             done.result = with_network(with_gpus(std::move(done.result)));
                           handle(std::move(done));
                         });
}

void Worker::carry_out(const StopDeepCheck&) { node_checker_.stop_deep(); }

void Worker::carry_out(const SendRegister& action) { stream_.send(to_message(action)); }

void Worker::carry_out(const SendLeaving& action) { stream_.send(to_message(action)); }

void Worker::carry_out(const SendHeartbeat& action) {
  metrics_.count_heartbeat(monotonic_now());
  sample_node();
  reap_children();  // also ranks that ended while their stack was read
  check_gpus();
  check_network();
  metrics_.set_stack_traces(stack_tracer_.taken(), stack_tracer_.dropped());
  stream_.send(to_message(action));
  logs_.pump(true);
  if (stream_.is_unanswered(monotonic_now())) pending_.emplace_back(StreamUnanswered{});
}

void Worker::carry_out(const SendStackReport& action) { stack_reader_.write(streams_, action); }

void Worker::carry_out(const SendSymbols& action) { stack_reader_.write(streams_, action); }

void Worker::carry_out(const SendNodeChecked& action) {
  spdlog::log(action.passed ? spdlog::level::info : spdlog::level::warn,
              "the check {} in {:.2f} s: {}{}{}", action.passed ? "passed" : "failed",
              action.seconds, action.sentence, action.details.empty() ? "" : "; ", action.details);
  stream_.send(to_message(action));
}

void Worker::carry_out(const SendRankExited& action) {
  due_reports_.push_back({action, logs_.last_pump() + 1});
  logs_.pump(true);
}

// Sends reports in order, each after the last byte of its rank's log.
void Worker::send_due_reports() {
  std::erase_if(due_reports_, [&](const DueReport& due) {
    if (!logs_.is_drained(due.report.key, due.pump)) return false;
    stream_.send(to_message(due.report));
    return true;
  });
}

void Worker::carry_out(const ForgetRank& action) {
  outputs_.forget(action.key);
  logs_.finish(action.key);
}

void Worker::carry_out(const DropLog& action) { logs_.forget(action.key); }

void Worker::carry_out(const RemoveLaunch& action) {
  rendezvous_->forget_scope(action.launch);
  // A folder with dumps of cores, or one on a slow file system, must not delay the loop.
  const auto status = std::make_shared<absl::Status>();
  const auto log = [status, launch = action.launch] {
    if (status->ok()) {
      spdlog::debug("{}: its folder is removed", to_string(launch));
    } else {
      spdlog::warn("{}: its folder stays: {}", to_string(launch), std::string(status->message()));
    }
  };
  const auto task = files_.run([status, folders = launcher_.folders(),
                                launch = action.launch] { *status = folders.remove(launch); },
                               log);
  if (task == nullptr)
    spdlog::warn("{}: its folder stays: too many file operations do not end",
                 to_string(action.launch));
}

void Worker::carry_out(const EndLaunch& action) {
  rendezvous_->drop_scope(action.launch);
  stack_tracer_.end(action.launch);
}

void Worker::carry_out(const DropLocalCopies& action) {
  for (std::string& folder : launcher_.local_copies().folders_of(action.store, action.job))
    folder_remover_.remove(std::move(folder));
}

void Worker::carry_out(const KeepLocalCopies& action) {
  for (std::string& folder : launcher_.local_copies().folders_but(action.store, action.jobs))
    folder_remover_.remove(std::move(folder));
}

std::vector<StackTracer::TracedRank> Worker::ranks_to_trace(const LaunchKey& launch) const {
  std::vector<StackTracer::TracedRank> ranks;
  for (const auto& [key, rank] : core_->ranks()) {
    if (key.launch() == launch && rank.life == Core::Life::kUp && !ending_.contains(key))
      ranks.push_back({key, working_process(proc_root_, rank.pid),
                       launcher_.folders().log_path(key),
                       self_stacks_path(launcher_.folders().page_path(launch, rank.local_rank))});
  }
  return ranks;
}

void Worker::carry_out(const Note& action) {
  spdlog::log(action.warning ? spdlog::level::warn : spdlog::level::info, "{}", action.text);
}

void Worker::carry_out(const Exit& action) {
  if (action.code == 0) {
    spdlog::info("leaving: {}", action.reason);
  } else {
    spdlog::error("leaving: {}", action.reason);
  }
  exit_code_ = action.code;
  leaving_ = true;
  stream_.close("leaving");
  stop_when_closed();
}

void Worker::on_message(const v1::CoordinatorMessage& message) {
  if (message.has_log_ack()) {
    logs_.on_ack(key_of(message.log_ack()), message.log_ack().offset());
    return;
  }
  const auto event = to_event(message);
  if (!event.ok()) {
    spdlog::warn("ignoring a message of the coordinator: {}",
                 std::string(event.status().message()));
    return;
  }
  if (message.has_registered()) set_lease(message.registered().lease_ms());
  if (message.has_set_pace()) set_lease(message.set_pace().lease_ms());
  const bool was_registered = core_->registered();
  handle(*event);
  if (!was_registered && core_->registered()) {
    spdlog::info("registered with {}", coordinator_);
    logs_.on_connected();
  }
}

void Worker::set_lease(int64_t lease_ms) {
  if (guard_ != nullptr)
    guard_->set_lease(std::chrono::milliseconds(std::clamp<int64_t>(lease_ms, 0, kLeaseMsMax)));
}

void Worker::on_closed(StreamEnd end, const std::string& reason) {
  const bool lost = core_->registered() && !leaving_;
  if (lost) spdlog::warn("lost the coordinator at {}: {}", coordinator_, reason);
  logs_.on_disconnected();
  due_reports_.clear();  // the core sends them again
  handle(Disconnected{end, reason});
  if (leaving_) stop_when_closed();
}

void Worker::stop_when_closed() {
  if (!stream_.is_busy()) context_.stop();
}

bool Worker::ship(LogChunk&& chunk) {
  if (!stream_.has_room()) return false;
  metrics_.count_log_bytes(chunk.data.size());
  stream_.send(to_message(std::move(chunk)));
  return true;
}

}  // namespace muster::worker
