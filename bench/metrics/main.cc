// Makes the coordinator's /metrics of a large fleet, for bench/metrics.py.
//
//   metrics_bench RANKS JOBS SCRAPES
//
// Workers with 8 slots each run JOBS jobs of equal size, RANKS ranks in all, which have trained for 60 steps by their heartbeats; one worker
// in a hundred is silent, and each job has had an incident of each kind. Prints JSON: bytes and series of the page, seconds of each scrape.
#include <time.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <string>
#include <vector>

#include <absl/strings/str_cat.h>
#include <nlohmann/json.hpp>

#include "common/time.h"
#include "coordinator/shell/metrics.h"

namespace muster::coordinator {
namespace {

constexpr int32_t kSlots = 8, kSteps = 60;
constexpr int64_t kSecond = 1'000'000'000;

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
      spec.nodes = ranks / jobs / kSlots;
      spec.ranks_per_node = kSlots;
      spec.output_directory = absl::StrCat("/out/", i);
      step(JobSubmitted{RequestToken(static_cast<uint64_t>(i)), "", spec, unix_ns_});
    }
    for (int32_t steps = 1; steps <= kSteps; steps += 3) train(steps);
    for (int32_t job = 1; job <= jobs; ++job) open_incidents(job);
  }

  std::string page() { return metrics_.render(core_, now_, unix_ns_); }

 private:
  static WorkerName worker(int32_t index) { return WorkerName(absl::StrCat("node", index)); }

  void step(const Event& event) {
    ActionList ignored;
    core_.step(event, now_, ignored);
    metrics_.observe(core_, event);
  }

  // Heartbeats of all workers but the silent ones, a second apart.
  void train(int32_t steps) {
    now_ += std::chrono::seconds(1);
    unix_ns_ += kSecond;
    std::vector<HeartbeatReceived> heartbeats(static_cast<size_t>(ranks_ / kSlots));
    for (const auto& [id, job] : core_.jobs()) {
      for (const RankPlacement& placed : job.placement) {
        const size_t at = std::stoul(placed.worker.value().substr(4));
        heartbeats[at].worker = placed.worker;
        heartbeats[at].ranks.push_back(progress(id, placed.rank, steps));
      }
    }
    for (size_t i = 0; i < heartbeats.size(); ++i) {
      if (heartbeats[i].ranks.empty() || (i % 100 == 99 && steps > kSteps - 24)) continue;
      heartbeats[i].incarnation = Incarnation(1);
      heartbeats[i].unix_ns = unix_ns_;
      step(heartbeats[i]);
    }
  }

  static RankProgress progress(JobId job, Rank rank, int32_t steps) {
    RankProgress progress;
    progress.job = job;
    progress.attempt = Attempt(1);
    progress.rank = rank;
    progress.pid = 1;
    progress.phase = Phase::kStep;
    progress.step = steps;
    for (int32_t i = 0; i < steps; ++i) progress.step_times.add(1 + i % 7);
    progress.collective_wait_seconds = steps * (rank.value() % 97 == 0 ? 0.2 : 0.6);
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
  uint64_t incidents_ = 0;
  Instant now_ = instant_from_ns(1'000 * kSecond);
  int64_t unix_ns_ = 1'700'000'000 * kSecond;
  Core core_{options(), {}, now_};
  Metrics metrics_{Epoch(1), {.state_dir = "/tmp"}};
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
  int64_t series = 0;
  for (size_t at = 0; at < page.size(); at = page.find('\n', at) + 1) series += page[at] != '#';
  const double first = wall.front();
  std::sort(wall.begin(), wall.end());
  std::sort(cpu.begin(), cpu.end());
  std::cout << nlohmann::json({{"ranks", ranks},
                               {"workers", ranks / kSlots},
                               {"jobs", jobs},
                               {"scrapes", scrapes},
                               {"bytes", page.size()},
                               {"series", series},
                               {"first_seconds", first},
                               {"seconds", wall[wall.size() / 2]},
                               {"slowest_seconds", wall.back()},
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
