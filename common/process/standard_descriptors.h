// Protection for programs started with standard input, output or error closed (`muster run … >&-
// 2>&-`).
#pragma once

namespace muster {

// Occupies the free descriptors among 0 to 2, so that no file or socket that the program opens
// later has one of these numbers and receives messages for the user. Reads from these descriptors
// return end-of-file, and writes fail with EBADF as before. Call this function first in main().
void hold_standard_descriptors();

}  // namespace muster
