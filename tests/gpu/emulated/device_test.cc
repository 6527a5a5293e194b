// The trainer's use of a device, as far as only the emulated one can test it: free memory,
// asynchronous work, and the ranges that a profiler receives.
#include <gmock/gmock.h>

#include <algorithm>
#include <chrono>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <absl/cleanup/cleanup.h>
#include <gtest/gtest.h>

#include "tests/gpu/emulated/cuda_runtime.h"
#include "tests/gpu/emulated/nvtx3/nvToolsExt.h"
#include "tests/gpu/gpu_device.h"
#include "tests/unit/temp_folder.h"
#include "tests/unit/trainer_core/train_helpers.h"
#include "trainer_core/ops/cuda/attention/attention_library.h"
#include "trainer_core/ops/cuda/device/cuda.h"
#include "trainer_core/ops/cuda/device/cuda_check.h"
#include "trainer_core/ops/workspace.h"
#include "trainer_core/rank/training_plan.h"
#include "trainer_core/recovery/failure.h"
#include "trainer_core/startup/choose_backend.h"
#include "trainer_core/startup/preflight.h"

namespace muster::trainer {
namespace {

using testing::AllOf;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::MatchesRegex;
using testing::Not;

std::string last_line(const std::string& text) {
  const size_t end = text.find_last_not_of('\n');
  return text.substr(text.rfind('\n', end) + 1, end - text.rfind('\n', end));
}

TEST(ChooseBackend, ChoosesTheAvailableGpu) {
  for (const Hardware wanted : {Hardware::kGpu, Hardware::kAuto}) {
    const auto chosen = choose_backend(wanted, 1, {});
    ASSERT_TRUE(chosen.ok()) << chosen.status();
    EXPECT_EQ(chosen->hardware, Hardware::kGpu);
    EXPECT_THAT(chosen->reason, HasSubstr("backend: emulated GPU"));
  }
}

struct Trouble {
  const char* name;
  emulated::Properties properties;
  const char* sentence;
  // Exit code of a rank with hardware=gpu: a permanent cause is not retried.
  ExitCode code = ExitCode::kBadInput;
  // Exit code when a worker has assigned the GPU: another node may have what this one lacks.
  ExitCode code_given = ExitCode::kFailure;
};
void PrintTo(const Trouble& trouble, std::ostream* out) { *out << trouble.name; }

class UnusableDevice : public testing::TestWithParam<Trouble> {
 protected:
  UnusableDevice() { emulated::properties() = GetParam().properties; }
  ~UnusableDevice() override { emulated::properties() = {}; }
};

INSTANTIATE_TEST_SUITE_P(
    All, UnusableDevice,
    testing::Values(
        Trouble{"no_driver",
                {.count_error = cudaErrorInsufficientDriver, .driver_version = 0},
                "no NVIDIA driver is loaded here: install one, or train with hardware=cpu"},
        Trouble{"old_driver",
                {.count_error = cudaErrorInsufficientDriver, .driver_version = 12040},
                "the NVIDIA driver supports CUDA up to 12.4, this build needs 13.0 or newer: "
                "update the driver"},
        Trouble{"no_device",
                {.count_error = cudaErrorNoDevice},
                "this process sees no GPU: check nvidia-smi and CUDA_VISIBLE_DEVICES, or train "
                "with hardware=cpu"},
        Trouble{"old_device",
                {.major = 7, .minor = 5},
                "emulated GPU has compute capability 7.5; at least 8.0 is needed (A100, H100 and "
                "newer)",
                ExitCode::kBadInput,
                ExitCode::kBadInput},
        Trouble{"no_code",
                {.major = 12, .code_error = cudaErrorNoKernelImageForDevice},
                "this build has no code for emulated GPU (compute capability 12.0; "
                "cudaErrorNoKernelImageForDevice): build with -DMUSTER_CUDA_ARCHITECTURES=120",
                ExitCode::kBadInput,
                ExitCode::kBadInput},
        Trouble{"damaged_memory",
                {.count_error = cudaErrorECCUncorrectable},
                "cudaErrorECCUncorrectable: uncorrectable ECC error encountered; the GPU's memory "
                "is damaged: take the node out of service (nvidia-smi -q -d ECC,ROW_REMAPPER)",
                ExitCode::kFailure},
        Trouble{"fabric_manager",
                {.count_error = cudaErrorSystemNotReady},
                "cudaErrorSystemNotReady: system not yet initialized; the node's fabric manager "
                "does not run",
                ExitCode::kFailure},
        Trouble{"something_else",
                {.count_error = cudaErrorInvalidValue},
                "cudaErrorInvalidValue: invalid argument; check nvidia-smi",
                ExitCode::kFailure}),
    [](const auto& trouble) { return std::string(trouble.param.name); });

TEST_P(UnusableDevice, ReportsTheRemedy) {
  const auto gpu = choose_backend(Hardware::kGpu, 1, {});
  const bool is_builds = GetParam().code_given == ExitCode::kBadInput;
  EXPECT_EQ(std::string(gpu.status().message()),
            std::string("hardware=gpu: ") + GetParam().sentence +
                (is_builds ? ", or train with hardware=cpu" : ""));
  EXPECT_EQ(exit_code_for(gpu.status()), GetParam().code);
  EXPECT_EQ(exit_code_for(choose_backend(Hardware::kGpu, 1, {}, true).status()),
            GetParam().code_given);
  const auto any = choose_backend(Hardware::kAuto, 1, {});
  ASSERT_TRUE(any.ok()) << any.status();
  EXPECT_EQ(any->hardware, Hardware::kCpu);
  EXPECT_THAT(any->reason, HasSubstr(std::string("(hardware=auto: ") + GetParam().sentence));
}

TEST(CudaCheck, EndsTheProcessWithCallErrorAndRemedy) {
  const auto checked = [](cudaError_t error) { cuda::check(error, "cudaStreamSynchronize(s)"); };
  EXPECT_DEATH(
      checked(cudaErrorECCUncorrectable),
      "cudaStreamSynchronize\\(s\\) ends with cudaErrorECCUncorrectable: uncorrectable ECC "
      "error encountered .*; the GPU's memory is damaged: take the node out of service");
  EXPECT_DEATH(checked(cudaErrorUnknown), "the GPU may be lost: search the kernel's log for Xid");
  EXPECT_DEATH(checked(cudaErrorIllegalAddress), "search .* for Xid, and run compute-sanitizer");
  EXPECT_DEATH(checked(cudaErrorMemoryAllocation),
               "out of memory .*; NCCL, libraries or other processes use the memory");
  EXPECT_DEATH(checked(cudaErrorDevicesUnavailable), "has exclusive use of the GPU");
  checked(cudaSuccess);
}

// Two ranks share the only device; each of them alone would fit.
TEST(Preflight, AddsUpRanksThatShareAGpu) {
  TrainConfig config = tiny_config(2);
  config.hardware = Hardware::kGpu;
  EXPECT_TRUE(preflight(config, MachineRoots()).ok());
  config.model.vocab_size = 300'000;
  config.model.emb_dim = 1'000;
  const absl::Status status = preflight(config, MachineRoots());
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(
      std::string(status.message()),
      AllOf(HasSubstr("out of memory: ranks 0, 1 share a GPU and need"), HasSubstr("emulated GPU"),
            HasSubstr("  optimizer "), HasSubstr("a GPU for each rank")));
}

TEST(Train, ExitsBeforeAllocatingIfThePlanDoesNotFit) {
  TrainConfig config = tiny_config(2);
  config.model.vocab_size = 300'000;
  config.model.emb_dim = 1'000;
  const RunResult result = run(config);
  EXPECT_THAT(result.codes, Each(ExitCode::kBadInput)) << "an empty GPU has no room for both";
  EXPECT_THAT(result.err, AllOf(HasSubstr("rank 1: start: rank 0's plan on emulated GPU"),
                                HasSubstr("out of memory: ranks 0, 1 share a GPU and need"),
                                Not(HasSubstr("other processes"))));
  for (const auto& device : take_devices()) EXPECT_EQ(device->peak_bytes(), 0);
}

// The worker shows the last line. Another process may have freed the memory by the next attempt.
TEST(Train, ReportsInsufficientMemoryInTheLastLine) {
  const auto other = gpu_backend({}).value();
  const auto taken = other->memory().allocate(other->free_bytes() - (size_t{1} << 30));
  TrainConfig config = tiny_config(1);
  config.per_device_batch_size = 2048;
  config.max_target_length = 512;
  config.remat_policy = RematPolicy::kNone;
  const RunResult result = run(config);
  EXPECT_THAT(result.codes, Each(ExitCode::kFailure));
  EXPECT_THAT(result.err, AllOf(HasSubstr("\n  activations "), HasSubstr("\n  scratch ")));
  EXPECT_THAT(last_line(result.err),
              MatchesRegex("out of memory: rank 0 needs [0-9]+ MiB of the GPU's memory, [0-9]+ MiB "
                           "are free; what would fit: per_device_batch_size=.*; or other processes "
                           "hold some of it: see nvidia-smi"));
}

// The device has reported enough free memory.
TEST(Train, ReportsOutOfMemoryIfThePlanCannotBeAllocated) {
  TrainConfig config = tiny_config(1);
  config.model.vocab_size = 64'000;
  emulated::properties().largest_allocation = size_t{8} << 20;  // enough for the backend
  const absl::Cleanup all_again = [] { emulated::properties() = {}; };
  const RunResult result = run(config);
  EXPECT_THAT(result.codes, Each(ExitCode::kFailure));
  EXPECT_THAT(result.err, AllOf(HasSubstr("\n  optimizer "), HasSubstr("\n  together ")));
  EXPECT_THAT(
      last_line(result.err),
      MatchesRegex("out of memory: the GPU refused to allocate the [0-9]+ MiB of rank 0's plan; "
                   "[0-9]+ MiB are free; what would fit: .*see nvidia-smi"));
}

// Neither device memory nor page-locked host memory, during steps with saves and evaluations.
TEST(Train, AllocatesNothingInAStep) {
  for (const int ranks : {1, 2}) {
    const TempFolder folder;
    TrainConfig config = along_fsdp(tiny_config(ranks));
    config.steps = 9;
    config.per_device_batch_size = 1;
    config.max_target_length = 8;
    config.enable_checkpointing = true;
    config.checkpoint_directory = folder.file("checkpoints");
    config.checkpoint_period = 3;
    config.eval.interval = 4;
    config.eval.steps = 1;
    std::vector<uint64_t> made;  // allocations after each of rank 0's steps
    const RunResult result = run(config, [&](int rank, const StepRecord&, std::atomic<bool>&) {
      if (rank == 0) made.push_back(emulated::allocations());
    });
    ASSERT_THAT(result.codes, Each(ExitCode::kOk)) << result.err;
    ASSERT_EQ(made.size(), 9U);
    EXPECT_EQ(made[1], made.back()) << ranks << " ranks";
    take_devices();
  }
}

// A copy covers pinned and pageable pieces, and is split at their bounds.
TEST(ReservedMemory, CopiesPinnedAndPageablePieces) {
  constexpr size_t kPage = 4096, kBytes = 10 * kPage + 12;
  const auto gpu = gpu_backend({.scratch_bytes = size_t{1} << 20}).value();
  const DeviceMemory& memory = gpu->memory();
  const auto device = memory.allocate(kBytes), host = memory.reserve_host(kBytes);
  const std::span<char> numbers(static_cast<char*>(host.get()), kBytes);
  const auto copy_both_ways = [&](char first) {
    for (size_t i = 0; i < kBytes; ++i) numbers[i] = static_cast<char>(first + i % 101);
    memory.upload(numbers.data(), device.get(), kBytes);
    std::ranges::fill(numbers, char{0});
    memory.download(device.get(), numbers.data(), kBytes);
    for (size_t i = 0; i < kBytes; ++i)
      ASSERT_EQ(numbers[i], static_cast<char>(first + i % 101)) << i;
  };
  copy_both_ways(1);
  // Pins consecutive parts of any size, as the saver does.
  size_t at = 0;
  for (const size_t bytes : {2 * kPage, size_t{100}, 3 * kPage + 7, kPage}) {
    memory.pin_host(numbers.data() + at, bytes);
    at += bytes;
    copy_both_ways(static_cast<char>(at % 7));
  }
  memory.pin_host(numbers.data() + at, kBytes - at);
  copy_both_ways(3);
}

TEST(Staging, IsReservedOnlyForSavesAndLoads) {
  TrainConfig config = tiny_config(1);
  config.hardware = Hardware::kGpu;
  config.enable_checkpointing = false;
  EXPECT_EQ(staging_of(config, 0), Staging::kNo);
  config.load_parameters_path = "elsewhere";
  EXPECT_EQ(staging_of(config, 0), Staging::kYes);
  config.load_parameters_path.clear();
  config.enable_checkpointing = true;
  EXPECT_EQ(staging_of(config, 0), Staging::kYes);
}

// Built-in GEMM kernels alone take several times as long: the note explains why a run is slow.
TEST(CudaOps, NotesEachMissingLibraryOnce) {
  const auto ops = cuda_ops({});
  EXPECT_THAT(
      ops->take_notes(),
      ElementsAre(
          "built-in kernels compute all GEMMs instead of cuBLASLt: there is none for CPUs",
          HasSubstr("built-in kernels compute all attention instead of cuDNN: this program was "
                    "built without")));
  EXPECT_THAT(ops->take_notes(), IsEmpty());
  EXPECT_THAT(cuda_ops({.algorithms_path = {}, .use_libraries = false})->take_notes(), IsEmpty())
      << "as requested";
}

// The emulated device executes nothing until a thread waits for it.
TEST(Marks, WaitForEarlierWork) {
  const auto backend = gpu_backend({}).value();
  const DeviceMemory& memory = backend->memory();
  const auto room = memory.allocate(sizeof(float));
  const Tensor x = Tensor::f32(static_cast<float*>(room.get()), {1});
  const auto value = [&] {
    float number = 0;
    memory.download(x.data, &number, sizeof(number));
    return number;
  };
  backend->ops().fill(x, 1);
  const auto first = backend->ops().queue()->mark();
  backend->ops().fill(x, 2);
  const auto second = backend->ops().queue()->mark();
  EXPECT_EQ(value(), 0);
  std::thread([&] { first->wait(); }).join();
  EXPECT_EQ(value(), 1);
  second->wait();
  first->wait();
  EXPECT_EQ(value(), 2);
}

TEST(Marks, OrderOneQueueAfterAnother) {
  const auto backend = gpu_backend({}).value();
  const DeviceMemory& memory = backend->memory();
  const auto room = memory.allocate(sizeof(float));
  const Tensor x = Tensor::f32(static_cast<float*>(room.get()), {1});
  const auto other = memory.open_queue();
  backend->ops().fill(x, 1);
  const auto filled = backend->ops().queue()->mark();
  other->wait_for(*filled);
  const auto behind = other->mark();
  EXPECT_FALSE(filled->is_done());
  // The device makes progress although no thread waits.
  const Instant deadline = monotonic_now() + std::chrono::seconds(20);
  while (!behind->is_done() && monotonic_now() < deadline)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_TRUE(behind->is_done());
  EXPECT_TRUE(filled->is_done());
  EXPECT_GE(behind->since(*filled), Duration::zero());
  float number = 0;
  memory.download(x.data, &number, sizeof(number));
  EXPECT_EQ(number, 1);
}

// The reserve has as many parts as the backend computes, and each takes the planned memory.
TEST(Attention, IsComputedInReservedParts) {
  TrainConfig config = tiny_config(1);
  config.dtype = ComputeType::kBfloat16;
  config.max_target_length = 4096;
  config.model.num_query_heads = 24;
  for (const int32_t sequences : {1, 2, 6}) {
    for (const int32_t key_heads : {1, 6, 24}) {
      config.per_device_batch_size = sequences;
      config.model.num_kv_heads = key_heads;
      int64_t parts = 0;
      const auto run = [&](const cuda::LibraryAttentionArgs& part, int64_t sequence,
                           int64_t key_head) {
        if (sequence == 0 && key_head == 0) parts = 0;
        ++parts;
        const size_t needed = cudnn_attention_backward_bytes({.batch = part.batch,
                                                              .seq_len = part.seq_len,
                                                              .heads = part.heads,
                                                              .kv_heads = part.kv_heads,
                                                              .head_dim = part.head_dim});
        cuda::LibraryAnswer answer;
        if (needed > gpu_scratch_bytes(config)) answer.kind = cuda::LibraryAnswer::Kind::kNoRoom;
        return answer;
      };
      cuda::LibraryAttentionArgs layer{};
      layer.batch = sequences;
      layer.seq_len = config.max_target_length;
      layer.heads = config.model.num_query_heads;
      layer.kv_heads = key_heads;
      layer.head_dim = config.model.head_dim;
      const auto answer = cuda::in_parts(layer, run);
      EXPECT_TRUE(answer.is_done());
      EXPECT_EQ(gpu_attention_parts(config), parts) << sequences << ", " << key_heads;
    }
  }
}

// The ranges that a profiler receives: a run's phases, a step's parts, and the recorded steps.
TEST(Profile, RecordsRequestedStepsWithNamedRanges) {
  TrainConfig config = tiny_config(1);
  config.steps = 5;
  config.profile = {.profiler = Profiler::kNsys, .skip_first_steps = 2, .steps = 2};
  emulated::Listener& listener = emulated::listener();
  listener.is_recording = true;
  const RunResult result = run(config);
  listener.is_recording = false;
  ASSERT_THAT(result.codes, Each(ExitCode::kOk)) << result.err;
  EXPECT_THAT(result.out, HasSubstr("profiler=nsys: nothing is recorded: nsys does not run this"));
  const auto by_thread = std::exchange(listener.recorded, {});
  const auto of_rank = std::ranges::find_if(by_thread, [](const auto& thread) {
    return std::ranges::find(thread.second, "profile on") != thread.second.end();
  });
  ASSERT_NE(of_rank, by_thread.end());
  const std::vector<std::string>& recorded = of_rank->second;
  const auto count = [](std::span<const std::string> of, const char* what) {
    return std::ranges::count(of, what);
  };
  for (const char* phase : {"phase LOAD", "phase COMPILE", "phase DATA", "phase STEP"})
    EXPECT_GT(count(recorded, phase), 0) << phase;
  const auto on = std::ranges::find(recorded, "profile on"),
             off = std::ranges::find(recorded, "profile off");
  ASSERT_LT(on, off);
  ASSERT_NE(off, recorded.end());
  const std::span steps(on + 1, off);
  EXPECT_EQ(count(std::span(recorded.begin(), on), "update"), 2);
  for (const char* range : {"forward", "backward", "head", "reduce", "update"})
    EXPECT_EQ(count(steps, range), 2) << range;
  EXPECT_EQ(count(steps, "layer 0"), 4);  // forward and backward
  const auto others = std::ranges::count_if(steps, [](const std::string& what) {
    return what.starts_with("phase ") || what == "download";
  });
  EXPECT_EQ(2 * count(steps, "end"), static_cast<std::ptrdiff_t>(steps.size()) - others);
}

}  // namespace
}  // namespace muster::trainer
