// Objects of S3, Google Cloud Storage and stores that speak their protocols, through rclone
// (docs/decisions). Every call starts a child process, which gets the credentials from the places
// that the providers' own tools use: variables, files of the home directory, the instance's role.
// Nothing secret is on its command line.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <absl/status/statusor.h>

#include "common/objects/object_url.h"
#include "common/process/run_child.h"
#include "common/time/time.h"

namespace muster {

struct StoredObject {
  std::string name;  // relative to the address that was listed
  uint64_t bytes = 0;
  std::string changed;  // the store's time of the last change

  friend bool operator==(const StoredObject&, const StoredObject&) = default;
};

// How long a command waits for a store that does not answer: $MUSTER_STORE_WAIT_SECONDS, or this.
constexpr Duration kStoreWait = std::chrono::seconds(60);
constexpr Duration kStoreSilence = std::chrono::seconds(5);
Duration store_wait();

// Prints a warning to standard error.
void print_store_warning(const std::string& text);

// The repetition of a call after a failure.
struct StoreRetry {
  // From the beginning of a call, or, for transfers, from the first failure without progress. A
  // call whose first attempt works for longer than this has the limit from its first failure.
  // Errors that a repetition cannot cure (credentials, a missing bucket) end it at once.
  Duration within = store_wait();
  // Repeats refused access, too: an administrator may cure it while training continues.
  bool also_permanent = false;
  // The limit once is_hurried() returns true.
  Duration within_hurry = std::chrono::minutes(2);
  std::function<bool()> is_hurried = nullptr;
  // Signals to our process group do not end a transfer; the end of the calling thread does.
  bool survives_signals = false;
  // Gets a sentence at the first failure, then about every kStoreWarningInterval, and once after
  // `silence` without an answer. Called on the calling thread.
  std::function<void(const std::string&)> warn = print_store_warning;
  Duration silence = kStoreSilence;
};

constexpr Duration kStoreWarningInterval = std::chrono::minutes(1);

// Runs one command; run_child() unless a test replaces it.
using StoreTool = std::function<absl::StatusOr<ChildEnd>(const std::vector<std::string>& words,
                                                         const ChildOptions& options)>;
// Called while a transfer runs; false ends it (Cancelled).
using StoreWatch = std::function<bool()>;
// Receives the bytes that an upload has sent, about every kStoreStatsInterval. A repetition after a
// failure begins at 0.
using StoreMeter = std::function<void(uint64_t bytes)>;
constexpr Duration kStoreStatsInterval = std::chrono::seconds(2);

// Errors name the address and the cause:
//   FailedPrecondition  rclone is missing; the message has the command that installs it
//   PermissionDenied    credentials; the message names the places that were searched
//   NotFound            no such bucket or object
//   InvalidArgument     the address
//   ResourceExhausted   the local disk is full
//   Unknown             the store, or the network; it may pass. Names the endpoint if it cannot be
//                       reached. Never Unavailable or
//                       DeadlineExceeded, which callers take for lost peers
//   Cancelled           by the watch
// Thread-safe. Calls block.
class ObjectStore {
 public:
  explicit ObjectStore(StoreRetry retry = {}, StoreTool tool = run_child)
      : retry_(std::move(retry)), tool_(std::move(tool)) {}

  // Returns all objects below `url`, sorted by name; the object itself, under the last component of
  // its key, if `url` is one. Empty if there is none in the bucket.
  absl::StatusOr<std::vector<StoredObject>> list(const std::string& url) const;
  // Returns the names directly below `url`, sorted; folders end with '/'.
  absl::StatusOr<std::vector<std::string>> list_names(const std::string& url) const;
  // Returns the content of an object of at most `bytes_max` bytes. NotFound also if it is empty.
  absl::StatusOr<std::string> read(const std::string& url, size_t bytes_max) const;
  // Copies the objects `names` below `url` to the same names below `folder`, and verifies their
  // checksums where the store has them. A call after a killed one continues with the first
  // incomplete object. A missing object is no error: the caller compares the files.
  absl::Status download(const std::string& url, const std::vector<std::string>& names,
                        const std::string& folder, const StoreWatch& watch = nullptr) const;
  // Copies the files `names` of `folder` to objects below `url`. An object exists only when it is
  // complete. Objects that are there with the same content are not sent again.
  absl::Status upload(const std::string& folder, const std::vector<std::string>& names,
                      const std::string& url, const StoreWatch& watch = nullptr,
                      const StoreMeter& meter = nullptr) const;
  // Removes an object, which need not exist.
  absl::Status remove(const std::string& url) const;
  // Removes the objects `names` below `url`, which need not exist.
  absl::Status remove_files(const std::string& url, const std::vector<std::string>& names) const;

 private:
  // The limits of a call.
  struct Limits {
    Duration within;                             // limit of one attempt
    size_t output_bytes_max = size_t{64} << 20;  // 300,000 objects with names of 200 bytes
    StoreMeter meter = nullptr;                  // reports the bytes of a copy
  };

  absl::StatusOr<std::string> call(const ObjectUrl& url, const std::vector<std::string>& words,
                                   const Limits& limits, const StoreWatch& watch = nullptr) const;
  // Sets `advanced` if a copy has copied an object, or if another call was not ended by a limit.
  absl::StatusOr<std::string> try_call(const ObjectUrl& url, const std::vector<std::string>& words,
                                       const Limits& limits, const StoreWatch& watch,
                                       Instant first_answer_by, bool& advanced) const;
  absl::Status copy(const std::vector<std::string>& names, const std::string& from,
                    const std::string& to, const ObjectUrl& url, const StoreWatch& watch,
                    const StoreMeter& meter) const;

  StoreRetry retry_;
  StoreTool tool_;
};

// The environment of rclone: ours and the definition of its remote. For tests.
std::vector<std::string> store_environment(const ObjectUrl& url);

}  // namespace muster
