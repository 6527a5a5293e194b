#include "cli/jobs/node_gpus.h"

#include <signal.h>

#include <algorithm>
#include <functional>

#include <absl/cleanup/cleanup.h>
#include <absl/strings/str_cat.h>

#include "cli/client.h"
#include "cli/run/this_machine.h"
#include "cli/terminal/terminal.h"
#include "common/process/stop_requests.h"
#include "common/time/time.h"
#include "jobspec/mesh/mesh_keys.h"

namespace muster::cli {
namespace {

// Repeats the call as long as a submission is repeated.
absl::StatusOr<v1::ListWorkersResponse> list_workers(Client& client) {
  const Instant give_up = monotonic_now() + kSubmitPatience;
  while (true) {
    auto workers = client.list_workers();
    if (!absl::IsUnavailable(workers.status())) return workers;
    do {
      if (is_stop_pending() || monotonic_now() >= give_up) return workers;
    } while (!client.wait_for_connection());
  }
}

int32_t at_least_one_gpu(int32_t gpus_per_rank) { return std::max(gpus_per_rank, 1); }

}  // namespace

int32_t gpus_on_every_node(std::vector<int32_t> offered, int32_t nodes) {
  std::erase_if(offered, [](int32_t gpus) { return gpus <= 0; });
  if (offered.empty() || nodes < 1) return 0;
  std::ranges::sort(offered, std::greater<>());
  return offered[std::min<size_t>(nodes, offered.size()) - 1];
}

std::vector<int32_t> gpus_of_workers(const v1::ListWorkersResponse& workers,
                                     int32_t gpus_per_rank) {
  std::vector<int32_t> admitted, excluded;
  for (const v1::WorkerInfo& worker : workers.workers()) {
    if (!worker.connected() || worker.leaving()) continue;
    const int64_t of_slots = int64_t{worker.slots()} * at_least_one_gpu(gpus_per_rank);
    (worker.has_exclusion() ? excluded : admitted)
        .push_back(static_cast<int32_t>(std::min<int64_t>(worker.gpus_size(), of_slots)));
  }
  return gpus_on_every_node(admitted, 1) > 0 ? admitted : excluded;
}

std::optional<int32_t> nodes_with_open_ranks(JobArguments& arguments) {
  if (arguments.is_program() || arguments.ranks || arguments.ranks_per_node) return std::nullopt;
  auto config = load_config(arguments);
  if (!config.ok()) return std::nullopt;
  arguments.config = *std::move(config);
  if (!may_use_gpus(*arguments.config)) return std::nullopt;
  return jobspec::nodes_of_open_mesh(arguments.config->settings, arguments.nodes);
}

std::string gpus_sentence(int32_t gpus, int32_t gpus_per_rank, const std::string& where) {
  constexpr char kOther[] = "; --ranks-per-node N sets another number";
  const int32_t ranks = gpus / at_least_one_gpu(gpus_per_rank);
  if (ranks < 1)
    return absl::StrCat("1 rank per node: ", where, " report ",
                        gpus == 0 ? "no GPUs" : "too few GPUs for more", kOther);
  return absl::StrCat(ranks, ranks == 1 ? " rank" : " ranks", " per node: ", where, " report ",
                      gpus, gpus == 1 ? " GPU" : " GPUs", " per node",
                      gpus_per_rank > 1 ? absl::StrCat(", ", gpus_per_rank, " for each rank") : "",
                      kOther);
}

std::string unknown_gpus_sentence(const std::string& why) {
  return absl::StrCat("1 rank per node: the nodes' GPUs are unknown: ", why,
                      "; --gpus-per-node N or --ranks-per-node N sets another number");
}

const absl::StatusOr<v1::ListWorkersResponse>& FleetWorkers::get() {
  if (workers_) return *workers_;
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, &before);
  const absl::Cleanup restore = [&] { pthread_sigmask(SIG_SETMASK, &before, nullptr); };
  Client client(coordinator_);
  return workers_.emplace(list_workers(client));
}

const absl::StatusOr<v1::ListWorkersResponse>& FleetWorkers::get(Client& client) {
  return workers_ ? *workers_ : workers_.emplace(client.list_workers());
}

absl::Status take_gpus_of_fleet(FleetWorkers& fleet, JobArguments& arguments) {
  const auto nodes = nodes_with_open_ranks(arguments);
  if (!nodes) return absl::OkStatus();
  const auto& workers = fleet.get();
  if (!workers.ok()) return workers.status();
  const int32_t gpus_per_rank = arguments.gpus_per_rank.value_or(1);
  arguments.node_gpus = gpus_on_every_node(gpus_of_workers(*workers, gpus_per_rank), *nodes);
  note(gpus_sentence(*arguments.node_gpus, gpus_per_rank,
                     absl::StrCat("the workers of ", fleet.coordinator().address)));
  return absl::OkStatus();
}

}  // namespace muster::cli
