// Who sends what to whom for local checkpoints: decisions from what all ranks have told, pure arithmetic.
#pragma once

#include <cstddef>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <absl/status/statusor.h>

namespace muster::trainer {

// The ranks of a job by node: ranks that see one folder (LocalStore::identity) on one host.
class LocalNodes {
 public:
  // `places`: of each rank, the same text for ranks of one node. Nodes are in the order of their first ranks.
  explicit LocalNodes(const std::vector<std::string>& places);

  size_t count() const { return ranks_.size(); }
  size_t node_of(int rank) const { return nodes_[static_cast<size_t>(rank)]; }
  const std::vector<int>& ranks_of(size_t node) const { return ranks_[node]; }
  int first_of(size_t node) const { return ranks_[node].front(); }
  // Which one `rank` is on its node, from 0.
  size_t place_of(int rank) const;

  // Who keeps the second copy of what `rank` writes: the rank with the same place on the next node, all nodes in a ring. None on one node.
  std::optional<int> keeper_of(int rank) const;

 private:
  std::vector<size_t> nodes_;            // by rank
  std::vector<std::vector<int>> ranks_;  // by node, ascending
};

// One file from a rank to another.
struct FileTransfer {
  int from = 0;
  int to = 0;
  size_t file = 0;  // whatever the caller counts

  friend bool operator==(const FileTransfer&, const FileTransfer&) = default;
};

// The same in rounds, in each of which a rank sends one file at most and receives one at most, both at once. In few: as the earliest
// that it can be in, in order.
std::vector<std::vector<FileTransfer>> in_rounds(const std::vector<FileTransfer>& transfers);

// What a node has undamaged of a manifest's files, and what its ranks want to read.
struct NodeFiles {
  std::set<size_t> has;
  std::set<size_t> wants;
};

// What goes from which node to which, so that each has what it wants; the ranks of nodes take turns. DataLoss names (by its index in
// `names`) a file that no node has.
absl::StatusOr<std::vector<FileTransfer>> plan_transfers(const LocalNodes& nodes,
                                                         const std::vector<NodeFiles>& files,
                                                         const std::vector<std::string>& names);

}  // namespace muster::trainer
