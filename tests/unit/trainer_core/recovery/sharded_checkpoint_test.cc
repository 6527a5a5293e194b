// Checkpoints of meshes: any mesh restores the checkpoint of any other bit for bit; and whatever
// fails or dies, a whole checkpoint remains.
#include <gmock/gmock.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <random>
#include <thread>

#include <gtest/gtest.h>

#include "tests/unit/meshes.h"
#include "tests/unit/sanitized.h"
#include "tests/unit/temp_folder.h"
#include "tests/unit/trainer_core/model/sharded_models.h"
#include "tests/unit/trainer_core/on_mesh.h"
#include "tests/unit/trainer_core/recovery/checkpoint_ranks.h"
#include "tests/unit/trainer_core/train_helpers.h"
#include "trainer_core/base/train_mesh.h"
#include "trainer_core/model/scaling_state.h"
#include "trainer_core/rank/group_peers.h"

namespace muster::trainer {
namespace {

using testing::HasSubstr;
namespace fs = std::filesystem;

std::vector<OptimizerConfig> stateful_optimizers() {
  std::vector<OptimizerConfig> configs(3);
  configs[1].type = OptimizerType::kSgd;
  configs[2].type = OptimizerType::kAdafactor;
  return configs;
}

// Ranks that split the columns of the first tensor all have its first row.
TEST(ScalingState, OneRankWritesTheScales) {
  TrainConfig config = tiny_config(1);
  config.mesh.ici[static_cast<size_t>(MeshAxis::kTensor)] = 2;
  config.model.quantization.type = QuantizationType::kFp8Delayed;
  for (const char* target : {"q_proj", "o_proj"}) {
    config.model.lora = {.rank = 2, .alpha = 2, .targets = {target}};
    int64_t writers = 0;
    for (int32_t rank = 0; rank < 2; ++rank) {
      const auto layout = ShardLayout::of(config.model, mesh_of(config.mesh), rank, DType::kF32);
      writers += std::ranges::any_of(
          model_tensors(layout, config.model).written,
          [](const TensorBox& box) { return std::string(box.tensor).ends_with("_scale"); });
    }
    EXPECT_EQ(writers, 1) << target;
  }
}

class ShardedCheckpoint : public testing::Test {
 protected:
  std::string directory() const { return folder_.file("ckpt"); }
  CheckpointStore store(int64_t keep = -1) const {
    return CheckpointStore(directory(), keep, /*file_bytes=*/64 << 10);
  }

  // Returns every writer's status, in rank order; `step` is the seed.
  std::vector<absl::Status> save(const ModelConfig& model, const OptimizerConfig& optimizer,
                                 const Mesh& mesh, int64_t step) {
    std::vector<absl::Status> ends(static_cast<size_t>(mesh.ranks()));
    on_mesh(mesh, [&](ProcessGroups& groups) {
      if (!is_checkpoint_writer(mesh, groups.rank())) return;
      Rank rank(model, optimizer, mesh, groups.rank());
      rank.fill(static_cast<uint64_t>(step));
      GroupPeers peers(groups, kAllButData, 1);
      CheckpointStore mine = store();
      std::vector<std::string> notes;
      absl::Status status = mine.open({}, &peers);
      if (status.ok()) status = mine.save(info_of(step), rank.layout, rank.blocks(), notes, &peers);
      ends[static_cast<size_t>(groups.rank())] = status;
    });
    return ends;
  }

  struct Restored {
    std::vector<absl::StatusOr<int64_t>> steps;  // by rank; -1: none
    std::vector<std::string> notes;
  };
  // Checks that each reader has the values of the step that it returns.
  Restored restore(const ModelConfig& model, const OptimizerConfig& optimizer, const Mesh& mesh) {
    Restored restored{std::vector<absl::StatusOr<int64_t>>(static_cast<size_t>(mesh.ranks()), -1),
                      {}};
    on_mesh(mesh, [&](ProcessGroups& groups) {
      if (!is_checkpoint_writer(mesh, groups.rank())) return;
      Rank rank(model, optimizer, mesh, groups.rank());
      GroupPeers peers(groups, kAllButData, 1);
      std::vector<std::string> notes;
      const auto newest = store().restore_newest(rank.layout, rank.blocks(), notes, &peers);
      auto& step = restored.steps[static_cast<size_t>(groups.rank())];
      if (!newest.ok()) {
        step = newest.status();
      } else if (newest->has_value()) {
        step = (*newest)->step;
        EXPECT_EQ((*newest)->samples, static_cast<uint64_t>(3 * *step));
        EXPECT_TRUE(rank.has(static_cast<uint64_t>(*step))) << "rank " << groups.rank();
      }
      if (groups.rank() == 0) restored.notes = notes;
    });
    return restored;
  }

  TempFolder folder_;
};

TEST_F(ShardedCheckpoint, AnyMeshRestoresACheckpointOfAnyOther) {
  std::mt19937_64 random(6);
  const std::vector<ModelConfig> models = {sharded_llama(), sharded_gpt(), sharded_glam()};
  std::vector<Mesh> meshes;
  for (const int32_t size : {1, 4, 6, 8}) {
    for (const Degrees& degrees : factorisations(size)) meshes.push_back(mesh_with(degrees));
  }
  constexpr int kPairs = kSanitized ? 10 : 40;
  int pairs = 0;
  for (int round = 0; pairs < kPairs; ++round) {
    ModelConfig model = models[random() % models.size()];
    if (round % 4 == 0) model.quantization.type = QuantizationType::kFp8Delayed;
    if (model.quantization.enabled()) model.experts = {};
    // Matrices that Adafactor factors would make the other stateful_optimizers too slow.
    OptimizerConfig optimizer = stateful_optimizers()[random() % 3];
    if (optimizer.type == OptimizerType::kAdafactor) {
      model.emb_dim = 130;
      model.vocab_size = 129;
    }
    const Mesh& from = meshes[random() % meshes.size()];
    const Mesh& to = meshes[random() % meshes.size()];
    if (!allows(model, from) || !allows(model, to)) continue;
    ++pairs;
    fs::remove_all(directory());
    const int64_t step = 10 + round;
    for (const absl::Status& status : save(model, optimizer, from, step))
      ASSERT_TRUE(status.ok()) << status << " on " << from.to_string();
    const Restored restored = restore(model, optimizer, to);
    for (int32_t rank = 0; rank < to.ranks(); ++rank) {
      const auto& got = restored.steps[static_cast<size_t>(rank)];
      ASSERT_TRUE(got.ok()) << got.status();
      ASSERT_EQ(*got, is_checkpoint_writer(to, rank) ? step : -1);
    }
    ASSERT_FALSE(HasFailure()) << from.to_string() << " to " << to.to_string() << ", "
                               << model.name;
  }
}

// 24 MB of parameters: a rank that holds an eighth reads an eighth, plus the blocks at its ends.
TEST_F(ShardedCheckpoint, ARankReadsOnlyItsPart) {
  ModelConfig model = sharded_llama();
  model.vocab_size = 6'000;
  model.emb_dim = 1'000;
  model.num_layers = 2;
  OptimizerConfig sgd;
  sgd.type = OptimizerType::kSgd;
  const Mesh one = mesh_with({1, 1, 1, 1, 1, 1, 1}), eight = mesh_with({1, 1, 8, 1, 1, 1, 1});
  for (const absl::Status& status : save(model, sgd, one, 1)) ASSERT_TRUE(status.ok()) << status;
  const auto manifest = read_manifest(directory() + "/1");
  ASSERT_TRUE(manifest.ok()) << manifest.status();
  for (int32_t i = 0; i < eight.ranks(); ++i) {
    Rank rank(model, sgd, eight, i);
    uint64_t bytes = 0;
    const auto status = read_boxes(*manifest, CheckpointPart::kModel, rank.layout.params.held,
                                   rank.blocks().params, &bytes);
    ASSERT_TRUE(status.ok()) << status;
    EXPECT_TRUE(rank.has(1));
    // Files and verified blocks are of 64 KiB here; each box may begin and end in the middle of
    // one.
    const uint64_t wanted = rank.params.size() * sizeof(float);
    EXPECT_GE(bytes + 100, wanted);
    EXPECT_LE(bytes, wanted + 2 * rank.layout.params.held.size() * (68 << 10));
    EXPECT_LT(bytes, wanted * 3 / 2);
  }
}

// Peers of which one leaves at its `last`th message.
class LeavingPeers : public CheckpointPeers {
 public:
  LeavingPeers(GroupPeers& peers, ProcessGroups& groups, int last)
      : peers_(peers), groups_(groups), left_(last) {}
  int rank() const override { return peers_.rank(); }
  int size() const override { return peers_.size(); }
  int world_rank(int rank) const override { return peers_.world_rank(rank); }
  absl::StatusOr<std::vector<std::string>> gather(std::string_view mine) override {
    if (auto status = pass(); !status.ok()) return status;
    return peers_.gather(mine);
  }
  absl::StatusOr<std::string> share(std::string_view leader_text) override {
    if (auto status = pass(); !status.ok()) return status;
    return peers_.share(leader_text);
  }

 private:
  absl::Status pass() {
    if (left_-- > 0) return absl::OkStatus();
    groups_.abort();
    return absl::UnavailableError("gone");
  }
  GroupPeers& peers_;
  ProcessGroups& groups_;
  int left_;
};

// A rank dies during a save, each one at each message: the old checkpoint or the new one is whole.
TEST_F(ShardedCheckpoint, ALostRankLosesNoCheckpoint) {
  const ModelConfig model = sharded_llama();
  const OptimizerConfig optimizer;
  const Mesh mesh = mesh_with({1, 1, 2, 1, 1, 1, 2});
  int published = 0, kept = 0;
  for (int victim = 0; victim < mesh.ranks(); ++victim) {
    for (int messages = 0; messages < 4; ++messages) {
      fs::remove_all(directory());
      for (const absl::Status& status : save(model, optimizer, mesh, 1))
        ASSERT_TRUE(status.ok()) << status;
      on_mesh(mesh, [&](ProcessGroups& groups) {
        Rank rank(model, optimizer, mesh, groups.rank());
        rank.fill(2);
        GroupPeers peers(groups, kAllButData, 1);
        LeavingPeers leaving(peers, groups, groups.rank() == victim ? messages : 1000);
        std::vector<std::string> notes;
        (void)store().save(info_of(2), rank.layout, rank.blocks(), notes, &leaving);
      });
      const Restored restored = restore(model, optimizer, mesh);
      EXPECT_TRUE(restored.notes.empty()) << "nothing torn has a number";
      for (const auto& step : restored.steps) {
        ASSERT_TRUE(step.ok()) << step.status();
        ASSERT_EQ(*step, *restored.steps[0]);
      }
      ++(*restored.steps[0] == 2 ? published : kept);
      for (const absl::Status& status : save(model, optimizer, mesh, 3))
        ASSERT_TRUE(status.ok()) << status;
      EXPECT_EQ(*restore(model, optimizer, mesh).steps[1], 3);
    }
  }
  EXPECT_GT(published, 2);
  EXPECT_GT(kept, 4);
}

TEST_F(ShardedCheckpoint, ARankWhoseDiskFailsIsNamedAndNothingIsPublished) {
  const Mesh mesh = mesh_with({1, 1, 3, 1, 1, 1, 1});
  for (const absl::Status& status : save(sharded_llama(), {}, mesh, 1)) ASSERT_TRUE(status.ok());
  std::vector<absl::Status> ends(3);
  on_mesh(mesh, [&](ProcessGroups& groups) {
    Rank rank(sharded_llama(), {}, mesh, groups.rank());
    GroupPeers peers(groups, kAllButData, 1);
    // A folder with the name of rank 2's file: it is created while the others wait for rank 2.
    class Meddler : public LeavingPeers {
     public:
      Meddler(GroupPeers& all, ProcessGroups& of, std::string path)
          : LeavingPeers(all, of, 1000), path_(std::move(path)) {}
      absl::StatusOr<std::string> share(std::string_view leader_text) override {
        auto shared = LeavingPeers::share(leader_text);
        if (rank() == 2) fs::create_directories(path_);
        return shared;
      }

     private:
      std::string path_;
    };
    Meddler meddler(peers, groups, directory() + "/.tmp-2-0-0-0/model-00002-00000.safetensors");
    std::vector<std::string> notes;
    ends[static_cast<size_t>(groups.rank())] =
        store().save(info_of(2), rank.layout, rank.blocks(), notes, &meddler);
  });
  for (const absl::Status& status : ends) {
    EXPECT_THAT(std::string(status.message()),
                HasSubstr("checkpoint of step 2 is not saved: rank 2: cannot create "));
  }
  EXPECT_FALSE(fs::exists(directory() + "/2"));
  EXPECT_EQ(*restore(sharded_llama(), {}, mesh).steps[2], 1);
}

// If one rank cannot read a checkpoint, all fall back together, and name that rank.
TEST_F(ShardedCheckpoint, AllFallBackTogether) {
  const Mesh mesh = mesh_with({2, 1, 4, 1, 1, 1, 1});
  for (const int64_t step : {1, 2, 3}) {
    for (const absl::Status& status : save(sharded_llama(), {}, mesh, step))
      ASSERT_TRUE(status.ok()) << status;
  }
  // The values of rank 2 only.
  const std::string damaged = directory() + "/3/optimizer-00002-00000.safetensors";
  std::string bytes = read_file(damaged);
  bytes.back() = static_cast<char>(bytes.back() ^ 1);
  write_file(damaged, bytes);
  fs::remove(directory() + "/2/model-00003-00000.safetensors");
  const Restored restored = restore(sharded_llama(), {}, mesh);
  for (int32_t rank = 0; rank < mesh.ranks(); ++rank) {
    const auto& step = restored.steps[static_cast<size_t>(rank)];
    ASSERT_TRUE(step.ok()) << step.status();
    EXPECT_EQ(*step, is_checkpoint_writer(mesh, rank) ? 1 : -1);
  }
  ASSERT_EQ(restored.notes.size(), 2U);
  EXPECT_THAT(
      restored.notes[0],
      AllOf(HasSubstr("/3 is passed over: rank 2: optimizer-00002-00000.safetensors is damaged"),
            HasSubstr("/1 takes its place")));
  EXPECT_THAT(restored.notes[1], HasSubstr("/2 is passed over: it has no model-00003-00000"));
}

// Rank 2's file system shows its file later than the others': that is no damage, and no fallback.
TEST_F(ShardedCheckpoint, AFileThatAppearsLaterIsWaitedFor) {
  const Mesh mesh = mesh_with({1, 1, 3, 1, 1, 1, 1});
  for (const int64_t step : {1, 2}) {
    for (const absl::Status& status : save(sharded_llama(), {}, mesh, step))
      ASSERT_TRUE(status.ok()) << status;
  }
  const std::string file = directory() + "/2/model-00002-00000.safetensors";
  // Hidden from rank 2 once the leader has named the step, and shown later.
  class Hider : public LeavingPeers {
   public:
    Hider(GroupPeers& all, ProcessGroups& of, std::string path)
        : LeavingPeers(all, of, 1000), path_(std::move(path)) {}
    ~Hider() override {
      if (shows_.joinable()) shows_.join();
    }
    absl::StatusOr<std::string> share(std::string_view leader_text) override {
      auto shared = LeavingPeers::share(leader_text);
      if (rank() != 2 || shows_.joinable()) return shared;
      fs::rename(path_, path_ + ".hidden");
      shows_ = std::thread([this] {
        std::this_thread::sleep_for(std::chrono::milliseconds(100));
        fs::rename(path_ + ".hidden", path_);
      });
      return shared;
    }

   private:
    std::string path_;
    std::thread shows_;
  };
  on_mesh(mesh, [&](ProcessGroups& groups) {
    Rank rank(sharded_llama(), {}, mesh, groups.rank());
    GroupPeers peers(groups, kAllButData, 1);
    Hider hider(peers, groups, file);
    std::vector<std::string> notes;
    const auto newest = store().restore_newest(rank.layout, rank.blocks(), notes, &hider);
    ASSERT_TRUE(newest.ok()) << newest.status();
    ASSERT_TRUE(newest->has_value());
    EXPECT_EQ((*newest)->step, 2);
    EXPECT_TRUE(rank.has(2)) << "rank " << groups.rank();
    EXPECT_TRUE(notes.empty());
  });
}

TEST_F(ShardedCheckpoint, AnotherModelIsRefusedOnAllRanks) {
  const Mesh mesh = mesh_with({1, 1, 2, 1, 1, 1, 1});
  for (const absl::Status& status : save(sharded_llama(), {}, mesh, 1)) ASSERT_TRUE(status.ok());
  ModelConfig other = sharded_llama();
  other.mlp_dim = 12;
  for (const auto& step : restore(other, {}, mesh).steps) {
    EXPECT_EQ(step.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(step.status().message()), HasSubstr("of another model"));
  }
}

TEST_F(ShardedCheckpoint, ADirectoryThatIsNotSharedIsRefused) {
  const Mesh mesh = mesh_with({1, 1, 3, 1, 1, 1, 1});
  on_mesh(mesh, [&](ProcessGroups& groups) {
    GroupPeers peers(groups, kAllButData, 1);
    CheckpointStore mine(groups.rank() == 1 ? folder_.file("elsewhere") : directory(), 1);
    const auto status = mine.open({.job = 4, .attempt = 1, .incarnation = 9}, &peers);
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
    EXPECT_THAT(std::string(status.message()),
                HasSubstr("rank 1: checkpoint directory " + folder_.file("elsewhere") +
                          " is another one than rank 0's"));
  });
}

TEST_F(ShardedCheckpoint, RanksAtDifferentStepsSaveNothing) {
  const Mesh mesh = mesh_with({1, 1, 2, 1, 1, 1, 1});
  ASSERT_TRUE(store().prepare().ok());
  on_mesh(mesh, [&](ProcessGroups& groups) {
    Rank rank(sharded_llama(), {}, mesh, groups.rank());
    GroupPeers peers(groups, kAllButData, 1);
    std::vector<std::string> notes;
    const auto status =
        store().save(info_of(7 - groups.rank()), rank.layout, rank.blocks(), notes, &peers);
    EXPECT_THAT(std::string(status.message()),
                HasSubstr("rank 1: it has completed 6 steps, and rank 0 7"));
  });
  EXPECT_TRUE(fs::is_empty(directory()));
}

}  // namespace
}  // namespace muster::trainer
