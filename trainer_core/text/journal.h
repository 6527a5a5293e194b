// Stores the progress of a run of `muster tokenize`, so that a later run can resume if the process
// is killed. The file `.tokenize.journal` in the output folder has one JSON object per line: the
// first has the settings of the run, and each later one a shard that is on disk and the input
// position after it. The file exists while the data set is unfinished; it is removed last, after
// the index is written.
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
  // The value of each option, by the option's name: "--documents" → "lines".
  std::map<std::string, std::string> settings;
  std::vector<InputFile> inputs;
};

// The only setting that may differ if none of the finished shards had a bad document.
constexpr char kBadDocumentsSetting[] = "--bad-documents";

// A shard that is on disk.
struct FinishedShard {
  std::string file;
  ShardHeader header;
  Position end;                // input position after the shard
  uint64_t file_position = 0;  // bytes of the file of `end` that were consumed on disk
  DocumentCounts counts;       // the counts of all shards up to and including this one
  // The counts that this shard adds to those of its input files, by the file's index.
  std::map<size_t, InputCounts> inputs = {};
};

// An open journal. Its owner holds the lock of the folder. Not thread-safe.
class Journal {
 public:
  // The contents of a journal.
  struct Content {
    uint64_t generation = 0;  // the generation in the names of the shards (token_index.h)
    RunIdentity run;
    std::vector<FinishedShard> shards;
  };

  // Reads the journal of a folder. Returns nullopt if there is none, or if its first line is
  // incomplete. Ignores a line that a crash has cut off, and everything after it.
  static absl::StatusOr<std::optional<Content>> read(const std::string& folder);
  // Writes a new journal with `content`, which may already have shards; replaces an earlier
  // journal.
  static absl::StatusOr<std::unique_ptr<Journal>> begin(const std::string& folder,
                                                        const Content& content);
  // Removes the journal of a folder, if there is one.
  static void remove(const std::string& folder);
  ~Journal();
  Journal(const Journal&) = delete;
  Journal& operator=(const Journal&) = delete;

  // Appends a shard and syncs the file, so that the entry survives a power loss once the call has
  // returned.
  absl::Status append(const FinishedShard& shard);

 private:
  Journal(std::string path, int fd) : path_(std::move(path)), fd_(fd) {}

  const std::string path_;
  const int fd_;  // owned
};

// Checks that an interrupted run can be resumed with the settings and inputs of `now`. Returns
// FailedPrecondition with the first difference.
absl::Status check_same_run(const Journal::Content& earlier, const RunIdentity& now);

}  // namespace muster::trainer
