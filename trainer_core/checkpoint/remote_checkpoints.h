// A checkpoint directory in an object store, seen from one rank:
//
//   <url>/OWNER                             as of owner.h, without a lock
//   <url>/<step>/<file>-<save>.safetensors  <save>: a hash of job, attempt and incarnation
//   <url>/<step>/manifest.json              written last: with it the checkpoint exists
//
// A store has no rename. Files of a save have names that no other save uses, so that an orphan of
// an earlier attempt changes no file of a later one, and a folder without a manifest is an
// incomplete save, which is never restored. A removal begins with the manifest.
//
// Ranks write their files to a staging folder of their node and upload them; restored files are
// fetched to a folder beside it, each only by the ranks that need it.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <absl/status/statusor.h>

#include "common/objects/object_cache.h"
#include "common/objects/object_store.h"
#include "trainer_core/checkpoint/manifest.h"
#include "trainer_core/checkpoint/owner.h"

namespace muster::trainer {

// A save repeats failed transfers for so long: training continues meanwhile, and an outage of a
// store seldom lasts longer.
constexpr Duration kUploadWithin = std::chrono::hours(6);
// The same once training waits for the save: at its end, and when it leaves.
constexpr Duration kLastUploadWithin = std::chrono::minutes(3);
// At the start of an attempt.
constexpr Duration kRestoreWithin = std::chrono::minutes(5);

// One thread at a time, except hurry().
class RemoteCheckpoints {
 public:
  // The limit of repetitions: that of the start, or that of a save.
  enum class Patience { kStart, kSave };

  // `tool` runs rclone; tests replace it.
  explicit RemoteCheckpoints(std::string url, StoreTool tool = run_child);
  RemoteCheckpoints(const RemoteCheckpoints&) = delete;
  RemoteCheckpoints& operator=(const RemoteCheckpoints&) = delete;

  // Makes the limit of the start kRestoreWithin, for ranks; before, it is store_wait(), for users
  // who wait for a command.
  void outlast_outage() { start_within_ = kRestoreWithin; }

  // Limits repetitions to kLastUploadWithin. Any thread.
  void hurry() { hurried_ = true; }

  // Makes fetches call `on_fetch` while bytes arrive, or another process of this node fetches, and
  // uploads call `on_upload` with the bytes sent so far while they run, both about every 200 ms on
  // the calling thread.
  void show_transfers(std::function<void()> on_fetch,
                      std::function<void(uint64_t sent)> on_upload) {
    on_fetch_ = std::move(on_fetch);
    on_upload_ = std::move(on_upload);
  }

  std::string url_of(int64_t step) const;
  const std::string& staging() const { return staging_; }

  // Creates the staging folder.
  absl::Status make_staging() const;
  // Writes and removes an object. OK shows that the credentials, the bucket and the network permit
  // saves.
  absl::Status probe() const;

  // Writes OWNER. The newest process owns the directory. Returns Aborted if a higher attempt of the
  // same job wrote OWNER after this process had begun.
  absl::Status take(const CheckpointOwner& owner);
  const CheckpointOwner& owner() const { return owner_; }
  // Returns the content of OWNER; empty if there is none.
  absl::StatusOr<std::string> owner_text() const;
  // As DirectoryFence::check(). Becomes the owner again under the same conditions.
  absl::Status check_owner(Patience patience = Patience::kSave) const;

  // Reads which checkpoints exist; returns their steps, ascending.
  absl::StatusOr<std::vector<int64_t>> list(Patience patience = Patience::kStart);
  // Fetches the manifest of a step. DataLoss if list() has found other sizes of its files than the
  // manifest states. The manifest's folder is the local one.
  absl::StatusOr<Manifest> fetch_manifest(int64_t step);
  // The same for another rank than the leader, whose manifest has `checksum`.
  absl::StatusOr<Manifest> fetch_same_manifest(int64_t step, const std::string& checksum);
  // Fetches the files to the manifest's folder.
  absl::Status fetch_files(const Manifest& manifest, const std::vector<std::string>& names) const;
  // Removes what was fetched.
  void drop_fetched() const;

  // Gives this rank's files in the local `folder` the names of `save`, which no other save has.
  static absl::Status rename_files(const std::string& folder, const std::string& save,
                                   std::vector<StoredFile>& files);
  // Compares the last list() with the manifest's files: DataLoss names one that is missing, or its
  // size. OK without a list().
  absl::Status check_object_sizes(const Manifest& manifest) const;
  // Uploads files of a local folder, and removes them there, also after an error. Leaves the
  // folder, which the ranks of a node share.
  absl::Status upload(const std::string& folder, const std::vector<std::string>& names,
                      int64_t step) const;
  // Removes incomplete saves. Requires that no save is in progress.
  absl::Status remove_incomplete();
  // Removes the complete checkpoints older than the `keep` newest complete ones up to `newest`,
  // except that of the best evaluation, unless `keep` is negative, and incomplete saves before
  // `newest`. Neither counts nor removes damaged checkpoints and objects that no save writes.
  absl::Status remove_old(int64_t newest, int64_t keep);

 private:
  // A manifest that was read, without boxes and config, and its object then.
  struct KnownManifest {
    StoredObject object;
    Manifest manifest;
  };

  ObjectStore store(Patience patience) const;
  absl::Status check_not_late(const CheckpointOwner& owner) const;
  absl::Status write_owner(Patience patience) const;
  absl::StatusOr<std::string> read_owner(Patience patience) const;

  // Removes the manifest, then the other files of a save.
  absl::Status remove(int64_t step, const std::vector<StoredObject>& objects);
  absl::StatusOr<Manifest> read_manifest_of(int64_t step) const;
  absl::StatusOr<bool> is_complete(int64_t step);

  const std::string url_;
  const StoreTool tool_;
  const std::string staging_;
  const std::string fetched_;
  CheckpointOwner owner_;
  std::string owner_text_;
  // The objects that list() has found, by step; nullopt before it.
  std::optional<std::map<int64_t, std::vector<StoredObject>>> objects_;
  std::map<int64_t, KnownManifest> manifests_;
  Duration start_within_ = store_wait();
  std::atomic<bool> hurried_ = false;
  std::function<void()> on_fetch_;
  std::function<void(uint64_t sent)> on_upload_;
};

}  // namespace muster::trainer
