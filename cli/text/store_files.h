// Inputs and results of the text commands in object stores (common/objects/object_store.h).
#pragma once

#include <atomic>
#include <string>

#include <absl/status/statusor.h>

#include "common/objects/object_cache.h"

namespace muster::cli {

// Returns `path`, or the local copy of an address. Prints what it fetches to stderr. `stop` ends it
// (Cancelled).
absl::StatusOr<std::string> local_input(const std::string& path, const std::atomic<bool>& stop);

// Returns events that print to stderr that `path` is fetched, and end the transfer on `stop`. Both
// must outlive them.
FetchEvents fetch_events(const std::string& path, const std::atomic<bool>& stop);

// Returns `status`, or Cancelled for an error after `stop`.
absl::Status or_cancelled(const absl::Status& status, const std::atomic<bool>& stop);

// Uploads a command's result from local_output_folder(url) to `url`, if this is an address. The
// files that make it complete, such as index.json or manifest.json, are removed there first and
// uploaded last, so that no reader receives a mixture. `stop` ends it (Cancelled).
absl::Status upload_result(const std::string& url, const std::atomic<bool>& stop);

}  // namespace muster::cli
