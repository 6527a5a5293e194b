// The cost of reading stacks of running programs: for them, the time that a thread is stopped, and
// for us, the time of a sample.
//
//   stack_sampler ROUNDS PAUSE_MS PID...      prints one JSON line
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <iostream>
#include <string>
#include <thread>
#include <vector>

#include <nlohmann/json.hpp>

#include "worker/stacks/proc_files.h"
#include "worker/stacks/stack_sampler.h"
#include "worker/stacks/thread_copies.h"

namespace muster::worker {
namespace {

nlohmann::json quantiles(std::vector<double> values) {
  if (values.empty()) return nullptr;
  std::ranges::sort(values);
  const auto at = [&](double q) {
    return values[static_cast<size_t>(q * static_cast<double>(values.size() - 1))];
  };
  return {{"p50", at(0.5)}, {"p99", at(0.99)}, {"max", values.back()}, {"n", values.size()}};
}

int run(int rounds, std::chrono::milliseconds pause, const std::vector<StackTarget>& targets) {
  std::vector<double> held_us;
  std::vector<double> process_ms;
  for (int round = 0; round < rounds; ++round) {
    for (const StackTarget& target : targets) {
      const auto tids = read_thread_ids("/proc", target.pid, kThreadsPerRankMax);
      const ProcessMap map = read_process_map("/proc", target.pid).value_or(ProcessMap{});
      const Instant begin = monotonic_now();
      for (const ThreadCopy& copy :
           copy_threads(target.pid, tids, map, begin + std::chrono::seconds(5))) {
        if (copy.result == CopyResult::kCopied) held_us.push_back(to_seconds(copy.held) * 1e6);
      }
      process_ms.push_back(to_seconds(monotonic_now() - begin) * 1e3);
    }
    std::this_thread::sleep_for(pause);
  }
  StackSampler sampler;
  std::vector<double> sample_ms;
  size_t threads = 0;
  size_t frames = 0;
  size_t truncated = 0;
  size_t problems = 0;
  for (int round = 0; round < rounds; ++round) {
    const Instant begin = monotonic_now();
    const StackSample sample = sampler.sample(targets, begin + std::chrono::seconds(10));
    sample_ms.push_back(to_seconds(monotonic_now() - begin) * 1e3);
    threads = frames = truncated = 0;
    for (const RankStacks& rank : sample.ranks) {
      problems += rank.problem.empty() ? 0 : 1;
      threads += rank.threads.size();
      for (const ThreadStack& thread : rank.threads) {
        frames += thread.frames.size();
        truncated += thread.truncated ? 1 : 0;
      }
    }
    std::this_thread::sleep_for(pause);
  }
  const double first_ms = sample_ms.front();
  sample_ms.erase(sample_ms.begin());
  const nlohmann::json result = {{"processes", targets.size()},
                                 {"threads", threads},
                                 {"frames", frames},
                                 {"truncated", truncated},
                                 {"problems", problems},
                                 {"held_us", quantiles(held_us)},
                                 {"copy_process_ms", quantiles(process_ms)},
                                 {"first_sample_ms", first_ms},
                                 {"sample_ms", quantiles(sample_ms)}};
  std::cout << result.dump() << '\n';
  return problems == 0 ? 0 : 1;
}

}  // namespace
}  // namespace muster::worker

int main(int argc, char** argv) {
  if (argc < 4) {
    std::cerr << "usage: stack_sampler ROUNDS PAUSE_MS PID...\n";
    return 2;
  }
  std::vector<muster::worker::StackTarget> targets;
  for (int i = 3; i < argc; ++i) targets.push_back({.rank = i - 3, .pid = std::atoi(argv[i])});
  return muster::worker::run(std::max(2, std::atoi(argv[1])),
                             std::chrono::milliseconds(std::atoi(argv[2])), targets);
}
