#include "trainer_core/forecast/search_output.h"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <thread>

#include "common/process/start_limits.h"
#include "common/process/usable_cpus.h"
#include "common/time/time.h"
#include "trainer_core/base/json_file.h"
#include "trainer_core/startup/load_config.h"

namespace muster::trainer {
namespace {

constexpr Duration kProgressInterval = std::chrono::milliseconds(200);
// More threads gain little: a step of the search has some dozens of plans.
constexpr int32_t kSearchThreadsMax = 16;

bool is_asked_to_stop() {
  sigset_t pending;
  return sigpending(&pending) == 0 &&
         (sigismember(&pending, SIGINT) == 1 || sigismember(&pending, SIGTERM) == 1);
}

}  // namespace

absl::StatusOr<nlohmann::json> run_search(const TrainConfig& config, const PlannedDevice& device,
                                          const std::string& machine_path, SearchOptions options,
                                          std::ostream& out) {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  const auto text = read_json_file(machine_path, kConfigBytesMax);
  if (!text.ok()) return text.status();
  const auto machine = step_machine_from_json(*text);
  if (!machine.ok()) return machine.status();
  // A thread that records a step waits now and then for those of the step's communication.
  options.threads = std::clamp(2 * usable_cpus(), 2, kSearchThreadsMax);
  if (auto status = check_start_needs("muster plan --search",
                                      {.threads = 2 * static_cast<uint64_t>(options.threads)});
      !status.ok())
    return status;
  Instant reported_at{};
  const auto proceed = [&](const SearchProgress& progress) {
    const Instant now = monotonic_now();
    if (now - reported_at >= kProgressInterval) {
      reported_at = now;
      const nlohmann::json line = {{"planned", progress.planned},
                                   {"limit", options.plans_max},
                                   {"fitting", progress.fitting},
                                   {"tokens_per_second", progress.tokens_per_second}};
      out << line.dump() << std::endl;
    }
    return !is_asked_to_stop();
  };
  const auto result = search_settings(config, device, *machine, options, proceed);
  if (!result.ok()) return result.status();
  return to_json(*result);
}

}  // namespace muster::trainer
