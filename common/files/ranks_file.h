// Files in folders that belong to ranks.
#pragma once

#include <fcntl.h>

#include <string>

namespace muster {

// Opens a file of a rank, and returns its descriptor; -1 with errno if that fails. A rank may put a
// pipe in the file's place: fails with EPERM unless it is a regular file, and does not wait for the
// writer of a pipe. For a process of root, the folder may belong to another user, who could put a
// link to a secret there: opens the file with the rights of that user, and fails with ELOOP for a
// symbolic link and with EPERM for a file with several names. `access`: an access mode such as
// O_RDONLY, and further flags.
int open_ranks_file(const std::string& path, int access = O_RDONLY);

}  // namespace muster
