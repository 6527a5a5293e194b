#include "coordinator/shell/logs/log_times.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

namespace muster::coordinator {
namespace {

static_assert(sizeof(LogTime) == 16);

class Records {
 public:
  Records(const std::string& path, int flags) : fd_(open(path.c_str(), flags | O_CLOEXEC, 0600)) {
    struct stat info {};
    if (fd_ >= 0 && fstat(fd_, &info) == 0)
      count_ = static_cast<uint64_t>(info.st_size) / sizeof(LogTime);
  }
  ~Records() {
    if (fd_ >= 0) close(fd_);
  }
  Records(const Records&) = delete;
  Records& operator=(const Records&) = delete;

  bool is_open() const { return fd_ >= 0; }
  uint64_t count() const { return count_; }

  // Returns up to `count` records from record number `first` on.
  std::vector<LogTime> read(uint64_t first, size_t count) const {
    std::vector<LogTime> times(std::min<uint64_t>(count, count_ - std::min(first, count_)));
    const ssize_t got = pread(fd_, times.data(), times.size() * sizeof(LogTime),
                              static_cast<off_t>(first * sizeof(LogTime)));
    times.resize(got < 0 ? 0 : static_cast<size_t>(got) / sizeof(LogTime));
    return times;
  }
  // Appends a record. A missing or partial record counts as absent.
  void append(LogTime time) const {
    [[maybe_unused]] const ssize_t written =
        pwrite(fd_, &time, sizeof(time), static_cast<off_t>(count_ * sizeof(LogTime)));
  }

 private:
  int fd_;
  uint64_t count_ = 0;
};

}  // namespace

void add_log_time(const std::string& path, LogTimesEnd& end, LogTime time) {
  const auto is_too_much = [&] {
    return end.count > 0 && (time.offset <= end.last.offset ||
                             end.count >= kLogTimesFree + time.offset / kLogBytesPerTime);
  };
  if (end.known && is_too_much()) return;
  const Records records(path, O_RDWR | O_CREAT);
  if (!records.is_open()) return;
  if (!end.known) {
    end = {.known = true, .count = records.count(), .last = {}};
    const std::vector<LogTime> last = records.read(end.count - std::min<uint64_t>(1, end.count), 1);
    if (!last.empty()) end.last = last.front();
    if (is_too_much()) return;
  }
  if (end.count > 0) time.unix_ns = std::max(time.unix_ns, end.last.unix_ns);
  records.append(time);
  end = {.known = true, .count = end.count + 1, .last = time};
}

std::vector<LogTime> read_log_times(const std::string& path, uint64_t offset, size_t count_max) {
  const Records records(path, O_RDONLY);
  if (!records.is_open()) return {};
  // Finds the first record that begins after `offset`.
  uint64_t low = 0;
  uint64_t high = records.count();
  while (low < high) {
    const uint64_t middle = low + (high - low) / 2;
    const std::vector<LogTime> one = records.read(middle, 1);
    if (one.empty()) return {};
    if (one.front().offset <= offset)
      low = middle + 1;
    else
      high = middle;
  }
  // Returns the records from the previous record on.
  return records.read(low == 0 ? 0 : low - 1, count_max);
}

}  // namespace muster::coordinator
