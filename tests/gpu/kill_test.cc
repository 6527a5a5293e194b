// The program muster-trainer with hardware=gpu, as a process of its own: after it is killed in the
// middle, a restart reproduces the run bit by bit.
#include <gmock/gmock.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <string>
#include <thread>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/gpu/both_backends.h"
#include "tests/unit/temp_folder.h"
#include "tests/unit/trainer_core/train_helpers.h"

namespace muster::trainer {
namespace {

using testing::AllOf;
using testing::HasSubstr;
namespace fs = std::filesystem;

class Killed : public testing::Test {
 protected:
  // A device makes hundreds of steps while the test polls for the first ones.
  static int64_t steps() { return large_shapes() ? 1200 : 24; }
  static std::string trainer() {
    return fs::read_symlink("/proc/self/exe").parent_path() / MUSTER_TRAINER_OF_TESTS;
  }
  // Starts the process that trains into `checkpoints`; its output goes to <checkpoints>.log.
  pid_t start(const std::string& checkpoints) {
    TrainConfig config = tiny_config(1);
    config.hardware = Hardware::kGpu;
    config.model.dropout_rate = 0.1;
    config.per_device_batch_size = 2;
    config.max_target_length = 8;
    config.steps = steps();
    config.enable_checkpointing = true;
    config.checkpoint_directory = folder_.file(checkpoints);
    config.checkpoint_period = steps() / 12;
    const std::string file = folder_.file(checkpoints + ".json");
    const std::string log = folder_.file(checkpoints + ".log");
    write_file(file, to_json(config).dump());
    const pid_t child = fork();
    if (child != 0) return child;
    if (freopen(log.c_str(), "a", stdout) == nullptr || dup2(1, 2) < 0) _exit(1);
    execl(trainer().c_str(), "muster-trainer", "train", "--config", file.c_str(), nullptr);
    _exit(1);
  }
  std::string log(const std::string& checkpoints) const {
    return read_file(folder_.file(checkpoints + ".log"));
  }
  void expect_success(pid_t child, const std::string& checkpoints) const {
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << log(checkpoints);
  }
  bool is_there(const std::string& checkpoint) const {
    return fs::exists(folder_.file(checkpoint) + "/manifest.json");
  }

  TempFolder folder_;
};

TEST_F(Killed, ResumesBitwise) {
  const std::string quarter = std::to_string(steps() / 4), last = std::to_string(steps());
  const pid_t whole = start("whole");
  const pid_t first = start("parts");
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(120);
  while (!is_there("parts/" + quarter) && std::chrono::steady_clock::now() < deadline)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  ASSERT_EQ(kill(first, SIGKILL), 0);
  int status = 0;
  ASSERT_EQ(waitpid(first, &status, 0), first);
  ASSERT_TRUE(WIFSIGNALED(status)) << log("parts");
  ASSERT_FALSE(is_there("parts/" + last)) << "it was too late";
  expect_success(start("parts"), "parts");
  expect_success(whole, "whole");
  EXPECT_THAT(log("parts"), AllOf(HasSubstr("backend: " + find_cuda_device(0)->name),
                                  HasSubstr("(hardware=gpu)"), HasSubstr("restored checkpoint")));
  EXPECT_EQ(checkpoint_bytes(folder_.file("whole/" + last)),
            checkpoint_bytes(folder_.file("parts/" + last)));
}

}  // namespace
}  // namespace muster::trainer
