// The processes of ranks: their starts, their ends, and the disk of their output.
#include <algorithm>
#include <utility>

#include <spdlog/spdlog.h>

#include "worker/shell/files/disk_space.h"
#include "worker/shell/ranks/node_fault.h"
#include "worker/shell/worker.h"

namespace muster::worker {
namespace {

constexpr Duration kNodeSampleInterval = std::chrono::seconds(1);

// Returns the exit code that a shell would have returned.
int32_t exit_code_of_start(const SpawnRank& request, const absl::Status& problem) {
  if (request.launch->spec.command.empty() || is_node_fault(problem))
    return to_int(ExitCode::kFailure);
  if (absl::IsNotFound(problem)) return to_int(ExitCode::kProgramNotFound);
  if (absl::IsPermissionDenied(problem)) return to_int(ExitCode::kNotExecutable);
  return to_int(ExitCode::kFailure);
}

}  // namespace

void Worker::carry_out(const SpawnRank& action) {
  rendezvous_->forget_scope(action.key.launch());
  const bool gets_input =
      input_ && action.key.rank == Rank(0) && !action.launch->spec.command.empty();
  if (gets_input) {
    if (auto status = input_->prepare(); !status.ok()) return on_start_failed(action, status);
  }
  starter_.start(action, gets_input ? input_->fd() : -1);
}

void Worker::on_started(const SpawnRank& request, pid_t pid) {
  const RankKey& key = request.key;
  spdlog::info("{} started: pid {}", to_string(key), pid);
  const Instant now = monotonic_now();
  starts_.insert_or_assign(
      key, Start{now, OomKillHistory(OomKillCounter::of(proc_root_, kCgroupRoot, pid), now)});
  logs_.add(key, launcher_.folders().log_path(key));
  stack_tracer_.begin(key.launch(), request.launch->spec);
  handle(RankStarted{key, pid});
}

void Worker::on_start_failed(const SpawnRank& request, const absl::Status& problem) {
  spdlog::error("{} could not be started: {}", to_string(request.key),
                std::string(problem.message()));
  handle(SpawnFailed{request.key, std::string(problem.message()),
                     exit_code_of_start(request, problem),
                     is_node_fault(problem) ? ExitCause::kNodeFault : ExitCause::kUnknown});
}

// Reads the evidence of ended ranks beside the loop; until then the core considers them alive.
void Worker::reap_children() {
  std::vector<EndedRank> ended;
  for (const ReapedProcess& end : reaper_.reap()) {
    if (starter_.settle(end.key)) continue;
    EndedRank one;
    one.event = {.key = end.key, .exit_code = end.exit_code, .signal = end.signal, .detail = ""};
    one.cpu_time = end.cpu_time;
    one.event.worker_left = core_->leaving();
    one.event.output_incomplete = without_space_.erase(end.key) > 0;
    if (end.by_guard) {
      one.event.cause = ExitCause::kWorkerStalled;
      one.event.detail =
          "its worker stood still for most of its lease, so its guard ended the rank";
      spdlog::warn("{}: {}", to_string(end.key), one.event.detail);
    }
    if (const auto start = starts_.extract(end.key)) {
      one.started = start.mapped().at;
      one.oom_kills = start.mapped().oom_kills.counter();
      one.oom_kills_before = start.mapped().oom_kills.count_before(monotonic_now());
    }
    if (const auto rank = core_->ranks().find(end.key); rank != core_->ranks().end()) {
      one.local_rank = rank->second.local_rank;
      one.gpus = rank->second.launch->gpus_of(one.local_rank);
      one.of_program = !rank->second.launch->spec.command.empty();
      one.pid = rank->second.pid;
      one.was_killed = rank->second.killed;
      one.event.last_step = rank->second.figures.step;  // if the page cannot be read in time
    }
    metrics_.count_exit(end.exit_code, end.signal);
    ending_.insert(end.key);
    ended.push_back(std::move(one));
  }
  end_reader_.read(std::move(ended));
}

void Worker::report_end(const RankReaped& event) {
  spdlog::info("{} ended: exit code {}, signal {}, last step {}: {}", to_string(event.key),
               event.exit_code, event.signal, event.last_step, event.detail);
  ending_.erase(event.key);
  const auto rank = core_->ranks().find(event.key);
  if (event.figures && rank != core_->ranks().end())
    metrics_.count_steps(rank->second.figures, *event.figures);
  handle(event);
}

// Samples the disk of the logs, because ranks write their logs themselves and only the disk shows
// that output did not fit; and the counters of out-of-memory kills.
void Worker::sample_node() {
  struct Sample {
    std::map<RankKey, OomKillCounter> counters;
    std::map<RankKey, int64_t> oom_kills;
    Instant at{};  // the counters were read since
    bool is_full = false;
  };
  const Instant now = monotonic_now();
  if (node_sample_ != nullptr || core_->ranks().empty() || now < next_node_sample_) return;
  next_node_sample_ = now + kNodeSampleInterval;
  const auto sample = std::make_shared<Sample>();
  for (const auto& [key, start] : starts_) sample->counters.emplace(key, start.oom_kills.counter());
  node_sample_ = files_.run(
      [sample, folder = work_dir_] {
        sample->at = monotonic_now();
        for (const auto& [key, counter] : sample->counters)
          sample->oom_kills.emplace(key, counter.count());
        sample->is_full = is_disk_full(folder);
      },
      [this, sample] {
        node_sample_ = nullptr;
        add_oom_kills(sample->oom_kills, sample->at);
        if (!sample->is_full) return;
        for (const auto& [key, rank] : core_->ranks())
          if (rank.life == Core::Life::kUp) without_space_.insert(key);
      });
}

void Worker::add_oom_kills(const std::map<RankKey, int64_t>& counts, Instant at) {
  for (const auto& [key, count] : counts)
    if (const auto start = starts_.find(key); start != starts_.end())
      start->second.oom_kills.add(count, at);
}

}  // namespace muster::worker
