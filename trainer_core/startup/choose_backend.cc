#include "trainer_core/startup/choose_backend.h"

#include <algorithm>
#include <array>
#include <bit>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include <absl/strings/str_cat.h>

#include "common/objects/object_cache.h"
#include "common/random/fnv.h"
#include "trainer_core/comm/nccl_api.h"
#include "trainer_core/comm/shm.h"
#include "trainer_core/rank/training_plan.h"
#include "trainer_core/startup/device_room.h"

namespace muster::trainer {
namespace {

// How users choose the device.
struct Wording {
  const char* setting;   // "hardware=", before a value
  const char* with_cpu;  // "train with hardware=cpu"
};
constexpr Wording kOfTraining{"hardware=", "train with hardware=cpu"};
constexpr Wording kOfOption{"--hardware ", "use --hardware cpu"};

// Returns the error for a missing GPU. It is permanent (InvalidArgument) if the build does not
// support GPUs, or if the machine has none and no worker has assigned one. Otherwise it is
// Internal, because a retry may help: a GPU may recover, or another node may have one. It never has
// a code that means a lost peer.
absl::Status no_gpu(const absl::Status& why, bool given, const Wording& words) {
  const bool stays = absl::IsUnimplemented(why) || (absl::IsFailedPrecondition(why) && !given);
  const auto code = stays ? absl::StatusCode::kInvalidArgument : absl::StatusCode::kInternal;
  return {code,
          absl::StrCat(words.setting, "gpu: ", why.message(),
                       absl::IsUnimplemented(why) ? absl::StrCat(", or ", words.with_cpu) : "")};
}

// Returns why NCCL cannot be used; empty if it can. `gathered` holds `each` values per rank:
// whether it has NCCL, the two words of its device's hash, and its multiprocessors.
std::string why_no_nccl(std::span<const int32_t> gathered, size_t each) {
  std::map<std::pair<int32_t, int32_t>, size_t> devices;
  for (size_t rank = 0; rank * each < gathered.size(); ++rank) {
    const auto of = gathered.subspan(rank * each, each);
    const auto [first, is_new] = devices.try_emplace({of[1], of[2]}, rank);
    if (!is_new)
      return absl::StrCat("ranks ", first->second, " and ", rank,
                          " share a GPU, which NCCL refuses");
    if (of[0] == 0) return absl::StrCat("rank ", rank, " finds no libnccl.so.2 of 2.14 or newer");
  }
  return "";
}

// Returns whether every rank has NCCL.
bool have_nccl(std::span<const int32_t> gathered, size_t each) {
  for (size_t at = 0; at < gathered.size(); at += each)
    if (gathered[at] == 0) return false;
  return true;
}

// Prints, on rank 0, the memory that is needed in addition to the plan.
void print_reserve(const TrainConfig& config, const TrainContext& context, const DeviceRoom& room) {
  if (context.groups.everyone().rank() == 0)
    context.out << reserve_line(beside_plan(config, room)) << std::endl;
}

// Returns the bytes that the backend of a rank has already allocated. As in the preflight, the
// table contains them, and they count as free.
size_t taken_bytes(const Backend& backend) { return sum_of(backend_reserves(backend.own_bytes())); }

// Adds to an error that other processes may use the memory; a retry may succeed once they have
// freed it.
absl::Status mention_other_processes(const absl::Status& status) {
  return absl::AbortedError(
      absl::StrCat(status.message(), "; or other processes hold some of it: see nvidia-smi"));
}

// Checks that the plans of `ranks`, which include this rank, fit on the device together. Returns
// the bytes of this rank's plan. (If the preflight ran on this machine, it has checked this
// already.) The error allows a retry even if the plans would fit only on an empty device.
absl::StatusOr<size_t> check_room(const TrainConfig& config, const TrainContext& context,
                                  std::span<const int32_t> ranks, const DeviceRoom& room) {
  const auto plans = check_device_room(config, ranks, room);
  if (plans.ok()) {
    const auto own = std::ranges::find(ranks, context.groups.rank());
    return (*plans)[static_cast<size_t>(own - ranks.begin())];
  }
  DeviceRoom empty = room;
  empty.free_bytes = context.backend->total_bytes();
  return check_device_room(config, ranks, empty).ok() ? mention_other_processes(plans.status())
                                                      : plans.status();
}

// Allocates `bytes` bytes for the plan. This can fail, because another process may have allocated
// memory since check_room().
absl::StatusOr<std::shared_ptr<void>> allocate_plan(const TrainConfig& config,
                                                    const TrainContext& context, DeviceRoom room,
                                                    size_t bytes) {
  auto memory = context.backend->memory().try_allocate(bytes);
  if (memory != nullptr) return memory;
  room.free_bytes = context.backend->free_bytes() + taken_bytes(*context.backend);
  return mention_other_processes(refused_by_device(config, context.groups.rank(), room));
}

absl::StatusOr<ChosenBackend> choose(Hardware wanted, int32_t threads, const GpuOptions& options,
                                     bool given, const Wording& words) {
  if (wanted == Hardware::kCpu) return ChosenBackend{cpu_backend(threads), wanted, ""};
  auto gpu = gpu_backend(options);
  if (gpu.ok()) {
    std::string reason = absl::StrCat("backend: ", (*gpu)->description(), " (", words.setting,
                                      wanted == Hardware::kAuto ? "auto: a GPU is here)" : "gpu)");
    return ChosenBackend{*std::move(gpu), Hardware::kGpu, std::move(reason)};
  }
  if (wanted == Hardware::kGpu) return no_gpu(gpu.status(), given, words);
  auto cpu = cpu_backend(threads);
  std::string reason = absl::StrCat("backend: ", cpu->description(), " (", words.setting,
                                    "auto: ", gpu.status().message(), ")");
  return ChosenBackend{std::move(cpu), Hardware::kCpu, std::move(reason)};
}

}  // namespace

absl::StatusOr<ChosenBackend> choose_backend(Hardware wanted, int32_t threads,
                                             const GpuOptions& options, bool given) {
  return choose(wanted, threads, options, given, kOfTraining);
}

absl::StatusOr<ChosenBackend> backend_of_option(const std::string& hardware, TrainConfig config,
                                                int32_t threads, int32_t tensor_ranks) {
  const auto wanted = value_named<Hardware>(kHardwareNames, hardware);
  if (!wanted)
    return absl::InvalidArgumentError(
        absl::StrCat("--hardware is ", hardware, "; it must be cpu, gpu or auto"));
  if (tensor_ranks > 1 && *wanted == Hardware::kGpu) {
    return absl::InvalidArgumentError(
        absl::StrCat("--tensor-parallel is ", tensor_ranks,
                     ", but one process computes a model on a GPU: use --hardware cpu, or no "
                     "--tensor-parallel"));
  }
  if (tensor_ranks > 1) {
    std::string reason = absl::StrCat("backend: CPU, ", threads, " threads of ", tensor_ranks,
                                      " processes (--hardware auto: one process computes a model "
                                      "on a GPU, and --tensor-parallel is ",
                                      tensor_ranks, ")");
    return ChosenBackend{nullptr, Hardware::kCpu,
                         *wanted == Hardware::kAuto ? std::move(reason) : ""};
  }
  config.mesh = {};  // the process has the complete model
  auto chosen = choose(*wanted, threads, gpu_options(config, RankEnv()), false, kOfOption);
  if (chosen.ok() && chosen->hardware == Hardware::kCpu) chosen->backend = nullptr;
  return chosen;
}

GpuOptions gpu_options(const TrainConfig& config, const RankEnv& env) {
  GpuOptions options{.rank_of_node = env.local_rank,
                     .scratch_bytes = gpu_scratch_bytes(config),
                     .allows_tf32 = config.allows_tf32()};
  if (config.enable_checkpointing) {
    // A store has no files to lock: the choice is this node's.
    const std::string& directory = config.checkpoint_directory;
    options.algorithms_path = absl::StrCat(
        is_object_url(directory) ? folder_of_url(object_cache_folder(), directory) : directory,
        "/cublaslt-algorithms");
  }
  return options;
}

absl::StatusOr<std::shared_ptr<void>> prepare_devices(const TrainConfig& config,
                                                      const TrainContext& context) {
  if (context.backend == nullptr || context.backend->memory().is_host()) return nullptr;
  ProcessGroup& everyone = context.groups.everyone();
  // At this point every rank has opened its backend, because all ranks are connected, and no rank
  // has allocated its plan, which each does after the all_gather below.
  DeviceRoom room{.device = context.backend->description(),
                  .free_bytes = context.backend->free_bytes() + taken_bytes(*context.backend),
                  .beside = backend_reserves(context.backend->own_bytes())};
  room.beside.push_back(kKernelCode);
  if (everyone.size() == 1) {
    print_reserve(config, context, room);
    const auto bytes = check_room(config, context, std::array{everyone.rank()}, room);
    return bytes.ok() ? allocate_plan(config, context, std::move(room), *bytes) : bytes.status();
  }
  const auto api = open_nccl();
  const uint64_t device =
      fnv1a(absl::StrCat(host_identity(), "/", context.backend->memory().identity()));
  const auto word = [&](int shift) {
    return std::bit_cast<int32_t>(static_cast<uint32_t>(device >> shift));
  };
  const std::array mine = {api.ok() ? 1 : 0, word(0), word(32), context.backend->multiprocessors()};
  std::vector<int32_t> all(mine.size() * static_cast<size_t>(everyone.size()));
  if (auto status = everyone.all_gather(mine, all, "devices"); !status.ok()) return status;
  std::vector<int32_t> sharing;
  int32_t least = mine.back();  // fewest multiprocessors of a rank
  for (size_t rank = 0; rank * mine.size() < all.size(); ++rank) {
    const auto of = std::span(all).subspan(rank * mine.size(), mine.size());
    least = std::min(least, of.back());
    if (of[1] == mine[1] && of[2] == mine[2]) sharing.push_back(static_cast<int32_t>(rank));
  }
  const std::string why_not = why_no_nccl(all, mine.size());
  room.nccl = why_not.empty();
  room.free_bytes += (sharing.size() - 1) * taken_bytes(*context.backend);
  room.has_nccl = have_nccl(all, mine.size());
  print_reserve(config, context, room);
  const auto bytes = check_room(config, context, sharing, room);
  if (!bytes.ok()) return bytes.status();
  if (why_not.empty())
    context.groups.use_nccl(
        {.api = *api, .blocks_max = nccl_blocks_max(least, context.groups.mesh())});
  if (everyone.rank() == 0) {
    context.out << (why_not.empty()
                        ? "collectives: NCCL"
                        : absl::StrCat("collectives: through the host's memory, because ", why_not))
                << std::endl;
  }
  return allocate_plan(config, context, std::move(room), *bytes);
}

}  // namespace muster::trainer
