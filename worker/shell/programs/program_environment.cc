#include "worker/shell/programs/program_environment.h"

#include <algorithm>
#include <utility>

#include <absl/strings/str_cat.h>

#include "common/files/find_program.h"
#include "daemon/endpoint.h"
#include "worker/shell/programs/exec_problem.h"

namespace muster::worker {
namespace {

// PATH for ranks of a worker that was started without one.
constexpr char kDefaultPath[] = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

// Returns the rank's GPUs as indices into those that all ranks of the node see; "" if it sees only
// its own, or selects among others.
std::string own_devices(const SpawnRank& request) {
  const Launch& launch = *request.launch;
  const std::vector<int32_t> own = launch.gpus_of(request.local_rank);
  if (launch.spec.gpus_per_rank > 1 || own.size() == launch.gpus.size() ||
      launch.spec.environment.contains("CUDA_VISIBLE_DEVICES"))
    return "";
  std::string places;
  for (size_t i = 0; i < launch.gpus.size(); ++i) {
    if (std::find(own.begin(), own.end(), launch.gpus[i]) != own.end())
      absl::StrAppend(&places, places.empty() ? "" : ",", i);
  }
  return places;
}

}  // namespace

absl::Status add_program_variables(const SpawnRank& request, Variables& variables) {
  const Launch& launch = *request.launch;
  const auto home = daemon::parse_endpoint("rendezvous address", launch.rendezvous_address);
  if (!home.ok()) return home.status();
  const int32_t rank = request.key.rank.value();
  const std::string node = absl::StrCat(rank / launch.spec.ranks_per_node);
  const std::string nodes = absl::StrCat(launch.spec.nodes);
  const std::string world = absl::StrCat(launch.spec.world_size());
  const std::string port = absl::StrCat(launch.program_port);

  variables["GROUP_RANK"] = variables["NODE_RANK"] = node;
  variables["GROUP_WORLD_SIZE"] = variables["NNODES"] = nodes;
  variables["ROLE_NAME"] = "default";
  variables["ROLE_RANK"] = absl::StrCat(rank);
  variables["ROLE_WORLD_SIZE"] = world;
  variables["MASTER_ADDR"] = home->host;
  variables["MASTER_PORT"] = port;
  variables["TORCHELASTIC_RUN_ID"] = absl::StrCat("muster-", request.key.job.value());
  variables["TORCHELASTIC_RESTART_COUNT"] = absl::StrCat(request.key.attempt.value() - 1);
  variables["TORCHELASTIC_MAX_RESTARTS"] = absl::StrCat(launch.spec.restarts_max);
  variables["TORCHELASTIC_USE_AGENT_STORE"] = "False";
  variables.emplace("TORCH_NCCL_ASYNC_ERROR_HANDLING", "1");

  variables["JAX_COORDINATOR_ADDRESS"] =
      daemon::Endpoint{home->host, launch.program_port}.to_string();
  variables["JAX_COORDINATOR_IP"] = home->host;
  variables["JAX_COORDINATOR_PORT"] = port;
  variables["JAX_NUM_PROCESSES"] = world;
  variables["JAX_PROCESS_ID"] = absl::StrCat(rank);
  // A JAX process takes every GPU that it sees, also those of its peers.
  if (std::string devices = own_devices(request); !devices.empty())
    variables.emplace("JAX_LOCAL_DEVICE_IDS", std::move(devices));

  if (variables.contains("SLURM_JOB_ID")) {
    variables["SLURM_PROCID"] = absl::StrCat(rank);
    variables["SLURM_LOCALID"] = absl::StrCat(request.local_rank);
    variables["SLURM_NODEID"] = node;
    variables["SLURM_NTASKS"] = variables["SLURM_NPROCS"] = world;
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<std::string>> program_arguments(const JobSpec& spec,
                                                           const Variables& variables) {
  const auto path = variables.find("PATH");
  auto program =
      find_program(spec.command.front(), path == variables.end() ? kDefaultPath : path->second,
                   spec.working_directory);
  if (!program.ok()) return program.status();
  if (auto status = check_interpreter_line(*program); !status.ok()) return status;
  std::vector<std::string> arguments = spec.command;
  arguments.front() = *std::move(program);
  return arguments;
}

}  // namespace muster::worker
