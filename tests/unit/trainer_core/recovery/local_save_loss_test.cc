// Ranks that are lost during a local checkpoint: only that save is lost.
#include <gmock/gmock.h>

#include <algorithm>
#include <filesystem>
#include <limits>
#include <memory>
#include <utility>

#include <gtest/gtest.h>

#include "tests/unit/meshes.h"
#include "tests/unit/sanitized.h"
#include "tests/unit/trainer_core/comm/fake_nccl.h"
#include "tests/unit/trainer_core/hooked_transport.h"
#include "tests/unit/trainer_core/recovery/local_saves.h"
#include "trainer_core/recovery/file_transfer.h"

namespace muster::trainer {
namespace {

using testing::AnyOf;
using testing::Each;
namespace fs = std::filesystem;

// The number of message rounds that are tried; a larger one tries more.
constexpr int kFiner = kSanitized ? 2 : 8;

// A rank is lost at each message of a save.
TEST_F(LocalCheckpoint, ALostRankLosesOnlyTheCurrentSave) {
  const Mesh mesh = mesh_with({1, 1, 3, 1, 1, 1, 1});
  const Nodes nodes = {0, 1, 2};
  int old = 0, renewed = 0;
  for (int victim = 0; victim < 3; ++victim) {
    for (int last = 0;; last += 1 + last / kFiner) {
      for (const int node : nodes) fs::remove_all(root(node));
      save_all(mesh, nodes, 1);
      int rounds = 0;  // rounds of the victim's thread
      std::shared_ptr<Transport> victims;
      const RoundHooks hooks{.before = [&](std::string_view) {
        if (rounds++ < last) return absl::OkStatus();
        victims->fail("gone");
        return absl::UnavailableError("gone");
      }};
      const auto ends = save(
          mesh, nodes, 2, [&](std::shared_ptr<Transport> transport) -> std::shared_ptr<Transport> {
            if (transport->rank() != victim) return transport;
            victims = transport;
            return std::make_shared<HookedTransport>(transport, hooks);
          });
      const bool all_saved =
          std::ranges::all_of(ends, [](const absl::Status& status) { return status.ok(); });
      const Restored restored = restore(mesh, nodes);
      EXPECT_THAT(restored.steps, AnyOf(Each(1), Each(2))) << "victim " << victim << " at " << last;
      ++(restored.steps[0] == 1 ? old : renewed);
      save_all(mesh, nodes, 3);
      for (const int node : nodes) EXPECT_EQ(saves_on(node).size(), 1U);
      EXPECT_THAT(restore(mesh, nodes).steps, Each(3));
      ASSERT_FALSE(HasFailure());
      if (all_saved) break;
    }
  }
  EXPECT_GT(old, 10);
  EXPECT_GT(renewed, 3);
}

// Other ranks may have learned that all have saved, and have removed the earlier save. With NCCL a
// rank's own failure must not be reported as one of the save.
TEST_F(LocalCheckpoint, ARankThatLosesAPeerRemovesNothing) {
  const Mesh mesh = mesh_with({1, 1, 2, 1, 1, 1, 1});
  const FakeNccl nccl(memory_, nullptr);
  begin_ = [&](ProcessGroups& groups) {
    groups.use_nccl({.api = nccl.api(groups.rank() == 0 ? 22'703 : 22'809)});
    const auto number = memory_.allocate(sizeof(float));
    const BufferView numbers(number.get(), 1, DType::kF32);
    EXPECT_EQ(groups.world().all_reduce(numbers, "gradients").code(),
              absl::StatusCode::kFailedPrecondition);
  };
  int rounds = 0, last = std::numeric_limits<int>::max();  // rounds of rank 1
  std::shared_ptr<Transport> lost;
  const RoundHooks hooks{.before = [&](std::string_view) {
    if (++rounds < last) return absl::OkStatus();
    lost->fail("gone");
    return absl::UnavailableError("gone");
  }};
  const auto save_of = [&](int64_t step) {
    return save(mesh, {0, 1}, step,
                [&](std::shared_ptr<Transport> transport) -> std::shared_ptr<Transport> {
                  if (transport->rank() == 0) return transport;
                  lost = transport;
                  return std::make_shared<HookedTransport>(transport, hooks);
                });
  };
  for (const absl::Status& status : save_of(1)) ASSERT_TRUE(status.ok()) << status;
  last = std::exchange(rounds, 0);
  for (const absl::Status& status : save_of(2)) EXPECT_TRUE(is_group_error(status)) << status;
  for (const int node : {0, 1}) EXPECT_EQ(saves_on(node).size(), 2U);
}

}  // namespace
}  // namespace muster::trainer
