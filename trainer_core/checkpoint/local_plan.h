// Plans the file transfers of local checkpoints from what all ranks have reported. Pure arithmetic.
#pragma once

#include <cstddef>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <absl/status/statusor.h>

namespace muster::trainer {

// The ranks of a job by node: ranks that share one folder (LocalStore::identity) on one host.
class LocalNodes {
 public:
  // `places`: one text per rank, equal for ranks of one node. Nodes are in the order of their first
  // ranks.
  explicit LocalNodes(const std::vector<std::string>& places);

  size_t count() const { return ranks_.size(); }
  size_t node_of(int rank) const { return nodes_[static_cast<size_t>(rank)]; }
  const std::vector<int>& ranks_of(size_t node) const { return ranks_[node]; }
  int first_of(size_t node) const { return ranks_[node].front(); }
  // Returns the index of `rank` on its node, from 0.
  size_t place_of(int rank) const;

  // Returns the rank that stores the second copy of `rank`'s files: the one with the same index on
  // the next node of the ring of nodes. None if there is one node.
  std::optional<int> keeper_of(int rank) const;

 private:
  std::vector<size_t> nodes_;            // by rank
  std::vector<std::vector<int>> ranks_;  // by node, ascending
};

// One file from one rank to another.
struct FileTransfer {
  int from = 0;
  int to = 0;
  size_t file = 0;  // whatever the caller counts

  friend bool operator==(const FileTransfer&, const FileTransfer&) = default;
};

// Schedules transfers in rounds. In each round a rank sends at most one file and receives at most
// one, concurrently. Each transfer gets the earliest possible round, in order, which keeps the
// rounds few.
std::vector<std::vector<FileTransfer>> in_rounds(const std::vector<FileTransfer>& transfers);

// The undamaged files of a manifest on a node, and the files that its ranks need to read.
struct NodeFiles {
  std::set<size_t> has;
  std::set<size_t> wants;
};

// Plans transfers between nodes so that each node gets the files that it needs; a node's ranks
// take the transfers alternately. DataLoss names (by its index in `names`) a file that no node has.
absl::StatusOr<std::vector<FileTransfer>> plan_transfers(const LocalNodes& nodes,
                                                         const std::vector<NodeFiles>& files,
                                                         const std::vector<std::string>& names);

}  // namespace muster::trainer
