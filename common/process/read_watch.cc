#include "common/process/read_watch.h"

#include <fcntl.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <string>

#include <absl/cleanup/cleanup.h>
#include <absl/strings/str_cat.h>

namespace muster {
namespace {

// Returns a new inotify descriptor that reports reads of `fd`; -1 on failure.
int events_of(int fd) {
  const int events = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
  if (events < 0) return -1;
  const std::string path = absl::StrCat("/proc/self/fd/", fd);
  if (inotify_add_watch(events, path.c_str(), IN_ACCESS) >= 0) return events;
  close(events);
  return -1;
}

// Whether events are waiting; reads the first ones.
bool has_events(int events) {
  alignas(inotify_event) std::array<char, 4096> buffer;
  ssize_t got = 0;
  do {
    got = read(events, buffer.data(), buffer.size());
  } while (got < 0 && errno == EINTR);
  return got > 0;
}

// Some kernels report no reads of pipes, or not those of splice(), which cat and pv use: a pipe of
// our own shows it.
bool kernel_reports_reads() {
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC | O_NONBLOCK) != 0) return false;
  const absl::Cleanup close_ends = [&] {
    close(ends[0]);
    close(ends[1]);
  };
  const int events = events_of(ends[0]);
  const int nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC);
  const absl::Cleanup close_others = [&] {
    if (events >= 0) close(events);
    if (nowhere >= 0) close(nowhere);
  };
  if (events < 0 || nowhere < 0 || write(ends[1], "ab", 2) != 2 || has_events(events)) return false;
  char byte = 0;
  if (read(ends[0], &byte, 1) != 1 || !has_events(events)) return false;
  return splice(ends[0], nullptr, nowhere, nullptr, 1, 0) == 1 && has_events(events);
}

}  // namespace

std::unique_ptr<ReadWatch> ReadWatch::start(int fd) {
  struct stat info {};
  if (fstat(fd, &info) != 0 || !S_ISFIFO(info.st_mode) || !kernel_reports_reads()) return nullptr;
  const int events = events_of(fd);
  return events < 0 ? nullptr : std::unique_ptr<ReadWatch>(new ReadWatch(events));
}

ReadWatch::~ReadWatch() { close(events_); }

bool ReadWatch::was_read() const {
  was_read_ = was_read_ || has_events(events_);
  return was_read_;
}

}  // namespace muster
