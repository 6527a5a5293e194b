// Kills and restarts a coordinator under load, for bench/durability.py.
//
//   kill_cycles --coordinator PROGRAM --folder FOLDER --cycles N [--seed 1] [--workers 4]
//               [--clients 3] [--life-ms 250]
//
// Callers submit, watch and cancel jobs; simulated workers start and end their ranks. The
// coordinator is killed by SIGKILL at random times, some of them during its start, and started
// again on the same state. At the end, every confirmed job must reach its end. Prints one line of
// JSON. Exits with 1 if a confirmed submission was lost, a rank was started twice, or another rule
// of observations.h was violated.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <iostream>
#include <memory>
#include <random>
#include <thread>

#include <CLI/CLI.hpp>
#include <absl/strings/str_cat.h>
#include <nlohmann/json.hpp>

#include "bench/durability/client.h"
#include "bench/durability/daemon.h"
#include "bench/durability/observations.h"
#include "bench/durability/worker.h"

namespace muster::bench {
namespace {

using std::chrono::milliseconds;

constexpr int32_t kSlots = 4;
constexpr Duration kReadyLimit = std::chrono::seconds(60);
constexpr Duration kEndLimit = std::chrono::seconds(180);
// One cycle in this many kills the coordinator during its start.
constexpr uint64_t kEarlyOneIn = 8;
constexpr uint64_t kEarlyMsMax = 60;

struct Options {
  std::string program;
  std::string folder;
  int cycles = 1;
  uint64_t seed = 1;
  int workers = 4;
  int clients = 3;
  uint64_t life_ms = 250;
};

// Kills and restarts the daemon. Returns the number of kills during a start.
int cycle(Daemon& daemon, const Options& options, Observations& observations) {
  std::mt19937_64 random(options.seed);
  int early = 0;
  for (int i = 0; i < options.cycles && observations.violations().empty(); ++i) {
    if (const std::string error = daemon.start(); !error.empty()) observations.violate(error);
    if (random() % kEarlyOneIn == 0) {
      ++early;
      std::this_thread::sleep_for(milliseconds(random() % kEarlyMsMax));
    } else {
      if (!daemon.wait_until_ready(kReadyLimit))
        observations.violate("the coordinator did not start");
      // An exponential distribution: most lives are short, and some long.
      const double share = static_cast<double>(random() >> 11) * 0x1p-53;
      const double life = -static_cast<double>(options.life_ms) * std::log(1 - share);
      std::this_thread::sleep_for(std::chrono::duration<double, std::milli>(life));
    }
    if (const std::string error = daemon.kill_now(); !error.empty()) observations.violate(error);
  }
  return early;
}

int run(const Options& options) {
  Observations observations;
  Daemon daemon(options.program, options.folder);
  std::string error = daemon.start();
  if (error.empty() && !daemon.wait_until_ready(kReadyLimit))
    error = "the coordinator did not start";
  if (!error.empty()) {
    std::cerr << error << "\n";
    return 1;
  }
  const Instant begin = monotonic_now();
  std::vector<std::unique_ptr<Worker>> workers;
  std::vector<std::unique_ptr<Client>> clients;
  for (int i = 0; i < options.workers; ++i)
    workers.push_back(std::make_unique<Worker>(daemon.address(), absl::StrCat("w", i), kSlots,
                                               options.seed * 1'000 + static_cast<uint64_t>(i),
                                               observations));
  for (int i = 0; i < options.clients; ++i)
    clients.push_back(std::make_unique<Client>(daemon.address(), i, options.workers - 1, kSlots,
                                               options.seed * 2'000 + static_cast<uint64_t>(i),
                                               observations));
  std::this_thread::sleep_for(milliseconds(options.life_ms));
  if (error = daemon.kill_now(); !error.empty()) observations.violate(error);
  const int early = cycle(daemon, options, observations);
  if (error = daemon.start(); !error.empty()) observations.violate(error);
  for (const auto& client : clients) client->finish();
  const auto is_open = [](const auto& client) { return !client->has_finished(); };
  const Instant end = monotonic_now() + kEndLimit;
  while (std::ranges::any_of(clients, is_open) && monotonic_now() < end &&
         observations.violations().empty())
    std::this_thread::sleep_for(milliseconds(20));
  if (std::ranges::any_of(clients, is_open)) observations.violate("a confirmed job did not end");
  clients.clear();
  workers.clear();
  if (error = daemon.stop(); !error.empty()) observations.violate(error);
  nlohmann::json report = nlohmann::json::parse(observations.report());
  report["cycles"] = options.cycles + 1;
  report["kills_during_start"] = early;
  report["seconds"] = static_cast<int64_t>(to_seconds(monotonic_now() - begin));
  std::cout << report.dump() << std::endl;
  return observations.violations().empty() ? 0 : 1;
}

int parse_and_run(int argc, char** argv) {
  CLI::App app("Kills and restarts a coordinator under load.", "kill_cycles");
  Options options;
  app.add_option("--coordinator", options.program, "The muster-coordinator program")->required();
  app.add_option("--folder", options.folder, "An empty folder for the state and the log")
      ->required();
  app.add_option("--cycles", options.cycles, "Number of kills and restarts")->required();
  app.add_option("--seed", options.seed, "Seed of the times and of the load");
  app.add_option("--workers", options.workers, "Number of simulated workers")
      ->check(CLI::Range(2, 64));
  app.add_option("--clients", options.clients, "Number of callers")->check(CLI::Range(1, 64));
  app.add_option("--life-ms", options.life_ms, "Mean time from readiness to the kill");
  CLI11_PARSE(app, argc, argv);
  std::filesystem::create_directories(options.folder);
  return run(options);
}

}  // namespace
}  // namespace muster::bench

int main(int argc, char** argv) { return muster::bench::parse_and_run(argc, argv); }
