#include "common/process/standard_descriptors.h"

#include <fcntl.h>
#include <unistd.h>

namespace muster {

void hold_standard_descriptors() {
  // Each open() returns the lowest free descriptor.
  int fd = open("/dev/null", O_RDONLY);
  while (fd >= 0 && fd <= STDERR_FILENO) fd = open("/dev/null", O_RDONLY);
  if (fd > STDERR_FILENO) close(fd);
}

}  // namespace muster
