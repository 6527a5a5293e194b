// Weeks of a simulated training with the Llama 3 report's faults, for bench/recovery_simulation.py.
//
//   recovery_simulation NODES SPARES DAYS SEED [FEWER]
//
// FEWER: the number of nodes on which the job continues if there are too few.
//
// Prints JSON: the use of time, by class and cause; durations of recoveries; whether an operator
// was needed; and the plan.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <ctime>
#include <iostream>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "tests/simulation/long_training.h"

namespace muster::simulation {
namespace {

using coordinator::Incident;
using coordinator::LossCause;
using coordinator::LossTable;
using coordinator::Recovery;
using coordinator::RecoveryMoment;
using nlohmann::json;

// Nearest rank.
json percentiles(std::vector<double> values) {
  if (values.empty()) return nullptr;
  std::sort(values.begin(), values.end());
  const auto at = [&](double part) {
    const auto index = static_cast<size_t>(std::ceil(part * static_cast<double>(values.size())));
    return values[std::max<size_t>(index, 1) - 1];
  };
  return {{"count", values.size()}, {"p50", at(0.5)}, {"p99", at(0.99)}, {"max", values.back()}};
}

json losses_of(const LossTable& table) {
  json rows = json::array();
  for (size_t what = 1; what < coordinator::kTimeClasses; ++what) {
    for (size_t cause = 0; cause < coordinator::kLossCauses; ++cause) {
      const Duration time = table.time[what][cause];
      if (time == Duration::zero()) continue;
      rows.push_back(
          {{"cause", std::string(coordinator::loss_cause_name(static_cast<LossCause>(cause)))},
           {"what", std::string(coordinator::kTimeClassNames[what])},
           {"seconds", to_seconds(time)}});
    }
  }
  return rows;
}

double between(const Recovery& recovery, RecoveryMoment from, RecoveryMoment to) {
  return static_cast<double>(recovery.at(to) - recovery.at(from)) / 1e9;
}

// In simulated seconds, over the recoveries that completed a step.
json recoveries_of(const std::vector<Incident>& incidents) {
  using enum RecoveryMoment;
  std::vector<double> detected, stopped, first, caught, lost;
  int interrupted = 0;
  for (const Incident& incident : incidents) {
    if (!incident.recovery) continue;
    const Recovery& recovery = *incident.recovery;
    interrupted += recovery.interrupted_by != coordinator::IncidentId(0) ? 1 : 0;
    detected.push_back(between(recovery, kProgress, kDecided));
    if (recovery.at(kStopped) != 0) stopped.push_back(between(recovery, kDecided, kStopped));
    if (recovery.at(kFirstStep) != 0) {
      first.push_back(between(recovery, kProgress, kFirstStep));
      lost.push_back(static_cast<double>(std::max<int64_t>(recovery.steps_lost(), 0)));
    }
    if (recovery.at(kCaughtUp) != 0) caught.push_back(between(recovery, kProgress, kCaughtUp));
  }
  return {{"progress_to_decided_seconds", percentiles(detected)},
          {"decided_to_stopped_seconds", percentiles(stopped)},
          {"progress_to_first_step_seconds", percentiles(first)},
          {"progress_to_caught_up_seconds", percentiles(caught)},
          {"steps_lost", percentiles(lost)},
          {"interrupted_by_another_fault", interrupted}};
}

json plan_of(const LongPlan& plan) {
  return {{"nodes", plan.nodes},
          {"ranks", plan.nodes * plan.ranks_per_node},
          {"spare_nodes", plan.spares},
          {"smaller_sizes_nodes", plan.smaller_sizes},
          {"days", plan.days},
          {"step_seconds", to_seconds(plan.step_time)},
          {"checkpoint_every_steps", plan.checkpoint_every},
          {"save_stall_seconds", to_seconds(plan.save_stall)},
          {"save_seconds", to_seconds(plan.save_time)},
          {"process_start_seconds", to_seconds(plan.process_start)},
          {"load_seconds", to_seconds(plan.load)},
          {"stop_seconds", to_seconds(plan.stop_time)}};
}

json run(const LongPlan& plan, uint64_t seed) {
  const LongResult result = LongTraining(plan, seed).run();
  const double wall = to_seconds(result.table.wall());
  // A job that has not recovered by itself within an hour needs an operator.
  constexpr double kPatienceSeconds = 3'600;
  const bool person = coordinator::is_terminal(result.state) ||
                      to_seconds(result.longest_without_a_step) > kPatienceSeconds;
  int32_t count = 0;
  for (const auto& [name, times] : result.interruptions) count += times;
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return {
      {"plan", plan_of(plan)},
      {"seed", seed},
      {"ettr", result.table.ratio()},
      {"ettr_of_the_model", to_seconds(result.productive) / wall},
      {"wall_seconds", wall},
      {"productive_on_fewer_nodes_seconds", to_seconds(result.on_fewer_nodes)},
      {"speed_of_undisturbed",
       static_cast<double>(result.steps) * to_seconds(plan.step_time) / wall},
      {"needed_a_person", person ? 1 : 0},
      {"state", std::string(coordinator::job_state_name(result.state))},
      {"reason", result.reason},
      {"steps", result.steps},
      {"attempts", result.attempts},
      {"longest_without_a_step_seconds", to_seconds(result.longest_without_a_step)},
      {"waited_for", result.waited_for},
      {"interruptions", count},
      {"interruptions_by_kind", result.interruptions},
      {"losses", losses_of(result.table)},
      {"recoveries", recoveries_of(result.incidents)},
      {"cpu_seconds", static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec)}};
}

}  // namespace
}  // namespace muster::simulation

int main(int argc, char** argv) {
  using namespace muster::simulation;  // NOLINT: this program is about it
  LongPlan plan;
  if (argc == 6) plan.smaller_sizes = {std::atoi(argv[5])};
  if (argc == 5 || argc == 6) {
    plan.nodes = std::atoi(argv[1]);
    plan.spares = std::atoi(argv[2]);
    plan.days = std::atof(argv[3]);
  }
  const bool fewer = plan.smaller_sizes.empty() ||
                     (plan.smaller_sizes[0] > 0 && plan.smaller_sizes[0] < plan.nodes);
  if ((argc != 5 && argc != 6) || plan.nodes < 2 || plan.spares < 0 || plan.days <= 0 || !fewer) {
    std::cerr << "recovery_simulation NODES SPARES DAYS SEED [FEWER]: two nodes at least, and 0 < "
                 "FEWER < NODES\n";
    return 2;
  }
  std::cout << run(plan, std::strtoull(argv[4], nullptr, 10)) << "\n";
  return 0;
}
