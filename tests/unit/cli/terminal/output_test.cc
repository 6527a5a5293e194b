#include "cli/terminal/output.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>
#include <thread>

#include <gtest/gtest.h>

#include "tests/unit/cli/terminal/captured_fd.h"
#include "tests/unit/cli/terminal/pseudo_terminal.h"

namespace muster::cli {
namespace {

// Far more than pipes, sockets and terminals hold.
const std::string kMuch(8 << 20, 'x');

struct Pair {
  int reader, writer;
};

Pair make_pipe() {
  int ends[2];
  return pipe2(ends, O_CLOEXEC) == 0 ? Pair{ends[0], ends[1]} : Pair{-1, -1};
}

Pair make_sockets() {
  int ends[2];
  return socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0 ? Pair{ends[0], ends[1]}
                                                                       : Pair{-1, -1};
}

// A write without a reader ends after hurry(), and the stream's flags stay unchanged for other
// users.
void expect_to_leave(int fd) {
  const int flags = fcntl(fd, F_GETFL);
  Output output(fd);
  bool was_written = true;
  std::thread writer([&] { was_written = output.write(kMuch); });
  output.hurry();
  writer.join();
  EXPECT_FALSE(was_written);
  EXPECT_FALSE(output.write("more"));
  EXPECT_EQ(fcntl(fd, F_GETFL), flags);
}

TEST(Output, AStalledReaderIsAbandonedInAHurry) {
  for (const Pair pair : {make_pipe(), make_sockets()}) {
    expect_to_leave(pair.writer);
    close(pair.writer);
    close(pair.reader);
  }
  const PseudoTerminal terminal(80);
  expect_to_leave(terminal.fd());
}

TEST(Output, AStoppedTerminalIsAbandonedInAHurry) {
  const PseudoTerminal terminal(80);
  ASSERT_EQ(tcflow(terminal.fd(), TCOOFF), 0);  // Ctrl-S
  expect_to_leave(terminal.fd());
  tcflow(terminal.fd(), TCOON);
}

TEST(Output, AnActiveReaderGetsEverythingInAHurry) {
  for (const Pair pair : {make_pipe(), make_sockets()}) {
    size_t got = 0;
    std::thread reader([&] {
      std::string buffer(64 << 10, ' ');
      for (ssize_t bytes = 1; bytes > 0 && got < kMuch.size(); got += static_cast<size_t>(bytes)) {
        bytes = read(pair.reader, buffer.data(), buffer.size());
      }
    });
    {
      Output output(pair.writer);
      output.hurry();
      EXPECT_TRUE(output.write(kMuch));
    }
    close(pair.writer);
    reader.join();
    EXPECT_EQ(got, kMuch.size());
    close(pair.reader);
  }
  const CapturedFd file;
  EXPECT_TRUE(Output(file.fd()).write("to a file"));
  EXPECT_EQ(file.text(), "to a file");
}

TEST(Output, AClosedReaderIsDetected) {
  signal(SIGPIPE, SIG_IGN);
  const Pair pair = make_pipe();
  close(pair.reader);
  Output output(pair.writer);
  EXPECT_FALSE(output.write("line\n"));
  close(pair.writer);
}

}  // namespace
}  // namespace muster::cli
