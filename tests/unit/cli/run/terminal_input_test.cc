#include "cli/run/terminal_input.h"

#include <poll.h>
#include <pty.h>
#include <unistd.h>

#include <string>

#include <gtest/gtest.h>

namespace muster::cli {
namespace {

// Returns what a rank reads at once; "end" at the end of the input, "nothing" after 20 s.
std::string read_as_rank(int fd) {
  constexpr int kPatienceMs = 20'000;
  pollfd readable{.fd = fd, .events = POLLIN, .revents = 0};
  if (poll(&readable, 1, kPatienceMs) != 1) return "nothing";
  char text[100];
  const ssize_t got = read(fd, text, sizeof(text));
  return got > 0 ? std::string(text, static_cast<size_t>(got)) : "end";
}

// As under `setsid` or in a container: nothing is in the foreground of such a terminal.
TEST(TerminalInput, ATerminalOfAnotherSessionIsReadToItsEnd) {
  constexpr char kEndOfInput = 4;  // Ctrl-D
  int window = -1, terminal = -1;
  ASSERT_EQ(openpty(&window, &terminal, nullptr, nullptr, nullptr), 0);
  ASSERT_LT(tcgetpgrp(terminal), 0) << "it does not control this process";
  const auto input = TerminalInput::start(terminal);
  ASSERT_TRUE(input.ok()) << input.status();
  ASSERT_EQ(write(window, "hello\n", 6), 6);
  EXPECT_EQ(read_as_rank((*input)->fd()), "hello\n");
  ASSERT_EQ(write(window, &kEndOfInput, 1), 1);
  EXPECT_EQ(read_as_rank((*input)->fd()), "end");
  close(terminal);
  close(window);
}

TEST(TerminalInput, AHangUpIsTheEnd) {
  int window = -1, terminal = -1;
  ASSERT_EQ(openpty(&window, &terminal, nullptr, nullptr, nullptr), 0);
  const auto input = TerminalInput::start(terminal);
  ASSERT_TRUE(input.ok()) << input.status();
  close(window);
  EXPECT_EQ(read_as_rank((*input)->fd()), "end");
  close(terminal);
}

}  // namespace
}  // namespace muster::cli
