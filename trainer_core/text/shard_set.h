// The shards of a data set while it is written. Their names differ from those of an earlier data
// set in the same folder, so that the earlier one remains complete until the index lists the new
// shards.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <absl/status/statusor.h>

#include "trainer_core/data/shard.h"
#include "trainer_core/data/token_index.h"
#include "trainer_core/data/tokenizer.h"
#include "trainer_core/text/journal.h"

namespace muster::trainer {

// The maximum number of documents of a shard. Memory holds the ends of all its documents until the
// shard is complete.
constexpr uint64_t kShardDocumentsMax = 16 << 20;

// A data set that is being written. Not thread-safe. A lock on the folder ensures that only one
// process writes to it.
class ShardSet {
 public:
  struct Options {
    std::string folder;
    uint64_t shard_tokens = 0;  // a shard ends with the chunk that reaches this number
    bool restart = false;       // discard the shards of an interrupted run
    bool has_weights = false;   // tokens have weights (shard.h)
  };

  // Creates the folder if needed. Verifies and reuses the finished shards of an interrupted run
  // with the same identity, up to the first damaged one. Returns FailedPrecondition if the identity
  // differs (journal.h), or if another process is writing to the folder.
  static absl::StatusOr<std::unique_ptr<ShardSet>> open(const Options& options,
                                                        const Tokenizer& tokenizer,
                                                        const RunIdentity& run);
  ~ShardSet();
  ShardSet(const ShardSet&) = delete;
  ShardSet& operator=(const ShardSet&) = delete;

  // Return the progress so far. After open(), this is the progress of the interrupted run: the
  // number of its shards that are reused, the input position after them, and their counts.
  size_t reused_shards() const { return kept_shards_; }
  Position position() const { return position_; }
  uint64_t file_position() const { return file_position_; }
  const DocumentCounts& counts() const { return counts_; }
  // By the input's index in the run's identity.
  const std::vector<InputCounts>& inputs() const { return inputs_; }

  // Appends the documents of the next chunk. Requires that the status of `chunk` is OK.
  absl::Status append(const EncodedChunk& chunk);
  // Completes the last shard and returns the index. Requires at least one document.
  absl::StatusOr<TokenIndex> finish();
  // Writes the index that finish() returned, then removes the journal and the shards of other data
  // sets.
  absl::Status publish(const TokenIndex& index);
  size_t finished_shards() const { return journal_content_.shards.size(); }
  // Removes unfinished files after an error, and the journal if no shard is finished. The set must
  // not be used afterwards.
  void abandon();

 private:
  ShardSet(const Options& options, const Tokenizer& tokenizer, int lock);

  absl::Status begin(const RunIdentity& run);
  void keep(const std::vector<FinishedShard>& shards);
  bool is_whole(const FinishedShard& shard);
  void count(std::span<const int32_t> ids);
  absl::Status close_shard();
  std::string path_of(const std::string& name) const;

  const Options options_;
  const int lock_;  // owned file descriptor of the folder, which holds the lock
  std::vector<uint64_t> token_counts_;
  TokenIndex index_;
  Journal::Content journal_content_;
  std::unique_ptr<Journal> journal_;
  std::unique_ptr<ShardWriter> writer_;
  size_t kept_shards_ = 0;
  Position position_;
  uint64_t file_position_ = 0;
  DocumentCounts counts_;
  std::vector<InputCounts> inputs_;
  std::map<size_t, InputCounts> new_inputs_;  // since the last finished shard
};

}  // namespace muster::trainer
