// Replaces the folder of a checkpoint so that a complete checkpoint always has the final name, and
// syncs the renames so that they are durable.
#pragma once

#include <string>
#include <vector>

#include <absl/status/statusor.h>

namespace muster::trainer {

// Prefix of the old checkpoint while it is replaced (".aside-<step>"), on file systems that cannot
// exchange two names atomically.
constexpr char kAsidePrefix[] = ".aside-";

// How an existing folder is replaced: by an exchange of both names if the file system supports it,
// or by a rename of the old folder (kAside).
enum class Replace { kExchange, kAside };

// Renames the folder `temporary` to <directory>/<name>, and removes the folder that had this name.
// After an error the old folder is unchanged. A file of that name stays, and is an error. kAside is
// used by tests, to emulate file systems that cannot exchange two names.
absl::Status publish_folder(const std::string& temporary, const std::string& directory,
                            const std::string& name, Replace how = Replace::kExchange);

// Completes replacements by kAside that a process has not finished: renames each aside folder
// (names.h) to its original name if no folder has that name, and removes it otherwise. Leaves a
// directory that cannot be read unchanged.
void restore_asides(const std::string& directory);

// Returns whether the path is there and no folder, such as a file whose name is a number.
bool is_other_file(const std::string& path);

// Returns the names in a directory, sorted. Returns NotFound if it does not exist; errors contain
// the directory.
absl::StatusOr<std::vector<std::string>> list_directory(const std::string& directory);

// Makes a directory and its parents if needed, and syncs every new name.
absl::Status make_synced_folders(const std::string& directory);

}  // namespace muster::trainer
