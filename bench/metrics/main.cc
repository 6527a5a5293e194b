// Produces the coordinator's /metrics of a large fleet, for bench/metrics.py.
//
//   metrics_bench RANKS JOBS SCRAPES
//
// Workers with 8 slots each, RANKS in total, run JOBS jobs of equal size, of at most 10,000 nodes,
// which load, train, save and evaluate according to their heartbeats. Each job loses a rank three
// times, in three ways, and resumes from its checkpoint, so that it has the series of lost time and
// its causes. One worker in a hundred is silent, and each job has had an incident of each kind. At
// the end all jobs finish at once, and their series are removed. Prints JSON: bytes and series of
// the page, with the number of lost-time series, and seconds of the scrapes, separately after the
// end.
#include <signal.h>
#include <time.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <absl/strings/str_cat.h>
#include <nlohmann/json.hpp>

#include "common/job/limits.h"
#include "common/process/exit_code.h"
#include "common/time/time.h"
#include "coordinator/shell/metrics/metrics.h"
#include "daemon/metric_words.h"

namespace muster::coordinator {
namespace {

constexpr int32_t kSlots = 8;
constexpr int32_t kStepsOfTurn = 30;  // from a checkpoint to the next fault
constexpr int32_t kStepsAgain = 10;   // steps repeated after a fault
constexpr int32_t kSilentSeconds = 8;
constexpr int32_t kRestartSecondsMax = 120;  // Longer than any back-off after a second fault.
constexpr int64_t kSecond = 1'000'000'000;
constexpr std::string_view kLost = "muster_job_lost_seconds_total{";

class World {
 public:
  World(int32_t ranks, int32_t jobs) : ranks_(ranks), jobs_(jobs) {
    for (int32_t i = 0; i < ranks / kSlots; ++i) {
      step(WorkerRegistered{
          worker(i), Incarnation(1), "bench", "host", kSlots, "h:1", {}, {}, {}, {}, {}, unix_ns_});
    }
    for (int32_t i = 1; i <= jobs; ++i) {
      JobSpec spec;
      spec.name = absl::StrCat("llama2-7b-pretrain-", i);
      spec.nodes = std::min(ranks / jobs / kSlots, kNodesMax);
      spec.ranks_per_node = kSlots;
      spec.output_directory = absl::StrCat("/out/", i);
      spec.restarts_max = 3;
      step(JobSubmitted{RequestToken(static_cast<uint64_t>(i)), "", spec, unix_ns_});
    }
    wait_until_all_run();
    train(0);
    const std::pair<ExitCause, ExitCode> faults[] = {{ExitCause::kUnknown, ExitCode::kFailure},
                                                     {ExitCause::kUnknown, ExitCode::kDiskFull},
                                                     {ExitCause::kOutOfMemory, ExitCode::kFailure}};
    for (const auto& [cause, code] : faults) {
      lose(cause, to_int(code));
      train(steps_ - kStepsAgain);
    }
    for (int i = 0; i < kSilentSeconds; ++i) beat(Phase::kStep, steps_, /*some_are_silent=*/true);
    for (int32_t job = 1; job <= jobs; ++job) open_incidents(job);
  }

  std::string page() { return metrics_.render(core_, now_, unix_ns_); }

  // Ends all jobs.
  void finish() {
    for (int i = 0; i < 3; ++i) beat(Phase::kStep, ++steps_);
    for (const auto& [id, placement] : placements(jobs_))
      end_ranks(id, placement, ExitOf{.code = 0});
    for (const auto& [id, job] : core_.jobs())
      if (job.state != JobState::kSucceeded) give_up("a job is not through");
    beat(Phase::kStep, steps_);
  }

  // Advances until the ends are no longer reported.
  void forget() {
    now_ += kSeriesKept;
    unix_ns_ += kSeriesKept.count();
    beat(Phase::kStep, steps_);
  }

 private:
  struct ExitOf {
    bool stop_ordered = false;
    ExitCause cause = ExitCause::kUnknown;
    int32_t code = -1;
  };

  static WorkerName worker(int32_t index) { return WorkerName(absl::StrCat("node", index)); }
  static size_t index_of(const WorkerName& worker) { return std::stoul(worker.value().substr(4)); }

  void step(const Event& event) {
    ActionList ignored;
    core_.step(event, now_, ignored);
    metrics_.observe(core_, event);
  }

  // Runs an attempt from the checkpoint at `from`.
  void train(int32_t from) {
    from_ = from;
    for (int i = 0; i < 2; ++i) beat(Phase::kLoad, from);
    for (steps_ = from + 3; steps_ < from + kStepsOfTurn; steps_ += 3) beat(Phase::kStep, steps_);
    for (const Phase phase : {Phase::kCheckpointSave, Phase::kEval})
      for (int i = 0; i < 2; ++i) beat(phase, steps_);
    for (int i = 0; i < 3; ++i) beat(Phase::kStep, ++steps_);
  }

  // Sends heartbeats of all workers, a second after the last ones.
  void beat(Phase phase, int32_t steps, bool some_are_silent = false) {
    pass_second();
    if (steps != last_steps_ || phase != Phase::kStep) progressed_ = now_;
    last_steps_ = steps;
    std::vector<HeartbeatReceived> heartbeats(static_cast<size_t>(ranks_ / kSlots));
    for (const auto& [id, job] : core_.jobs()) {
      for (const RankPlacement& placed : job.placement) {
        const size_t at = index_of(placed.worker);
        heartbeats[at].ranks.push_back(progress(job, placed.rank, phase, steps));
      }
    }
    for (size_t i = 0; i < heartbeats.size(); ++i) {
      if (some_are_silent && i % 100 == 99) continue;
      heartbeats[i].worker = worker(static_cast<int32_t>(i));
      heartbeats[i].incarnation = Incarnation(1);
      heartbeats[i].unix_ns = unix_ns_;
      step(heartbeats[i]);
    }
    step(Tick{unix_ns_});
  }

  void pass_second() {
    now_ += std::chrono::seconds(1);
    unix_ns_ += kSecond;
  }

  // Among as many jobs as have series, each job stalls, one of its ranks ends, the others are
  // stopped, and all run again.
  void lose(ExitCause cause, int32_t code) {
    for (int i = 0; i < 3; ++i) beat(Phase::kStep, steps_);
    const Placements losers = placements(std::min(jobs_, daemon::kJobsShown));
    for (const bool stop_ordered : {false, true}) {
      for (const auto& [id, placement] : losers) {
        const auto first = placement.begin() + 1;
        end_ranks(
            id, stop_ordered ? Ranks(first, placement.end()) : Ranks(placement.begin(), first),
            stop_ordered ? ExitOf{.stop_ordered = true} : ExitOf{.cause = cause, .code = code});
      }
      pass_second();
    }
    wait_until_all_run();
  }

  using Ranks = std::vector<RankPlacement>;
  using Placements = std::map<JobId, Ranks>;

  // Returns the first `count` jobs, in rank order.
  Placements placements(int32_t count) const {
    Placements found;
    for (int32_t number = 1; number <= count; ++number) {
      const JobId id(static_cast<uint64_t>(number));
      found[id] = core_.jobs().at(id).placement;
    }
    return found;
  }

  void end_ranks(JobId id, const Ranks& ranks, const ExitOf& how) {
    for (const RankPlacement& placed : ranks) {
      RankExited exit;
      exit.worker = placed.worker;
      exit.incarnation = Incarnation(1);
      exit.report_id = ++reports_;
      exit.job = id;
      exit.attempt = core_.jobs().at(id).attempt;
      exit.rank = placed.rank;
      exit.stop_ordered = how.stop_ordered;
      exit.exit_code = how.code;
      exit.signal = how.stop_ordered ? SIGTERM : 0;
      exit.cause = how.cause;
      exit.last_step = steps_ - 1;
      exit.unix_ns = unix_ns_;
      step(exit);
    }
  }

  void wait_until_all_run() {
    const auto runs = [](const auto& entry) { return is_running(entry.second.state); };
    for (int i = 0; i < kRestartSecondsMax && !std::ranges::all_of(core_.jobs(), runs); ++i)
      beat(Phase::kInit, 0);
    if (std::ranges::count_if(core_.jobs(), runs) == jobs_) return;
    give_up("not every job runs");
  }

  [[noreturn]] static void give_up(const char* why) {
    std::fprintf(stderr, "metrics_bench: %s\n", why);
    std::exit(1);
  }

  RankProgress progress(const Job& job, Rank rank, Phase phase, int32_t steps) const {
    RankProgress progress;
    progress.job = job.id;
    progress.attempt = job.attempt;
    progress.rank = rank;
    progress.pid = 1;
    progress.phase = phase;
    progress.step = steps;
    for (int32_t i = from_; i < steps; ++i) progress.step_times.add(0.1 + 0.05 * (i % 5));
    progress.last_progress_age = now_ - progressed_;
    progress.collective_wait_seconds = (steps - from_) * (rank.value() % 97 == 0 ? 0.02 : 0.06);
    progress.step_seconds = 3.456;
    progress.loss = 2.345678;
    progress.grad_norm = 0.123456;
    progress.tokens_per_second = 1234.5678;
    progress.tflops_per_device = 456.789;
    progress.device_peak_tflops = 989;
    progress.checkpoint_step = steps / 10 * 10;
    return progress;
  }

  void open_incidents(int32_t job) {
    for (size_t kind = 0; kind < kIncidentKindNames.size(); ++kind) {
      Incident incident;
      incident.id = IncidentId(++incidents_);
      incident.job = JobId(static_cast<uint64_t>(job));
      incident.kind = static_cast<IncidentKind>(kind);
      incident.suspects.resize(1);
      incident.suspects[0].rank = Rank(17);
      incident.suspects[0].worker = worker(2);
      incident.moments = {{unix_ns_ - kSecond, "last progress"}, {unix_ns_, "verdict"}};
      metrics_.count_incident(core_, incident, unix_ns_);
    }
  }

  static CoreOptions options() {
    CoreOptions result;
    result.version = "bench";
    return result;
  }

  int32_t ranks_, jobs_;
  uint64_t incidents_ = 0, reports_ = 0;
  int32_t last_steps_ = -1;
  int32_t from_ = 0, steps_ = 0;  // first and current step of every job's attempt
  Instant now_ = instant_from_ns(1'000 * kSecond);
  Instant progressed_ = now_;
  int64_t unix_ns_ = 1'700'000'000 * kSecond;
  Core core_{options(), {}, now_};
  Metrics metrics_{Epoch(1), {}};
};

double cpu_seconds() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) / 1e9;
}

int run(int32_t ranks, int32_t jobs, int32_t scrapes) {
  World world(ranks, jobs);
  std::vector<double> wall, cpu;
  std::string page;
  for (int32_t i = 0; i < scrapes; ++i) {
    const Instant begin = monotonic_now();
    const double cpu_begin = cpu_seconds();
    page = world.page();
    cpu.push_back(cpu_seconds() - cpu_begin);
    wall.push_back(to_seconds(monotonic_now() - begin));
  }
  const size_t bytes = page.size();
  int64_t series = 0, lost_series = 0;
  for (size_t at = 0; at < page.size(); at = page.find('\n', at) + 1) {
    series += page[at] != '#';
    lost_series += page.compare(at, kLost.size(), kLost) == 0;
  }
  // The work at the end of jobs, and the removal afterwards, is spread over a few pages.
  constexpr int kPagesOfEnd = 3;
  const int pages_of_forgetting = daemon::kJobsShown / kForgottenAtOnce + 1;
  std::vector<double> after;
  const auto render_pages = [&](int pages) {
    for (int i = 0; i < pages; ++i) {
      const Instant begin = monotonic_now();
      page = world.page();
      after.push_back(to_seconds(monotonic_now() - begin));
    }
  };
  world.finish();
  render_pages(kPagesOfEnd);
  const double ended = *std::max_element(after.begin(), after.end());
  after.clear();
  world.forget();
  render_pages(pages_of_forgetting);
  if (page.find("muster_job_attempt{") != std::string::npos) {
    std::fprintf(stderr, "metrics_bench: series of jobs are left\n");
    return 1;
  }
  const double forgotten = *std::max_element(after.begin(), after.end());
  const double first = wall.front();
  std::sort(wall.begin(), wall.end());
  std::sort(cpu.begin(), cpu.end());
  std::cout << nlohmann::json({{"ranks", ranks},
                               {"workers", ranks / kSlots},
                               {"jobs", jobs},
                               {"scrapes", scrapes},
                               {"bytes", bytes},
                               {"series", series},
                               {"lost_series", lost_series},
                               {"first_seconds", first},
                               {"seconds", wall[wall.size() / 2]},
                               {"slowest_seconds", wall.back()},
                               {"ended_slowest_seconds", ended},
                               {"forgotten_slowest_seconds", forgotten},
                               {"cpu_seconds", cpu[cpu.size() / 2]}})
                   .dump()
            << "\n";
  return 0;
}

}  // namespace
}  // namespace muster::coordinator

int main(int argc, char** argv) {
  if (argc != 4) {
    std::fprintf(stderr, "usage: metrics_bench RANKS JOBS SCRAPES\n");
    return 2;
  }
  return muster::coordinator::run(std::atoi(argv[1]), std::atoi(argv[2]), std::atoi(argv[3]));
}
