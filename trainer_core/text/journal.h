// The progress of a run of `muster tokenize`, so that the next run can resume after a kill. The
// file `.tokenize.journal` in the output folder has one JSON object per line: first the run's
// settings, then each shard once it is on the disk, with the input position after it. The file
// exists while a data set is unfinished, and is removed last, after its index is written.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <absl/status/statusor.h>

#include "trainer_core/data/shard.h"
#include "trainer_core/text/chunk.h"
#include "trainer_core/text/encode.h"
#include "trainer_core/text/input_files.h"

namespace muster::trainer {

constexpr char kJournalFile[] = ".tokenize.journal";

// The settings that determine the bytes of the shards. Two runs with equal identities produce equal
// shards.
struct RunIdentity {
  // By the names of the options: "--documents" → "lines".
  std::map<std::string, std::string> settings;
  std::vector<InputFile> inputs;
};

// The only setting that may differ if none of the finished shards had a bad document.
constexpr char kBadDocumentsSetting[] = "--bad-documents";

struct FinishedShard {
  std::string file;
  ShardHeader header;
  Position end;
  uint64_t file_position = 0;  // in the file of `end`, on the disk
  DocumentCounts counts;       // of all shards up to this one
  // Since the shard before, by the file's index: what this shard adds to the account of its files.
  std::map<size_t, InputCounts> inputs = {};
};

// Has one owner, which holds the folder's lock. Not thread-safe.
class Journal {
 public:
  struct Content {
    uint64_t generation = 0;  // of the shards' names
    RunIdentity run;
    std::vector<FinishedShard> shards;
  };

  // Returns nullopt if there is no journal, or none with a complete first line. A line that was
  // torn by a crash, and everything after it, is ignored.
  static absl::StatusOr<std::optional<Content>> read(const std::string& folder);
  // Replaces the journal by one with this content, which may include shards.
  static absl::StatusOr<std::unique_ptr<Journal>> begin(const std::string& folder,
                                                        const Content& content);
  static void remove(const std::string& folder);
  ~Journal();
  Journal(const Journal&) = delete;
  Journal& operator=(const Journal&) = delete;

  // Appends a shard. It is durable on return, also after a power loss.
  absl::Status append(const FinishedShard& shard);

 private:
  Journal(std::string path, int fd) : path_(std::move(path)), fd_(fd) {}

  const std::string path_;
  const int fd_;  // owned
};

// Returns FailedPrecondition if the runs differ; the message names the difference.
absl::Status check_same_run(const Journal::Content& earlier, const RunIdentity& now);

}  // namespace muster::trainer
