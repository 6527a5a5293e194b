// The cost of the progress page for a rank, for bench/watching.py: nanoseconds of a collective's
// begin and end together, of a completed step and of a new phase, on a page with as many groups as
// a rank of a large mesh has. Prints JSON; figures are medians of rounds.
#include <unistd.h>

#include <algorithm>
#include <functional>
#include <iostream>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "common/progress/progress_page.h"
#include "common/time/time.h"

namespace muster {
namespace {

constexpr int kRounds = 101, kCallsPerRound = 1000, kGroups = 12;

double median_ns(const std::function<void()>& call) {
  std::vector<double> rounds;
  for (int round = 0; round < kRounds; ++round) {
    const Instant start = monotonic_now();
    for (int i = 0; i < kCallsPerRound; ++i) call();
    rounds.push_back(static_cast<double>((monotonic_now() - start).count()) / kCallsPerRound);
  }
  std::nth_element(rounds.begin(), rounds.begin() + kRounds / 2, rounds.end());
  return rounds[kRounds / 2];
}

int run() {
  const std::string path = "page_cost." + std::to_string(getpid());
  auto page = ProgressWriter::create(path, {});
  unlink(path.c_str());
  if (!page.ok()) {
    std::cerr << page.status() << "\n";
    return 1;
  }
  ProgressWriter& writer = **page;
  for (int group = 0; group < kGroups; ++group)
    writer.add_group("fsdp+context#" + std::to_string(group), 8, 0);
  int group = 0;
  StepProgress step;
  bool even = false;
  const nlohmann::json out = {
      {"groups", kGroups},
      {"collective_ns", median_ns([&] {
         group = (group + 1) % kGroups;
         const uint64_t seq = writer.begin_collective(group, CollectiveKind::kAllReduce,
                                                      "layer 3 mlp", 1 << 20, 0, monotonic_now());
         writer.complete_collective(group, seq, monotonic_now());
       })},
      {"step_ns", median_ns([&] {
         ++step.step;
         step.seconds = 0.1;
         writer.complete_step(step, monotonic_now());
       })},
      {"phase_ns", median_ns([&] {
         even = !even;
         writer.set_phase(even ? Phase::kData : Phase::kStep, monotonic_now());
       })}};
  std::cout << out.dump() << "\n";
  return 0;
}

}  // namespace
}  // namespace muster

int main() { return muster::run(); }
