// The shards of one data set while it is produced: in the output folder, under names that no other
// data set in it has, so that an earlier one stays whole until the index lists the new shards.
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

// Bounds the documents of a shard: their ends are held in memory until it is written.
constexpr uint64_t kShardDocumentsMax = 16 << 20;

// Has one owner. A folder has one ShardSet at a time, over all processes.
class ShardSet {
 public:
  struct Options {
    std::string folder;
    uint64_t shard_tokens = 0;
    bool restart = false;  // discard what an interrupted run has finished
  };

  // Creates the folder if needed. Shards that an interrupted run of the same identity has finished
  // are verified and kept, up to the first damaged one. FailedPrecondition: the identity differs
  // (journal.h), or another process is writing here.
  static absl::StatusOr<std::unique_ptr<ShardSet>> open(const Options& options,
                                                        const Tokenizer& tokenizer,
                                                        const RunIdentity& run);
  ~ShardSet();
  ShardSet(const ShardSet&) = delete;
  ShardSet& operator=(const ShardSet&) = delete;

  // The state kept from the interrupted run; zero, and the beginning of the input, without one.
  size_t reused_shards() const { return kept_shards_; }
  Position position() const { return position_; }
  uint64_t file_position() const { return file_position_; }
  const DocumentCounts& counts() const { return counts_; }
  // By the input's index in the run's identity.
  const std::vector<InputCounts>& inputs() const { return inputs_; }

  // Appends the next chunk. Requires: its status is OK.
  absl::Status append(const EncodedChunk& chunk);
  // Closes the last shard. Requires: at least one document.
  absl::StatusOr<TokenIndex> finish();
  // Publishes the index that finish() returned, and removes the files of other data sets.
  absl::Status publish(const TokenIndex& index);
  size_t finished_shards() const { return journal_content_.shards.size(); }
  // Called after an error: removes the traces of a run that has finished no shard.
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
  const int lock_;  // owned descriptor of the folder
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
