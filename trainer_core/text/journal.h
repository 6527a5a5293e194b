// What a run of `muster tokenize` has finished, so that the next one can go on after a kill. `.tokenize.journal` in the output
// folder, one JSON object a line: first what the run was told to do, then each shard when it is on the disk, with the position in
// the input behind it. The file is there while a data set is unfinished, and the last thing to go when its index is written.
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

// What decides the bytes of the shards. Two runs that agree in it make the same.
struct RunIdentity {
  // By the names that a user knows: "--documents" → "lines".
  std::map<std::string, std::string> settings;
  std::vector<InputFile> inputs;
};

// The one setting that may be another when none of the finished shards had a bad document.
constexpr char kBadDocumentsSetting[] = "--bad-documents";

struct FinishedShard {
  std::string file;
  ShardHeader header;
  Position end;
  uint64_t file_position = 0;  // of the file in `end`, on the disk
  DocumentCounts counts;       // of all shards up to this one
};

// One owner, who holds the folder's lock.
class Journal {
 public:
  struct Content {
    uint64_t generation = 0;  // of the shards' names
    RunIdentity run;
    std::vector<FinishedShard> shards;
  };

  // None where there is no journal, or none that was begun properly. A line that was torn by a crash, and what is behind it,
  // does not count.
  static absl::StatusOr<std::optional<Content>> read(const std::string& folder);
  // Replaces the journal by one with this content, which may have shards.
  static absl::StatusOr<std::unique_ptr<Journal>> begin(const std::string& folder,
                                                        const Content& content);
  static void remove(const std::string& folder);
  ~Journal();
  Journal(const Journal&) = delete;
  Journal& operator=(const Journal&) = delete;

  // The shard counts when this returns, also after a power loss.
  absl::Status append(const FinishedShard& shard);

 private:
  Journal(std::string path, int fd) : path_(std::move(path)), fd_(fd) {}

  const std::string path_;
  const int fd_;  // owned
};

// FailedPrecondition with a sentence that says what is not as it was in the interrupted run.
absl::Status check_same_run(const Journal::Content& earlier, const RunIdentity& now);

}  // namespace muster::trainer
