#include "common/process/standard_descriptors.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>

#include <gtest/gtest.h>

namespace muster {
namespace {

// Runs `body` in a child process, whose descriptors may be closed. Returns 0 on success.
int in_child(int (*body)()) {
  const pid_t pid = fork();
  if (pid == 0) _exit(body());
  int status = 0;
  waitpid(pid, &status, 0);
  return status;
}

TEST(StandardDescriptors, ClosedDescriptorsAreOccupiedAndNotWritten) {
  EXPECT_EQ(in_child([] {
              for (int fd = 0; fd <= STDERR_FILENO; ++fd) close(fd);
              hold_standard_descriptors();
              char byte = 0;
              if (read(STDIN_FILENO, &byte, 1) != 0) return 1;
              for (const int fd : {STDOUT_FILENO, STDERR_FILENO})
                if (write(fd, "x", 1) != -1 || errno != EBADF) return 2;
              return open("/dev/null", O_RDONLY) > STDERR_FILENO ? 0 : 3;
            }),
            0);
}

TEST(StandardDescriptors, OpenDescriptorsStay) {
  EXPECT_EQ(in_child([] {
              int ends[2];
              if (pipe(ends) != 0 || dup2(ends[1], STDERR_FILENO) < 0) return 1;
              const int next = dup(ends[0]);
              close(next);
              close(STDOUT_FILENO);
              hold_standard_descriptors();
              if (write(STDOUT_FILENO, "x", 1) != -1 || write(STDERR_FILENO, "x", 1) != 1) return 2;
              return dup(ends[0]) == next ? 0 : 3;
            }),
            0);
}

}  // namespace
}  // namespace muster
