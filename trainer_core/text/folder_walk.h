// Lists the regular files of a folder of text, with an account of every other entry.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include <absl/status/statusor.h>

#include "trainer_core/text/input_files.h"

namespace muster::trainer {

// Returns the paths of the regular files at and below `root` in natural order, without hidden
// names. Symbolic links are followed; each file and folder is listed once, by its inode. Of several
// paths to a file, the first one counts whose name `is_readable` accepts, otherwise the first one;
// entries that are no links come before links. Appends every other entry to `ignored`. NotFound
// names a link whose target is missing; InvalidArgument a link that leads to itself, and a folder
// with more than kInputFilesMax entries; otherwise the system's error.
absl::StatusOr<std::vector<std::string>> walk_folder(
    const std::string& root, const std::function<bool(const std::string&)>& is_readable,
    std::vector<IgnoredEntry>& ignored);

}  // namespace muster::trainer
