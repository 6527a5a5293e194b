#include "trainer_core/checkpoint/local_plan.h"

#include <algorithm>
#include <map>

#include <absl/strings/str_cat.h>

namespace muster::trainer {

LocalNodes::LocalNodes(const std::vector<std::string>& places) {
  std::map<std::string, size_t> known;
  for (size_t rank = 0; rank < places.size(); ++rank) {
    const auto [node, is_new] = known.try_emplace(places[rank], ranks_.size());
    if (is_new) ranks_.emplace_back();
    ranks_[node->second].push_back(static_cast<int>(rank));
    nodes_.push_back(node->second);
  }
}

size_t LocalNodes::index_on_node(int rank) const {
  const std::vector<int>& ranks = ranks_of(node_of(rank));
  return static_cast<size_t>(std::ranges::find(ranks, rank) - ranks.begin());
}

std::optional<int> LocalNodes::copy_holder_of(int rank) const {
  if (count() < 2) return std::nullopt;
  const std::vector<int>& next = ranks_of((node_of(rank) + 1) % count());
  return next[index_on_node(rank) % next.size()];
}

std::vector<std::vector<FileTransfer>> in_rounds(const std::vector<FileTransfer>& transfers) {
  std::vector<std::vector<FileTransfer>> rounds;
  // The rounds in which each rank sends, or receives.
  std::map<int, std::set<size_t>> sends, receives;
  for (const FileTransfer& transfer : transfers) {
    size_t round = 0;
    while (sends[transfer.from].contains(round) || receives[transfer.to].contains(round)) ++round;
    sends[transfer.from].insert(round);
    receives[transfer.to].insert(round);
    if (round >= rounds.size()) rounds.resize(round + 1);
    rounds[round].push_back(transfer);
  }
  return rounds;
}

absl::StatusOr<std::vector<FileTransfer>> plan_transfers(const LocalNodes& nodes,
                                                         const std::vector<NodeFiles>& files,
                                                         const std::vector<std::string>& names) {
  std::vector<FileTransfer> transfers;
  for (size_t node = 0; node < nodes.count(); ++node) {
    for (const size_t file : files[node].needs) {
      if (files[node].has.contains(file)) continue;
      std::vector<size_t> sources;
      for (size_t other = 0; other < nodes.count(); ++other) {
        if (files[other].has.contains(file)) sources.push_back(other);
      }
      if (sources.empty())
        return absl::DataLossError(absl::StrCat(names[file], " is on no node undamaged"));
      const std::vector<int>& from = nodes.ranks_of(sources[(file + node) % sources.size()]);
      const std::vector<int>& to = nodes.ranks_of(node);
      transfers.push_back({from[file % from.size()], to[file % to.size()], file});
    }
  }
  return transfers;
}

}  // namespace muster::trainer
