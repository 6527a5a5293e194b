#include "trainer_core/recovery/local_checkpoints.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <utility>

#include <absl/strings/str_cat.h>
#include <nlohmann/json.hpp>

#include "common/files/free_space.h"
#include "common/time/time.h"
#include "trainer_core/comm/shm.h"
#include "trainer_core/rank/training_plan.h"
#include "trainer_core/recovery/file_transfer.h"

namespace muster::trainer {
namespace {

using nlohmann::json;

absl::Status with_room(const absl::Status& status, std::optional<uint64_t> free, uint64_t needed) {
  if (!absl::IsResourceExhausted(status)) return status;
  return absl::ResourceExhaustedError(absl::StrCat(status.message(), missing_room(free, needed)));
}

uint64_t bytes_of(const CheckpointBlocks& blocks) {
  return (blocks.params.size() + blocks.state.size()) * sizeof(float);
}

uint64_t bytes_of(const std::vector<StoredFile>& files) {
  uint64_t bytes = 0;
  for (const StoredFile& file : files) bytes += file.digest.bytes;
  return bytes;
}

absl::StatusOr<std::vector<StoredFile>> files_of(const std::string& part) {
  const auto parsed = parse_local_part(part);
  if (!parsed.ok()) return parsed.status();
  return parse_files(parsed->files);
}

}  // namespace

LocalStorage local_storage(const TrainConfig& config, const std::string& given) {
  const std::string& run = config.checkpoint_directory;
  const std::filesystem::path usual =
      given.empty() ? absl::StrCat("/dev/shm/muster-", geteuid(), "-",
                                   checksum_text(checksum({run.data(), run.size()})))
                    : given;
  const std::string& wanted = config.local_checkpoint_directory;
  return {
      wanted.empty() ? usual.string() : (std::filesystem::path(wanted) / usual.filename()).string(),
      host_identity()};
}

LocalCheckpoints::LocalCheckpoints(const LocalStorage& storage, int64_t file_bytes,
                                   ProcessGroups& groups)
    : store_(storage.folder),
      host_(storage.host),
      file_bytes_(file_bytes),
      group_(groups.of({.axes = AxisSet::all()}, kLocalChannel)),
      peers_(GroupPeers::of_all(groups, kLocalChannel, kLocalName)),
      mesh_(groups.mesh()) {}

bool LocalCheckpoints::is_save_remover() const {
  return nodes_->first_of(nodes_->node_of(peers_.rank())) == peers_.rank();
}

absl::Status LocalCheckpoints::agree(const absl::Status& mine) {
  const auto all = gather_messages(peers_, {mine});
  if (!all.ok()) return all.status();
  const auto verdict = share_message(peers_, {first_error(peers_, *all)});
  return verdict.ok() ? verdict->status : verdict.status();
}

absl::Status LocalCheckpoints::open(std::vector<std::string>& notes) {
  const absl::Status opened = store_.open();
  const auto identity = opened.ok() ? store_.identity() : absl::StatusOr<std::string>(opened);
  const auto all = gather_messages(
      peers_, {identity.status(), identity.ok() ? absl::StrCat(host_, "/", *identity) : ""});
  if (!all.ok()) return all.status();
  json places = json::array();
  for (const PeerMessage& message : *all) places.push_back(message.body);
  const auto shared = share_message(peers_, {first_error(peers_, *all), places.dump()});
  if (!shared.ok()) return shared.status();
  if (!shared->status.ok()) return shared->status;
  nodes_.emplace(json::parse(shared->body).get<std::vector<std::string>>());
  std::vector<FileTransfer> copies;
  for (int rank = 0; rank < peers_.size(); ++rank) {
    const auto keeper = nodes_->copy_holder_of(rank);
    if (keeper && is_checkpoint_writer(mesh_, rank)) copies.push_back({rank, *keeper, 0});
  }
  copy_rounds_ = in_rounds(copies);
  if (peers_.rank() == 0 && copies.empty()) {
    notes.push_back(absl::StrCat("local checkpoints are only in ", store_.folder(),
                                 ": all ranks are on one node, so there is no second copy"));
  }
  return absl::OkStatus();
}

// Checks that all ranks have ended the earlier save at the same step. Returns the new save's name.
absl::StatusOr<std::string> LocalCheckpoints::begin_save(int64_t step) {
  const auto all = gather_messages(peers_, {absl::OkStatus(), absl::StrCat(step)});
  if (!all.ok()) return all.status();
  PeerMessage opening;
  for (size_t rank = 0; rank < all->size(); ++rank) {
    if ((*all)[rank].body == (*all)[0].body) continue;
    opening.status = absl::InternalError(
        absl::StrCat("rank ", rank, " has completed ", (*all)[rank].body, " steps, rank 0 ", step));
  }
  if (peers_.rank() == 0) {
    opening.body = local_save_name(step, static_cast<uint64_t>(wall_clock_unix_ns()));
  }
  const auto shared = share_message(peers_, opening);
  if (!shared.ok()) return shared.status();
  if (!shared->status.ok()) return shared->status;
  return shared->body;
}

// Sends this rank's files and record to the rank that stores its copy, and stores the copies that
// this rank holds. Returns the errors of the group, and stores errors of the local disk in `local`.
absl::Status LocalCheckpoints::copy(const std::string& save, const std::string& own_part,
                                    absl::Status& local) {
  for (const std::vector<FileTransfer>& round : copy_rounds_) {
    const Partners partners = partners_in(round, peers_.rank());
    const bool sends = partners.to != kNoPeer;
    const auto text = exchange_texts(group_, partners, sends ? own_part : "", kLocalName);
    if (!text.ok()) return text.status();
    const bool receives = !text->empty();
    const auto mine = sends ? files_of(own_part) : std::vector<StoredFile>();
    const auto theirs = receives ? files_of(*text) : std::vector<StoredFile>();
    if (!mine.ok()) return mine.status();
    if (!theirs.ok()) return theirs.status();
    const auto free = free_space_bytes(store_.folder());
    absl::Status copied;
    for (size_t i = 0; i < std::max(mine->size(), theirs->size()); ++i) {
      const auto status = exchange_files(
          group_, partners, store_.folder_of(save), i < mine->size() ? &(*mine)[i] : nullptr,
          i < theirs->size() ? &(*theirs)[i] : nullptr, kLocalName, copied);
      if (!status.ok()) return status;
    }
    if (copied.ok() && receives) {
      const auto part = parse_local_part(*text);
      copied = part.ok() ? store_.store_record(*part, *text) : part.status();
    }
    local.Update(with_room(copied, free, bytes_of(*theirs)));
  }
  return absl::OkStatus();
}

absl::Status LocalCheckpoints::save(const CheckpointInfo& info, const CheckpointLayout& layout,
                                    const CheckpointBlocks& blocks) {
  const auto save = begin_save(info.step);
  if (!save.ok()) return save.status();
  absl::Status mine = store_.begin(*save);
  std::string part;
  if (mine.ok() && is_checkpoint_writer(mesh_, peers_.rank())) {
    const auto free = free_space_bytes(store_.folder());
    auto written = store_.write({*save, peers_.rank(), info, {}}, layout, blocks, file_bytes_);
    mine = with_room(written.status(), free, bytes_of(blocks));
    if (written.ok()) part = *std::move(written);
  }
  absl::Status status = agree(mine);
  if (status.ok()) {
    absl::Status local;
    if (auto broken = copy(*save, part, local); !broken.ok()) return broken;
    status = agree(local);
  }
  // If peers are lost, the save is not removed, because the next attempt may need it.
  if (is_group_error(status)) return status;
  if (is_save_remover() && status.ok()) store_.remove_others(*save);
  if (is_save_remover() && !status.ok()) store_.remove(*save);
  return status;
}

void LocalCheckpoints::remove_saves() const {
  if (is_save_remover()) store_.remove_others("");
}

void LocalCheckpoints::remove() {
  if (agree(absl::OkStatus()).ok() && is_save_remover()) store_.remove_all();
}

}  // namespace muster::trainer
