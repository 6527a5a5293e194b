// Protection for programs started with standard input, output or error closed (`muster run … >&-
// 2>&-`).
#pragma once

namespace muster {

// Occupies the free descriptors among 0 to 2, so that no file or socket of the program gets one of
// them and receives messages for the user. Reads from them return end-of-file, writes fail with
// EBADF as before. Call first in main().
void hold_standard_descriptors();

}  // namespace muster
