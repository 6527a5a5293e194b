// Lists the regular files of a folder of text, with an account of every other entry.
#pragma once

#include <string>
#include <vector>

#include <absl/status/statusor.h>

#include "trainer_core/text/input_files.h"

namespace muster::trainer {

// Returns the paths of the regular files at and below `root` in natural order, without hidden
// names. Symbolic links are followed; each file and folder is listed once, by its inode: an entry
// that is no link comes before a link, and then the first one counts. Appends every other entry to
// `ignored`. NotFound names a link whose target is missing; InvalidArgument a link that leads to
// itself, and a folder with more than kInputFilesMax entries; otherwise the system's error.
absl::StatusOr<std::vector<std::string>> walk_folder(const std::string& root,
                                                     std::vector<IgnoredEntry>& ignored);

}  // namespace muster::trainer
