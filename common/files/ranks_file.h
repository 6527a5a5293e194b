// Files in folders that belong to ranks.
#pragma once

#include <fcntl.h>

#include <string>

namespace muster {

// Opens a file of a rank, and returns its descriptor; -1 with errno if that fails. A rank may run
// as another user, who could put a link to a file of this process's user, or a pipe, in the file's
// place. Fails with EPERM unless it is a regular file with one name. A process of root has the
// rights of the folder's owner meanwhile. Does not wait for the writer of a pipe. `access`: an
// access mode such as O_RDONLY, and further flags.
int open_ranks_file(const std::string& path, int access = O_RDONLY);

}  // namespace muster
