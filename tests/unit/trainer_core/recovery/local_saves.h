// A fixture for local checkpoints of ranks that are threads, on nodes that are folders.
#pragma once

#include <algorithm>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/unit/temp_folder.h"
#include "tests/unit/trainer_core/locked_memory.h"
#include "tests/unit/trainer_core/model/sharded_models.h"
#include "tests/unit/trainer_core/on_mesh.h"
#include "tests/unit/trainer_core/recovery/checkpoint_ranks.h"
#include "trainer_core/recovery/local_checkpoints.h"

namespace muster::trainer {

// The node of each rank.
using Nodes = std::vector<int>;
inline Nodes nodes_of(int ranks, int per_node) {
  Nodes nodes;
  for (int rank = 0; rank < ranks; ++rank) nodes.push_back(rank / per_node);
  return nodes;
}

// The fixture. LocalCheckpoints, with an s, is the class under test.
class LocalCheckpoint : public testing::Test {
 protected:
  static constexpr int64_t kNone = -1;
  static constexpr int64_t kFileBytes = 64 << 10;

  // Returns the storage of a node: its folder and host identity.
  LocalStorage place(int node) const {
    return {folder_.file("node" + std::to_string(node)), "host" + std::to_string(node)};
  }
  std::string root(int node) const { return place(node).folder; }

  // Saves a local checkpoint and returns the status of each rank. The saved values are derived from
  // the seed `step`. `transport_of` is passed to on_mesh(). Each rank calls `before` after it has
  // opened its storage.
  std::vector<absl::Status> save(const Mesh& mesh, const Nodes& nodes, int64_t step,
                                 const TransportOf& transport_of = nullptr,
                                 const std::function<void(int rank)>& before = nullptr) {
    std::vector<absl::Status> ends(nodes.size());
    on_mesh(
        mesh,
        [&](ProcessGroups& groups) {
          const auto at = static_cast<size_t>(groups.rank());
          Rank rank(model_, optimizer_, mesh, groups.rank());
          rank.fill(static_cast<uint64_t>(step));
          const bool writes = is_checkpoint_writer(mesh, groups.rank());
          if (begin_) begin_(groups);
          LocalCheckpoints local(place(nodes[at]), kFileBytes, groups);
          std::vector<std::string> notes;
          ends[at] = local.open(notes);
          if (!ends[at].ok()) return;
          if (before) before(groups.rank());
          ends[at] =
              local.save(info_of(step), rank.layout, writes ? rank.blocks() : CheckpointBlocks{});
        },
        transport_of, memory_);
    return ends;
  }
  void save_all(const Mesh& mesh, const Nodes& nodes, int64_t step) {
    for (const absl::Status& status : save(mesh, nodes, step)) ASSERT_TRUE(status.ok()) << status;
  }

  struct Restored {
    std::vector<int64_t> steps;  // one per rank
    std::string from;            // the source that rank 0 reports
    std::vector<std::string> notes;
  };
  // Restores on all ranks. Checks that each writer gets the values of its restored step.
  Restored restore(const Mesh& mesh, const Nodes& nodes, int64_t oldest = 0,
                   const CheckpointJudge& judge = nullptr) {
    Restored restored{std::vector<int64_t>(nodes.size(), kNone), {}, {}};
    on_mesh(mesh, [&](ProcessGroups& groups) {
      const auto at = static_cast<size_t>(groups.rank());
      Rank rank(model_, optimizer_, mesh, groups.rank());
      LocalCheckpoints local(place(nodes[at]), kFileBytes, groups);
      std::vector<std::string> ignored, notes;
      const auto opened = local.open(ignored);
      ASSERT_TRUE(opened.ok()) << opened;
      const auto found = local.restore(rank.layout, rank.blocks(), oldest, judge, notes);
      ASSERT_TRUE(found.ok()) << found.status();
      if (groups.rank() == 0) restored.notes = notes;
      if (!found->has_value()) return;
      if (groups.rank() == 0) restored.from = (*found)->from;
      restored.steps[at] = (*found)->info.step;
      EXPECT_EQ((*found)->info.samples, static_cast<uint64_t>(3 * restored.steps[at]));
      if (is_checkpoint_writer(mesh, groups.rank())) {
        EXPECT_TRUE(rank.has(static_cast<uint64_t>(restored.steps[at]))) << "rank " << at;
      }
    });
    return restored;
  }

  // Returns the saves of a node.
  std::vector<std::string> saves_on(int node) const {
    std::vector<std::string> saves;
    std::error_code none;
    for (const auto& entry : std::filesystem::directory_iterator(root(node), none))
      saves.push_back(entry.path().filename().string());
    return saves;
  }
  std::vector<std::string> files_on(int node) const {
    std::vector<std::string> files;
    std::error_code none;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(root(node), none))
      if (entry.is_regular_file()) files.push_back(entry.path().string());
    std::ranges::sort(files);
    return files;
  }

  // The folder is in memory, as local checkpoints are, so that a thousand saves need not wait for a
  // disk.
  TempFolder folder_{std::filesystem::is_directory("/dev/shm")
                         ? std::filesystem::path("/dev/shm")
                         : std::filesystem::temp_directory_path()};
  ModelConfig model_ = sharded_llama();
  OptimizerConfig optimizer_;
  LockedMemory memory_;                        // the memory of a device
  std::function<void(ProcessGroups&)> begin_;  // called by each rank of a save
};

}  // namespace muster::trainer
