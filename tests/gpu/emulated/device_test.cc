// What the trainer does with a device, and what only the emulated one shows: how much of its memory is free, that it works when it is waited
// for, and what a profiler hears.
#include <gmock/gmock.h>

#include <algorithm>
#include <chrono>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "tests/gpu/emulated/nvtx3/nvToolsExt.h"
#include "tests/gpu/gpu_device.h"
#include "tests/unit/trainer_core/train/train_helpers.h"
#include "trainer_core/choose_backend.h"
#include "trainer_core/preflight.h"

namespace muster::trainer {
namespace {

using testing::AllOf;
using testing::Each;
using testing::HasSubstr;

TEST(ChooseBackend, TakesTheGpuThatIsThere) {
  for (const Hardware wanted : {Hardware::kGpu, Hardware::kAuto}) {
    const auto chosen = choose_backend(wanted, 1, {});
    ASSERT_TRUE(chosen.ok()) << chosen.status();
    EXPECT_EQ(chosen->hardware, Hardware::kGpu);
    EXPECT_THAT(chosen->reason, HasSubstr("backend: emulated GPU"));
  }
}

// Two ranks have the one device; either of them would have room on it.
TEST(Preflight, RanksThatShareAGpuNeedRoomTogether) {
  TrainConfig config = tiny_config(2);
  config.hardware = Hardware::kGpu;
  EXPECT_TRUE(preflight(config, MachineRoots()).ok());
  config.model.vocab_size = 300'000;
  config.model.emb_dim = 1'000;
  const absl::Status status = preflight(config, MachineRoots());
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("ranks 0, 1 share a GPU and need"), HasSubstr("emulated GPU"),
                    HasSubstr("  optimizer "), HasSubstr("a GPU for each rank")));
}

TEST(Train, ARankWithoutRoomLeavesBeforeItAllocates) {
  TrainConfig config = tiny_config(2);
  config.model.vocab_size = 300'000;
  config.model.emb_dim = 1'000;
  const RunResult result = run(config);
  EXPECT_THAT(result.codes, Each(ExitCode::kFailure)) << "others may hold it for a while";
  EXPECT_THAT(result.err, HasSubstr("rank 1: start: ranks 0, 1 share a GPU and need"));
  for (const auto& device : take_devices()) EXPECT_EQ(device->peak_bytes(), 0);
}

// The emulated device does nothing before somebody waits for it.
TEST(Marks, WaitForWhatWasCalledBeforeThem) {
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

TEST(Marks, OrderAQueueBehindAnother) {
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
  // Nobody waits, and the device gets on.
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

// What a profiler is told of a run: the phases, what a step is made of, and which steps it is to record.
TEST(Profile, RecordsItsStepsAndNamesWhatTheyAreMadeOf) {
  TrainConfig config = tiny_config(1);
  config.steps = 5;
  config.profile = {.profiler = Profiler::kNsys, .skip_first_steps = 2, .steps = 2};
  emulated::Listener& listener = emulated::listener();
  listener.listens = true;
  const RunResult result = run(config);
  listener.listens = false;
  ASSERT_THAT(result.codes, Each(ExitCode::kOk)) << result.err;
  EXPECT_THAT(result.out, HasSubstr("profiler=nsys: nothing is recorded: no nsys runs this"));
  const auto by_thread = std::exchange(listener.heard, {});
  const auto of_rank = std::ranges::find_if(by_thread, [](const auto& thread) {
    return std::ranges::find(thread.second, "profile on") != thread.second.end();
  });
  ASSERT_NE(of_rank, by_thread.end());
  const std::vector<std::string>& heard = of_rank->second;
  const auto count = [](std::span<const std::string> of, const char* what) {
    return std::ranges::count(of, what);
  };
  for (const char* phase : {"phase LOAD", "phase COMPILE", "phase DATA", "phase STEP"})
    EXPECT_GT(count(heard, phase), 0) << phase;
  const auto on = std::ranges::find(heard, "profile on"),
             off = std::ranges::find(heard, "profile off");
  ASSERT_LT(on, off);
  ASSERT_NE(off, heard.end());
  const std::span steps(on + 1, off);
  EXPECT_EQ(count(std::span(heard.begin(), on), "update"), 2);
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
