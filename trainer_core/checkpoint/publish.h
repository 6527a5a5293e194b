// Renames that keep a complete checkpoint under its number at every moment, and the syncs that make
// them durable.
#pragma once

#include <string>
#include <vector>

#include <absl/status/statusor.h>

namespace muster::trainer {

// ".aside-<step>": the old checkpoint while the new one is moved in, on file systems that cannot
// exchange two names atomically.
constexpr char kAsidePrefix[] = ".aside-";

enum class Replace { kExchange, kAside };

// Moves the folder `temporary` to <directory>/<name>, which may exist, and removes the old content.
// After an error the old content is unchanged. kAside emulates a file system that cannot exchange
// two names.
absl::Status publish_folder(const std::string& temporary, const std::string& directory,
                            const std::string& name, Replace how = Replace::kExchange);

// Restores every aside copy (names.h) whose original name is free, and removes the others: a
// process died between the two renames. Leaves a directory that cannot be read unchanged.
void restore_asides(const std::string& directory);

// Returns the names in a directory, sorted. NotFound if it does not exist; errors name it.
absl::StatusOr<std::vector<std::string>> list_directory(const std::string& directory);

// Makes the directory and its parents, and syncs every new name.
absl::Status make_folders(const std::string& directory);

}  // namespace muster::trainer
