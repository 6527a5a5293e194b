// Plans the file transfers of local checkpoints, from data that all ranks have reported. Pure
// arithmetic.
#pragma once

#include <cstddef>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <absl/status/statusor.h>

namespace muster::trainer {

// The ranks of a job, by node. The ranks of a node share a folder on one host
// (LocalStore::identity).
class LocalNodes {
 public:
  // `places` has one text per rank; ranks with equal texts are on the same node. Nodes are numbered
  // in the order of their lowest ranks.
  explicit LocalNodes(const std::vector<std::string>& places);

  size_t count() const { return ranks_.size(); }
  // Return the node of a rank, and the ranks of a node.
  size_t node_of(int rank) const { return nodes_[static_cast<size_t>(rank)]; }
  const std::vector<int>& ranks_of(size_t node) const { return ranks_[node]; }
  int first_of(size_t node) const { return ranks_[node].front(); }
  // Returns the index of `rank` on its node, from 0.
  size_t index_on_node(int rank) const;

  // Returns the rank that stores the copy of the files of `rank`: the rank with the same index on
  // the next node, where nodes form a ring. Returns nullopt if there is only one node.
  std::optional<int> copy_holder_of(int rank) const;

 private:
  std::vector<size_t> nodes_;            // node of each rank
  std::vector<std::vector<int>> ranks_;  // ranks of each node, ascending
};

// The transfer of a file from one rank to another.
struct FileTransfer {
  int from = 0;
  int to = 0;
  size_t file = 0;  // index of the file, as the caller numbers files

  friend bool operator==(const FileTransfer&, const FileTransfer&) = default;
};

// Divides transfers into rounds. In a round a rank sends at most one file and receives at most one,
// concurrently. Transfers are assigned in order, each to the earliest possible round, so that there
// are few rounds.
std::vector<std::vector<FileTransfer>> in_rounds(const std::vector<FileTransfer>& transfers);

// The files of a manifest that a node has undamaged, and those that its ranks need, as indices of
// files.
struct NodeFiles {
  std::set<size_t> has;
  std::set<size_t> needs;
};

// Plans transfers between nodes, so that each node gets the files that its ranks need. A node's
// transfers are divided among its ranks, one after another. Returns DataLoss with the name of a
// file (from `names`) that a node needs and no node has.
absl::StatusOr<std::vector<FileTransfer>> plan_transfers(const LocalNodes& nodes,
                                                         const std::vector<NodeFiles>& files,
                                                         const std::vector<std::string>& names);

}  // namespace muster::trainer
