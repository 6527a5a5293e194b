// Local copies of objects of a store (object_store.h), for programs that map files into memory.
//
//   $MUSTER_OBJECT_CACHE, or <user's cache>/objects, or $TMPDIR/muster-objects-<uid>
//     <name>-<hash of the address>/
//       lock                      held by the process that fetches; others of this node wait for it
//       <hash of the listing>/    a generation: the objects as the store had them at one moment
//         .lock                   shared by the processes that use it
//         <names of the objects>
//         .part/                  of an incomplete transfer, which the next call continues
//
// A changed object makes another generation, so that no process sees a file change. Generations
// that no process uses are removed by the next fetch.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <absl/status/statusor.h>

#include "common/objects/object_store.h"

namespace muster {

// The folder of all copies, also of checkpoints on their way to a store. It need not exist.
std::string object_cache_folder();

// Returns <object_cache_folder()>/<name>-<hash>: a folder of this address of this store.
std::string folder_of_url(const std::string& root, const std::string& url);

// Returns the folder for what a run writes beside its checkpoints, such as logs: `output` itself,
// or, for an address, a folder of this user: <object_cache_folder()>/outputs/<name>-<hash>.
std::string local_output_folder(const std::string& output);

struct FetchEvents {
  // Called about every 200 ms while this process transfers `total` bytes, and at the end.
  std::function<void(uint64_t done, uint64_t total)> on_progress = nullptr;
  // Called once when another process of this node is found to fetch the same, and then about every
  // 200 ms with "".
  std::function<void(const std::string& folder)> on_wait = nullptr;
  // Called about every 200 ms during the transfer; true ends it (Cancelled).
  std::function<bool()> is_stopped = nullptr;
};

// Returns the path of a current local copy of `url`: a folder with all objects below it, or the
// file if it is an object. Fetches what is missing or has changed. The copy remains until this
// process ends. Blocks. Errors as of ObjectStore; NotFound if there is no object; ResourceExhausted
// states how much space is missing, before the transfer.
absl::StatusOr<std::string> fetch_to_cache(const ObjectStore& store, const std::string& url,
                                           const FetchEvents& events = {},
                                           const std::string& root = object_cache_folder());

// The same, without a transfer: nullopt if the copy is not current or incomplete. An error states
// that the store cannot be read or has no such object.
absl::StatusOr<std::optional<std::string>> find_in_cache(
    const ObjectStore& store, const std::string& url,
    const std::string& root = object_cache_folder());

// Makes `objects` of `url` files of `folder`, which must exist: complete under their names, or
// absent. Files with the right sizes stay. Several processes may call it for one folder: each
// object is transferred once. Errors as of fetch_to_cache.
absl::Status fetch_objects(const ObjectStore& store, const std::string& url,
                           const std::vector<StoredObject>& objects, const std::string& folder,
                           const FetchEvents& events = {});

}  // namespace muster
