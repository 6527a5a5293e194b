// The fault matrix of simulated trainings, for bench/hang_simulation.py.
//
//   hang_simulation RANKS SEEDS
//
// Prints JSON: for each trouble of tests/simulation/fleet.h, over seeds 1 to SEEDS, how often it
// was reported and the right rank was blamed, how long that took in simulated time, and other
// reports;
// and the processor time of everything.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <ctime>
#include <iostream>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "tests/simulation/fleet.h"

namespace muster::simulation {
namespace {

// Nearest rank: with few seeds the 99th percentile is the maximum.
double percentile(std::vector<double> values, double part) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const auto index = static_cast<size_t>(std::ceil(part * static_cast<double>(values.size())));
  return values[std::max<size_t>(index, 1) - 1];
}

nlohmann::json row_of(int32_t ranks, Trouble trouble, uint64_t seeds) {
  int reported = 0, right = 0, in_time = 0, false_alarms = 0, ended = 0;
  std::vector<double> latencies;
  for (uint64_t seed = 1; seed <= seeds; ++seed) {
    const FleetResult result = Fleet(ranks, trouble, seed).run();
    reported += result.reported;
    right += result.right;
    false_alarms += result.false_alarms;
    ended += result.ended;
    if (!result.reported) continue;
    latencies.push_back(to_seconds(result.latency));
    in_time += result.bound == Duration::zero() || result.latency <= result.bound;
  }
  nlohmann::json row = {{"ranks", ranks},
                        {"trouble", std::string(kTroubleNames[static_cast<size_t>(trouble)])},
                        {"runs", seeds},
                        {"false_alarms", false_alarms},
                        {"attempts_ended_for_nothing", ended}};
  if (expected_of(trouble) == Expected::kNothing) return row;
  row["reported"] = reported;
  row["named_right"] = right;
  row["precision"] = reported == 0 ? 0 : static_cast<double>(right) / reported;
  row["recall"] = static_cast<double>(right) / static_cast<double>(seeds);
  row["in_time"] = in_time;
  row["latency_seconds_p50"] = percentile(latencies, 0.5);
  row["latency_seconds_p99"] = percentile(latencies, 0.99);
  return row;
}

}  // namespace
}  // namespace muster::simulation

int main(int argc, char** argv) {
  using namespace muster::simulation;  // NOLINT: this program is about it
  const int32_t ranks = argc == 3 ? std::atoi(argv[1]) : 0;
  const uint64_t seeds = argc == 3 ? std::strtoull(argv[2], nullptr, 10) : 0;
  if (ranks < 8 || ranks % 8 != 0 || seeds < 1) {
    std::cerr << "hang_simulation RANKS SEEDS: ranks in eights, one seed at least\n";
    return 2;
  }
  nlohmann::json rows = nlohmann::json::array();
  for (size_t i = 0; i < kTroubleNames.size(); ++i)
    rows.push_back(row_of(ranks, static_cast<Trouble>(i), seeds));
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  const double cpu = static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
  std::cout << nlohmann::json{{"cpu_seconds", cpu}, {"rows", rows}} << "\n";
  return 0;
}
