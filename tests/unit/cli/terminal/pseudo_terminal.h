// A terminal without a window. The test can read the output written to fd(), and change the
// terminal's width.
#pragma once

#include <fcntl.h>
#include <poll.h>
#include <pty.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "cli/terminal/terminal.h"

namespace muster::cli {

class PseudoTerminal {
 public:
  explicit PseudoTerminal(int width) {
    setenv("TERM", "xterm", 1);
    openpty(&reader_, &fd_, nullptr, nullptr, nullptr);
    termios mode{};
    tcgetattr(fd_, &mode);
    cfmakeraw(&mode);
    tcsetattr(fd_, TCSANOW, &mode);
    resize(width);
  }
  ~PseudoTerminal() {
    close(fd_);
    close(reader_);
  }
  PseudoTerminal(const PseudoTerminal&) = delete;
  PseudoTerminal& operator=(const PseudoTerminal&) = delete;

  int fd() const { return fd_; }
  void resize(int width) const {
    winsize size{};
    size.ws_row = 24;
    size.ws_col = static_cast<unsigned short>(width);
    ioctl(fd_, TIOCSWINSZ, &size);
  }

  // Returns the output since the last call. Waits for its first byte, for at most kPatienceMs.
  std::string text() const {
    constexpr int kPatienceMs = 20'000;
    std::string text;
    pollfd readable{.fd = reader_, .events = POLLIN, .revents = 0};
    for (int wait = kPatienceMs; poll(&readable, 1, wait) > 0; wait = 0) {
      char buffer[4096];
      const ssize_t got = read(reader_, buffer, sizeof(buffer));
      if (got <= 0) break;
      text.append(buffer, static_cast<size_t>(got));
    }
    return text;
  }

  // Returns the successive contents of the redrawn line in `text`.
  static std::vector<std::string> drawn(const std::string& text) {
    constexpr std::string_view kClear = "\r\x1b[2K";
    std::vector<std::string> lines;
    for (size_t at = text.find(kClear); at != std::string::npos;) {
      const size_t next = text.find(kClear, at + kClear.size());
      lines.push_back(text.substr(at + kClear.size(), next - at - kClear.size()));
      at = next;
    }
    return lines;
  }

 private:
  int reader_ = -1, fd_ = -1;
};

}  // namespace muster::cli
