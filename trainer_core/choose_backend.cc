#include "trainer_core/choose_backend.h"

#include <array>
#include <bit>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include <absl/strings/str_cat.h>

#include "trainer_core/base/fnv.h"
#include "trainer_core/comm/nccl_api.h"
#include "trainer_core/comm/shm.h"
#include "trainer_core/device_room.h"
#include "trainer_core/training_plan.h"

namespace muster::trainer {
namespace {

// Not the codes of lost peers, which these errors have nothing to do with: another node may have a GPU, another build may not.
absl::Status no_gpu(const absl::Status& why) {
  const auto code =
      absl::IsUnimplemented(why) ? absl::StatusCode::kInvalidArgument : absl::StatusCode::kInternal;
  return {code, absl::StrCat("hardware=gpu: ", why.message(),
                             absl::IsUnimplemented(why) ? ", or train with hardware=cpu" : "")};
}

// Of what ranks have told, `each` numbers of one: whether it has NCCL, then its device.
std::string why_no_nccl(std::span<const int32_t> told, size_t each) {
  std::map<std::pair<int32_t, int32_t>, size_t> devices;
  for (size_t rank = 0; rank * each < told.size(); ++rank) {
    const auto of = told.subspan(rank * each, each);
    const auto [first, is_new] = devices.try_emplace({of[1], of[2]}, rank);
    if (!is_new)
      return absl::StrCat("ranks ", first->second, " and ", rank,
                          " share a GPU, which NCCL refuses");
    if (of[0] == 0) return absl::StrCat("rank ", rank, " finds no libnccl.so.2 of 2.14 or newer");
  }
  return "";
}

// Whether each rank does.
bool have_nccl(std::span<const int32_t> told, size_t each) {
  for (size_t at = 0; at < told.size(); at += each)
    if (told[at] == 0) return false;
  return true;
}

// What rank 0 says beside its plan's line.
void tell_reserve(const TrainConfig& config, const TrainContext& context, const DeviceRoom& room) {
  if (context.groups.everyone().rank() != 0) return;
  std::vector<DeviceReserve> all = backend_reserves(context.backend->own_bytes());
  const auto rest = beside_plan(config, room);
  all.insert(all.end(), rest.begin(), rest.end());
  context.out << reserve_line(all) << std::endl;
}

// The preflight has looked at this before. What others hold of the memory now they may have given back by the next attempt.
absl::Status may_be_others(const absl::Status& status) {
  if (status.ok()) return status;
  return absl::AbortedError(
      absl::StrCat(status.message(), "\nor other processes hold some of it: see nvidia-smi"));
}

}  // namespace

absl::StatusOr<ChosenBackend> choose_backend(Hardware wanted, int32_t threads,
                                             const GpuOptions& options) {
  if (wanted == Hardware::kCpu) return ChosenBackend{cpu_backend(threads), wanted, ""};
  auto gpu = gpu_backend(options);
  if (gpu.ok()) {
    std::string reason =
        absl::StrCat("backend: ", (*gpu)->description(),
                     " (hardware=", wanted == Hardware::kAuto ? "auto: a GPU is here)" : "gpu)");
    return ChosenBackend{*std::move(gpu), Hardware::kGpu, std::move(reason)};
  }
  if (wanted == Hardware::kGpu) return no_gpu(gpu.status());
  auto cpu = cpu_backend(threads);
  std::string reason = absl::StrCat("backend: ", cpu->description(),
                                    " (hardware=auto: ", gpu.status().message(), ")");
  return ChosenBackend{std::move(cpu), Hardware::kCpu, std::move(reason)};
}

GpuOptions gpu_options(const TrainConfig& config, const RankEnv& env) {
  GpuOptions options{.rank_of_node = env.local_rank, .scratch_bytes = gpu_scratch_bytes(config)};
  if (config.enable_checkpointing)
    options.algorithms_path = config.checkpoint_directory + "/cublaslt-algorithms";
  return options;
}

absl::Status prepare_devices(const TrainConfig& config, const TrainContext& context) {
  if (context.backend == nullptr || context.backend->memory().is_host()) return absl::OkStatus();
  ProcessGroup& everyone = context.groups.everyone();
  // All ranks have met, so each has what it takes beside its plan; and none has its plan before all have told.
  DeviceRoom room{.device = context.backend->description(),
                  .free_bytes = context.backend->free_bytes(),
                  .beside = {kKernelCode}};
  if (everyone.size() == 1) {
    tell_reserve(config, context, room);
    return may_be_others(check_device_room(config, std::array{everyone.rank()}, room));
  }
  const auto api = open_nccl();
  const uint64_t device =
      fnv1a(absl::StrCat(host_identity(), "/", context.backend->memory().identity()));
  const auto word = [&](int shift) {
    return std::bit_cast<int32_t>(static_cast<uint32_t>(device >> shift));
  };
  const std::array mine = {api.ok() ? 1 : 0, word(0), word(32)};
  std::vector<int32_t> all(mine.size() * static_cast<size_t>(everyone.size()));
  if (auto status = everyone.all_gather(mine, all, "devices"); !status.ok()) return status;
  std::vector<int32_t> sharing;
  for (size_t rank = 0; rank * mine.size() < all.size(); ++rank) {
    const auto of = std::span(all).subspan(rank * mine.size(), mine.size());
    if (of[1] == mine[1] && of[2] == mine[2]) sharing.push_back(static_cast<int32_t>(rank));
  }
  const std::string why_not = why_no_nccl(all, mine.size());
  room.nccl = why_not.empty();
  room.has_nccl = have_nccl(all, mine.size());
  tell_reserve(config, context, room);
  if (auto status = check_device_room(config, sharing, room); !status.ok())
    return may_be_others(status);
  if (why_not.empty()) context.groups.use_nccl({.api = *api});
  if (everyone.rank() == 0) {
    context.out << (why_not.empty()
                        ? "collectives: NCCL"
                        : absl::StrCat("collectives: through the host's memory, because ", why_not))
                << std::endl;
  }
  return absl::OkStatus();
}

}  // namespace muster::trainer
