// A checkpoint directory in an object store, seen from one rank:
//
//   <url>/OWNER                             as of owner.h, without a lock
//   <url>/<step>/<file>-<save>.safetensors  <save>: a hash of job, attempt and incarnation
//   <url>/<step>/manifest.json              written last: with it the checkpoint exists
//
// A store has no rename. Files of a save have names that no other save uses, so that an orphan of
// an earlier attempt changes no file of a later one, and a folder without a manifest is an
// incomplete save, which nobody restores. A removal begins with the manifest.
//
// Ranks write their files to a staging folder of their node and upload them; restored files are
// fetched to a folder beside it, each only by the ranks that need it.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <absl/status/statusor.h>

#include "common/object_cache.h"
#include "common/object_store.h"
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
  // How long a call repeats failures: as the start of an attempt does, or as a save.
  enum class Patience { kStart, kSave };

  explicit RemoteCheckpoints(std::string url);
  ~RemoteCheckpoints();
  RemoteCheckpoints(const RemoteCheckpoints&) = delete;
  RemoteCheckpoints& operator=(const RemoteCheckpoints&) = delete;

  // Limits repetitions to kLastUploadWithin. Any thread.
  void hurry() { hurried_ = true; }

  std::string url_of(int64_t step) const;
  const std::string& staging() const { return staging_; }

  // Creates the staging folder.
  absl::Status make_staging() const;
  // Writes and removes an object: credentials, bucket and network do.
  absl::Status probe() const;

  // Writes OWNER. The newest process owns the directory.
  absl::Status take(const CheckpointOwner& owner);
  const CheckpointOwner& owner() const { return owner_; }
  // Returns the content of OWNER; empty if there is none.
  absl::StatusOr<std::string> owner_text() const;
  // As DirectoryFence::check(). Waits for a store that is away, as a save does.
  absl::Status check_owner() const;

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
  // Compares list() with the manifest's files: DataLoss names one that is missing, or its size.
  absl::Status check_sizes(const Manifest& manifest) const;
  // Uploads files of a local folder, and removes them there, also after an error.
  absl::Status upload(const std::string& folder, const std::vector<std::string>& names,
                      int64_t step) const;
  // Removes a checkpoint, or the rest of an incomplete one.
  absl::Status remove(int64_t step) const;
  // Removes incomplete saves. Requires that no save is in progress.
  absl::Status remove_incomplete();
  // Removes the checkpoints older than the `keep` newest up to `newest`, unless `keep` is negative,
  // and incomplete saves before `newest`.
  absl::Status remove_old(int64_t newest, int64_t keep);

 private:
  ObjectStore store(Patience patience) const;
  absl::StatusOr<std::string> read_owner(Patience patience) const;

  const std::string url_;
  const std::string staging_;
  const std::string fetched_;
  CheckpointOwner owner_;
  std::string owner_text_;
  // The objects that list() has found, by step.
  std::map<int64_t, std::vector<StoredObject>> objects_;
  std::atomic<bool> hurried_ = false;
};

}  // namespace muster::trainer
