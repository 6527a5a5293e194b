// Local checkpoints of ranks that are threads, on nodes that are folders. Whichever node is lost
// and whichever file is damaged, a restart on any mesh restores the state of one save, bit for bit,
// or none.
#include <gmock/gmock.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <random>

#include <gtest/gtest.h>

#include "tests/unit/meshes.h"
#include "tests/unit/sanitized.h"
#include "tests/unit/trainer_core/recovery/local_saves.h"

namespace muster::trainer {
namespace {

using testing::AllOf;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
namespace fs = std::filesystem;

constexpr int kDamages = kSanitized ? 12 : 40;

TEST_F(LocalCheckpoint, EachNodeHasItsOwnFilesAndCopiesOfThePreviousNode) {
  const Mesh mesh = mesh_with({1, 1, 4, 1, 1, 1, 1});
  const Nodes nodes = nodes_of(4, 2);
  save_all(mesh, nodes, 5);
  save_all(mesh, nodes, 6);
  for (const int node : {0, 1}) {
    ASSERT_EQ(saves_on(node).size(), 1U) << "the save before is removed";
    EXPECT_EQ(step_of_local_save(saves_on(node)[0]), 6);
    const std::string save = root(node) + "/" + saves_on(node)[0];
    for (const char* part :
         {"part-00000.json", "part-00001.json", "part-00002.json", "part-00003.json"})
      EXPECT_TRUE(fs::exists(save + "/" + part)) << part;
  }
  const Restored restored = restore(mesh, nodes);
  EXPECT_THAT(restored.steps, Each(6));
  EXPECT_EQ(restored.from, "own copies");
  EXPECT_THAT(restored.notes, IsEmpty());
}

TEST_F(LocalCheckpoint, ALostNodeIsRestoredFromItsKeeper) {
  const Mesh mesh = mesh_with({1, 1, 4, 1, 1, 1, 1});
  save_all(mesh, nodes_of(4, 2), 6);
  fs::remove_all(root(0));
  const Restored restored = restore(mesh, {7, 7, 1, 1});  // a spare replaces the node
  EXPECT_THAT(restored.steps, Each(6));
  EXPECT_THAT(restored.from, HasSubstr("files from rank 2's node"));
}

// If replicas are on other nodes, all writers are on one node: ranks that write nothing store the
// copies.
TEST_F(LocalCheckpoint, ReplicasStoreCopies) {
  const Mesh mesh = mesh_with({2, 1, 2, 1, 1, 1, 1});
  save_all(mesh, nodes_of(4, 2), 6);
  fs::remove_all(root(0));
  const Restored restored = restore(mesh, {7, 7, 1, 1});
  EXPECT_THAT(restored.steps, Each(6));
}

TEST_F(LocalCheckpoint, ASingleNodeHasNoSecondCopy) {
  const Mesh mesh = mesh_with({1, 1, 2, 1, 1, 1, 1});
  save_all(mesh, {0, 0}, 6);
  EXPECT_THAT(restore(mesh, {0, 0}).steps, Each(6));
  on_mesh(mesh, [&](ProcessGroups& groups) {
    LocalCheckpoints local(place(0), kFileBytes, groups);
    std::vector<std::string> notes;
    ASSERT_TRUE(local.open(notes).ok());
    if (groups.rank() == 0) {
      EXPECT_THAT(notes, ElementsAre(HasSubstr("there is no second copy")));
    }
    local.remove();
  });
  EXPECT_FALSE(fs::exists(root(0)));
  EXPECT_THAT(restore(mesh, {0, 0}).steps, Each(kNone));
}

TEST_F(LocalCheckpoint, SavesRemainIfARankIsLostBeforeAllAreDone) {
  const Mesh mesh = mesh_with({1, 1, 2, 1, 1, 1, 1});
  save_all(mesh, {0, 1}, 6);
  on_mesh(mesh, [&](ProcessGroups& groups) {
    LocalCheckpoints local(place(groups.rank()), kFileBytes, groups);
    std::vector<std::string> notes;
    ASSERT_TRUE(local.open(notes).ok());
    if (groups.rank() == 1) return groups.abort();
    local.remove();
  });
  EXPECT_FALSE(files_on(0).empty());
  EXPECT_THAT(restore(mesh, {0, 1}).steps, Each(6));
}

TEST_F(LocalCheckpoint, DamageIsReportedAndTheOtherCopyIsUsed) {
  const Mesh mesh = mesh_with({1, 1, 2, 1, 1, 1, 1});
  save_all(mesh, {0, 1}, 6);
  const std::string file = root(0) + "/" + saves_on(0)[0] + "/model-00000-00000.safetensors";
  std::string bytes = read_file(file);
  bytes.back() = static_cast<char>(bytes.back() ^ 1);
  write_file(file, bytes);
  Restored restored = restore(mesh, {0, 1});
  EXPECT_THAT(restored.steps, Each(6));
  EXPECT_EQ(restored.from, "own copies; 1 file from rank 1's node");
  EXPECT_THAT(restored.notes,
              ElementsAre(AllOf(HasSubstr("local checkpoint of step 6: on rank 0's node "
                                          "model-00000-00000.safetensors is damaged: the checksum"),
                                HasSubstr("; another copy takes its place"))));
  EXPECT_THAT(restore(mesh, {0, 1}).notes, IsEmpty()) << "it is whole again";
  // Both copies are damaged.
  for (const int node : {0, 1}) {
    fs::resize_file(root(node) + "/" + saves_on(node)[0] + "/model-00000-00000.safetensors", 100);
  }
  restored = restore(mesh, {0, 1});
  EXPECT_THAT(restored.steps, Each(kNone));
  EXPECT_THAT(restored.notes,
              ElementsAre(HasSubstr("local checkpoint of step 6 is passed over: "
                                    "model-00000-00000.safetensors is on no node undamaged")));
}

TEST_F(LocalCheckpoint, OlderOrRejectedSavesAreNotUsed) {
  const Mesh mesh = mesh_with({1, 1, 2, 1, 1, 1, 1});
  save_all(mesh, {0, 1}, 6);
  EXPECT_THAT(restore(mesh, {0, 1}, /*oldest=*/7).steps, Each(kNone));
  EXPECT_THAT(restore(mesh, {0, 1}, /*oldest=*/6).steps, Each(6));
  const Restored refused = restore(mesh, {0, 1}, 0, [](const CheckpointInfo&) {
    return absl::InvalidArgumentError("it is of another run_name");
  });
  EXPECT_THAT(refused.steps, Each(kNone));
  EXPECT_THAT(refused.notes, ElementsAre("local checkpoint of step 6 is passed over: it is of "
                                         "another run_name"));
  model_.emb_dim *= 2;
  EXPECT_THAT(restore(mesh, {0, 1}).notes, ElementsAre(HasSubstr("is of another model")));
}

TEST_F(LocalCheckpoint, AnotherUsersFolderIsNotTouched) {
  fs::create_directories(folder_.file("elsewhere"));
  fs::create_directory_symlink(folder_.file("elsewhere"), root(1));
  for (const absl::Status& status : save(mesh_with({1, 1, 2, 1, 1, 1, 1}), {0, 1}, 6)) {
    EXPECT_THAT(std::string(status.message()), HasSubstr("rank 1: "));
    EXPECT_THAT(std::string(status.message()), HasSubstr("is no folder of this user alone"));
  }
  EXPECT_TRUE(fs::is_empty(folder_.file("elsewhere")));
}

// A node whose storage fails is named; the earlier save remains.
TEST_F(LocalCheckpoint, AFailedSaveLeavesTheEarlierOne) {
  const Mesh mesh = mesh_with({1, 1, 2, 1, 1, 1, 1});
  save_all(mesh, {0, 1}, 6);
  const auto lose_folder = [&](int rank) {
    if (rank == 1) fs::remove_all(root(1));
  };
  for (const absl::Status& status : save(mesh, {0, 1}, 7, nullptr, lose_folder))
    EXPECT_THAT(std::string(status.message()), HasSubstr("rank 1: cannot make folder " + root(1)));
  EXPECT_EQ(saves_on(0).size(), 1U) << "nothing of it stays";
  EXPECT_THAT(restore(mesh, {0, 1}).steps, Each(6));
}

// Random meshes and nodes before and after, with random damage.
TEST_F(LocalCheckpoint, RestoresOneSaveBitForBitOrNone) {
  std::mt19937_64 random(11);
  const auto draw = [&](int below) {
    return static_cast<int>(random() % static_cast<uint64_t>(below));
  };
  std::vector<Mesh> meshes;
  for (const int32_t size : {2, 4, 6}) {
    for (const Degrees& degrees : factorisations(size)) meshes.push_back(mesh_with(degrees));
  }
  std::erase_if(meshes, [&](const Mesh& mesh) { return !allows(model_, mesh); });
  std::map<int64_t, int> outcomes;
  for (int round = 0; round < kDamages; ++round) {
    for (int node = 0; node < 8; ++node) fs::remove_all(root(node));
    const Mesh& from = meshes[random() % meshes.size()];
    const int per_node = from.ranks() == 2 ? 1 : 2;
    const int count = from.ranks() / per_node;
    // A save of a process that died before it could remove the older one.
    save_all(from, nodes_of(from.ranks(), per_node), 1);
    fs::copy(folder_.path(), folder_.path() + ".old", fs::copy_options::recursive);
    save_all(from, nodes_of(from.ranks(), per_node), 2);
    fs::copy(folder_.path() + ".old", folder_.path(), fs::copy_options::recursive);
    fs::remove_all(folder_.path() + ".old");
    const int lost = draw(count);
    fs::remove_all(root(lost));
    const int damages = round % 3 == 0 ? 0 : draw(4);
    for (int i = 0; i < damages; ++i) {
      const std::vector<std::string> files = files_on(draw(count));
      if (files.empty()) continue;
      const std::string& file = files[random() % files.size()];
      const auto bytes = fs::file_size(file);
      switch (draw(3)) {
        case 0:
          fs::remove(file);
          break;
        case 1:
          fs::resize_file(file, random() % bytes);
          break;
        default:
          std::string content = read_file(file);
          char& byte = content[random() % bytes];
          byte = static_cast<char>(byte ^ 1);
          write_file(file, content);
      }
    }
    // All nodes that were there and an empty one, with as many ranks of another mesh.
    const Mesh& to = meshes[random() % meshes.size()];
    Nodes there;
    for (int rank = 0; rank < to.ranks(); ++rank)
      there.push_back(rank < count ? rank : (rank * 5) % 8);
    std::ranges::shuffle(there, random);
    const Restored restored = restore(to, there);
    EXPECT_THAT(restored.steps, Each(restored.steps[0]));
    const bool all_there = to.ranks() >= count;
    if (damages == 0 && all_there) {
      EXPECT_EQ(restored.steps[0], 2) << from.to_string() << " to " << to.to_string();
    }
    ++outcomes[restored.steps[0]];
    ASSERT_FALSE(HasFailure()) << "round " << round << ": " << from.to_string() << " to "
                               << to.to_string();
  }
  EXPECT_GT(outcomes[2], kDamages / 3);
  EXPECT_GT(outcomes[1] + outcomes[kNone], kDamages / 30);
}

TEST(LocalNodes, KeepersAreOnTheNextNode) {
  const LocalNodes nodes({"b", "b", "a", "b", "c"});
  EXPECT_EQ(nodes.count(), 3U);
  EXPECT_EQ(nodes.copy_holder_of(0), 2);
  EXPECT_EQ(nodes.copy_holder_of(3), 2) << "a node of fewer ranks";
  EXPECT_EQ(nodes.copy_holder_of(2), 4);
  EXPECT_EQ(nodes.copy_holder_of(4), 0);
  EXPECT_EQ(LocalNodes({"a", "a"}).copy_holder_of(0), std::nullopt);
  const auto rounds = in_rounds({{0, 2, 0}, {1, 2, 0}, {3, 2, 0}, {2, 4, 0}, {4, 0, 0}});
  ASSERT_EQ(rounds.size(), 3U);
  EXPECT_EQ(rounds[0], (std::vector<FileTransfer>{{0, 2, 0}, {2, 4, 0}, {4, 0, 0}}));
}

}  // namespace
}  // namespace muster::trainer
