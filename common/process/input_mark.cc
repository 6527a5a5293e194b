#include "common/process/input_mark.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include <absl/strings/str_cat.h>
#include <absl/strings/strip.h>

#include "common/text/absl_view.h"
#include "common/text/canonical_number.h"

namespace muster {
namespace {

constexpr char kFileText[] = "file:";
constexpr char kStreamText[] = "stream";
constexpr char kUnreadStreamText[] = "unread-stream";
constexpr char kUnimportantText[] = "any";

// poll() does not report the end of a socket whose other side has only shut down its writing.
bool socket_has_ended(int fd) {
  char byte = 0;
  ssize_t got = 0;
  do {
    got = recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
  } while (got < 0 && errno == EINTR);
  return got == 0 || (got < 0 && errno != EAGAIN && errno != EWOULDBLOCK);
}

// Requires a pipe or a socket.
bool has_ended(int fd, mode_t mode) {
  if (S_ISSOCK(mode)) return socket_has_ended(fd);
  pollfd state{.fd = fd, .events = POLLIN, .revents = 0};
  poll(&state, 1, 0);
  // The writers are gone and nothing is left.
  return (state.revents & POLLIN) == 0 && (state.revents & (POLLHUP | POLLERR)) != 0;
}

}  // namespace

InputMark InputMark::of(int fd) {
  struct stat info {};
  if (fstat(fd, &info) != 0) return {Kind::kUnimportant, 0};
  if (S_ISREG(info.st_mode)) {
    const off_t position = lseek(fd, 0, SEEK_CUR);
    return {Kind::kFile, position < 0 ? 0 : position};
  }
  const bool is_stream = S_ISFIFO(info.st_mode) || S_ISSOCK(info.st_mode);
  const bool may_give = is_stream && !has_ended(fd, info.st_mode);
  return may_give ? InputMark(Kind::kStream, kUnread) : InputMark(Kind::kUnimportant, 0);
}

std::optional<InputMark> InputMark::parse(std::string_view text) {
  if (text == kStreamText) return InputMark(Kind::kStream, 0);
  if (text == kUnreadStreamText) return InputMark(Kind::kStream, kUnread);
  if (text == kUnimportantText) return InputMark(Kind::kUnimportant, 0);
  absl::string_view digits = av(text);
  if (!absl::ConsumePrefix(&digits, kFileText)) return std::nullopt;
  const auto position = canonical_number<int64_t>(sv(digits));
  if (!position || *position < 0) return std::nullopt;
  return InputMark(Kind::kFile, *position);
}

std::string InputMark::text() const {
  if (kind_ == Kind::kFile) return absl::StrCat(kFileText, value_);
  if (is_unread()) return kUnreadStreamText;
  return is_stream() ? kStreamText : kUnimportantText;
}

std::optional<int64_t> InputMark::position() const {
  return kind_ == Kind::kFile ? std::optional(value_) : std::nullopt;
}

bool InputMark::is_lost(int fd) const {
  struct stat info {};
  return is_stream() && fstat(fd, &info) == 0 && has_ended(fd, info.st_mode);
}

}  // namespace muster
