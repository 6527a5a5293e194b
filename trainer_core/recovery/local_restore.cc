// Restores local checkpoints: chooses a save, and exchanges files between nodes before the save is
// read.
#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include <absl/strings/str_cat.h>
#include <nlohmann/json.hpp>

#include "trainer_core/rank/training_plan.h"
#include "trainer_core/recovery/file_transfer.h"
#include "trainer_core/recovery/local_checkpoints.h"

namespace muster::trainer {

using nlohmann::json;

// The attempt to restore a save, on this rank.
struct LocalCheckpoints::Trial {
  std::string save;
  Manifest manifest;
  std::vector<std::string> names;  // names of the save's files
  NodeFiles mine;                  // the files that this rank has verified, and those that it needs
  json damaged = json::object();   // file name → reason
};

namespace {

std::string describe_sources(const LocalNodes& nodes, const std::vector<FileTransfer>& transfers) {
  std::map<size_t, int> files;
  for (const FileTransfer& transfer : transfers) ++files[nodes.node_of(transfer.from)];
  std::string text = "own copies";
  for (const auto& [node, count] : files)
    absl::StrAppend(&text, "; ", count, count == 1 ? " file" : " files", " from rank ",
                    nodes.first_of(node), "'s node");
  return text;
}

}  // namespace

// Returns the saves to try, in order, on rank 0; an empty list on the others.
absl::StatusOr<std::vector<LocalCandidate>> LocalCheckpoints::find(
    int64_t oldest, const CheckpointJudge& judge, const CheckpointLayout& layout,
    std::vector<std::string>& notes) {
  const auto listed = gather_messages(
      peers_,
      {absl::OkStatus(),
       is_save_remover() ? json(store_.parts()).dump(-1, ' ', false, json::error_handler_t::replace)
                         : ""});
  if (!listed.ok()) return listed.status();
  std::vector<std::string> texts;
  for (const PeerMessage& message : *listed) {
    if (message.body.empty()) continue;
    for (const json& text : json::parse(message.body)) texts.push_back(text.get<std::string>());
  }
  std::vector<LocalCandidate> candidates;
  for (LocalCandidate& candidate : complete_saves(texts, oldest, notes)) {
    auto manifest = parse_manifest(candidate.manifest);
    absl::Status status = manifest.status();
    if (status.ok()) {
      manifest->info.folder = store_.folder_of(candidate.save);
      status = check_tensors(*manifest, layout);
    }
    if (status.ok() && judge) status = judge(candidate.info);
    if (status.ok()) {
      candidates.push_back(std::move(candidate));
    } else {
      notes.push_back(absl::StrCat("local checkpoint of step ", candidate.info.step,
                                   " is passed over: ", status.message()));
    }
  }
  return candidates;
}

// Verifies this rank's share of the files on its node.
void LocalCheckpoints::verify_share(Trial& trial) const {
  const std::vector<int>& ranks = nodes_->ranks_of(nodes_->node_of(peers_.rank()));
  for (size_t i = nodes_->index_on_node(peers_.rank()); i < trial.names.size(); i += ranks.size()) {
    const absl::Status status = store_.verify(trial.save, trial.manifest.files[i]);
    if (status.ok()) {
      trial.mine.has.insert(i);
    } else if (!absl::IsNotFound(status)) {
      trial.damaged[trial.names[i]] = std::string(status.message());
    }
  }
}

// Returns the transfers, which rank 0 plans from the files of all nodes. Returns the errors of the
// group, and DataLoss if no node has an intact copy of a file.
absl::StatusOr<std::vector<FileTransfer>> LocalCheckpoints::plan(const Trial& trial,
                                                                 std::vector<std::string>& notes) {
  const json mine = {
      {"has", trial.mine.has}, {"needs", trial.mine.needs}, {"damaged", trial.damaged}};
  const auto all = gather_messages(peers_, {absl::OkStatus(), mine.dump()});
  if (!all.ok()) return all.status();
  PeerMessage verdict;
  if (peers_.rank() == 0) {
    std::vector<NodeFiles> files(nodes_->count());
    std::string damage;
    for (size_t rank = 0; rank < all->size(); ++rank) {
      const size_t node = nodes_->node_of(static_cast<int>(rank));
      const json report = json::parse((*all)[rank].body);
      files[node].has.merge(report.at("has").get<std::set<size_t>>());
      files[node].needs.merge(report.at("needs").get<std::set<size_t>>());
      for (const auto& [file, why] : report.at("damaged").items())
        absl::StrAppend(&damage, damage.empty() ? "" : "; ", "on rank ", nodes_->first_of(node),
                        "'s node ", why.get<std::string>());
    }
    const auto transfers = plan_transfers(*nodes_, files, trial.names);
    verdict.status = transfers.status();
    if (!transfers.ok() && !damage.empty())
      verdict.status =
          absl::DataLossError(absl::StrCat(transfers.status().message(), ": ", damage));
    json list = json::array();
    if (transfers.ok()) {
      for (const FileTransfer& t : *transfers) list.push_back({t.from, t.to, t.file});
      if (!damage.empty())
        notes.push_back(absl::StrCat("local checkpoint of step ", trial.manifest.info.step, ": ",
                                     damage, "; another copy takes its place"));
    }
    verdict.body = list.dump();
  }
  const auto shared = share_message(peers_, verdict);
  if (!shared.ok()) return shared.status();
  if (!shared->status.ok()) return shared->status;
  std::vector<FileTransfer> transfers;
  for (const json& t : json::parse(shared->body))
    transfers.push_back({t.at(0).get<int>(), t.at(1).get<int>(), t.at(2).get<size_t>()});
  return transfers;
}

// Receives the files that this rank's node lacks. Returns the same status on all ranks.
absl::Status LocalCheckpoints::fetch(const Trial& trial,
                                     const std::vector<FileTransfer>& transfers) {
  absl::Status local = store_.begin(trial.save);
  for (const std::vector<FileTransfer>& round : in_rounds(transfers)) {
    const Partners partners = partners_in(round, peers_.rank());
    const StoredFile *outgoing = nullptr, *incoming = nullptr;
    for (const FileTransfer& transfer : round) {
      if (transfer.from == peers_.rank()) outgoing = &trial.manifest.files[transfer.file];
      if (transfer.to == peers_.rank()) incoming = &trial.manifest.files[transfer.file];
    }
    const auto status = exchange_files(group_, partners, store_.folder_of(trial.save), outgoing,
                                       incoming, kLocalName, local);
    if (!status.ok()) return status;
  }
  return agree(local);
}

// Tries to restore a save. It succeeds either on all ranks or on none. Returns a text about the
// sources of the files.
absl::StatusOr<std::string> LocalCheckpoints::try_one(Trial& trial, const CheckpointLayout& layout,
                                                      const CheckpointBlocks& blocks,
                                                      std::vector<std::string>& notes) {
  const bool reads = is_checkpoint_writer(mesh_, peers_.rank());
  for (const StoredFile& file : trial.manifest.files) trial.names.push_back(file.name);
  if (reads) trial.mine.needs = needed_files(trial.manifest, layout);
  verify_share(trial);
  const auto transfers = plan(trial, notes);
  if (!transfers.ok()) return transfers.status();
  if (auto status = fetch(trial, *transfers); !status.ok()) return status;
  const absl::Status read =
      agree(reads ? read_held(trial.manifest, layout, blocks) : absl::OkStatus());
  if (!read.ok()) return read;
  return describe_sources(*nodes_, *transfers);
}

absl::StatusOr<std::optional<LocalCheckpoints::Restored>> LocalCheckpoints::restore(
    const CheckpointLayout& layout, const CheckpointBlocks& blocks, int64_t oldest,
    const CheckpointJudge& judge, std::vector<std::string>& notes) {
  const auto candidates = find(oldest, judge, layout, notes);
  if (!candidates.ok()) return candidates.status();
  for (size_t next = 0;; ++next) {
    json tried = json::object();
    if (next < candidates->size())
      tried = {{"save", (*candidates)[next].save}, {"manifest", (*candidates)[next].manifest}};
    const auto shared = share_message(peers_, {absl::OkStatus(), tried.dump()});
    if (!shared.ok()) return shared.status();
    tried = json::parse(shared->body);
    if (tried.empty()) return std::nullopt;
    auto manifest = parse_manifest(tried.at("manifest").get_ref<const std::string&>());
    if (!manifest.ok()) return manifest.status();  // rank 0 has read it
    Trial trial{tried.at("save").get<std::string>(), *std::move(manifest), {}, {}};
    trial.manifest.info.folder = store_.folder_of(trial.save);
    const auto from = try_one(trial, layout, blocks, notes);
    if (from.ok()) {
      if (is_save_remover()) store_.remove_others(trial.save);
      return Restored{std::move(trial.manifest.info), *from};
    }
    if (is_group_error(from.status())) return from.status();
    notes.push_back(absl::StrCat("local checkpoint of step ", trial.manifest.info.step,
                                 " is passed over: ", from.status().message()));
  }
}

}  // namespace muster::trainer
