// Tests the real NCCL as far as possible without a GPU: that it has the functions that we call, and
// its network errors. Skipped if it is not installed.
#include <gmock/gmock.h>
#include <unistd.h>

#include <cstdlib>
#include <iostream>
#include <memory>
#include <string>

#include "tests/unit/trainer_core/comm/device_collectives.h"
#include "tests/unit/trainer_core/locked_memory.h"
#include "trainer_core/comm/local.h"
#include "trainer_core/comm/nccl_group.h"
#include "trainer_core/comm/staged_group.h"
#include "trainer_core/comm/transport_group.h"

namespace muster::trainer {
namespace {

// Opens the library installed by deploy/install-cuda.sh, or the system's.
absl::StatusOr<std::shared_ptr<const NcclApi>> installed() {
  const char* const root = std::getenv("MUSTER_CUDA_ROOT");
  if (root == nullptr) return open_nccl();
  auto ours = open_nccl((std::string(root) + "/nvidia/nccl/lib/libnccl.so.2").c_str());
  return ours.ok() ? std::move(ours) : open_nccl();
}

class NcclLibrary : public testing::Test {
 protected:
  void SetUp() override {
    const auto found = installed();
    if (!found.ok())
      GTEST_SKIP() << found.status().message()
                   << "; deploy/install-cuda.sh FOLDER and MUSTER_CUDA_ROOT=FOLDER bring it";
    nccl_ = *found;
  }

  // NCCL reads the network's interfaces once in a process: each of these is a process of its own,
  // which ends with the result.
  [[noreturn]] void ask_for_an_id(const char* interface) const {
    setenv("NCCL_SOCKET_IFNAME", interface, 1);
    NcclUniqueId id;
    const NcclResult result = nccl_->unique_id(&id);
    std::cerr << nccl_->error_text(result) << std::endl;
    _exit(result);
  }
  // Prints the result of a collective on rank 0 of two.
  [[noreturn]] void meet(const char* interface) const {
    setenv("NCCL_SOCKET_IFNAME", interface, 1);
    const LockedMemory memory;
    LocalWorld world(2, std::chrono::milliseconds(20'000));
    std::string result;
    on_ranks(
        2,
        [&](int rank, int) {
          auto staged = staged_group(make_world_group(world.join(rank), "world", nullptr), memory);
          return nccl_group(std::move(staged), {.api = nccl_}, memory, nullptr, 0);
        },
        [&](ProcessGroup& group) {
          Vector data(memory, input_of(group.rank(), 10));
          const absl::Status status = group.all_reduce(data.all(), "gradients");
          if (group.rank() == 0) result = std::string(status.message());
        });
    std::cerr << result << std::endl;
    _exit(0);
  }

  std::shared_ptr<const NcclApi> nccl_;
};

TEST_F(NcclLibrary, IsNewEnough) {
  int version = 0;
  ASSERT_EQ(nccl_->version(&version), kNcclSuccess);
  EXPECT_GE(version, 21'400) << nccl_version_text(version);
  EXPECT_STREQ(nccl_->error_text(kNcclSuccess), "no error");
  EXPECT_STREQ(nccl_->error_text(kNcclInProgress), "NCCL operation in progress");
}

TEST_F(NcclLibrary, ReturnsAnIdOnAnExistingInterface) {
  EXPECT_EXIT(ask_for_an_id("lo"), testing::ExitedWithCode(kNcclSuccess), "no error");
}

TEST_F(NcclLibrary, ReturnsNoIdOnAMissingInterface) {
  constexpr int kInvalidUsage = 5;
  EXPECT_EXIT(ask_for_an_id("nosuch0"), testing::ExitedWithCode(kInvalidUsage), "invalid usage");
  EXPECT_EXIT(meet("nosuch0"), testing::ExitedWithCode(0),
              "rank 0 of group world cannot begin NCCL \\(NCCL: invalid usage.*; check the "
              "network between their nodes: NCCL_SOCKET_IFNAME \\(here nosuch0, of .*lo");
}

}  // namespace
}  // namespace muster::trainer
