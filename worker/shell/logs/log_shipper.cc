#include "worker/shell/logs/log_shipper.h"

#include <fcntl.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <utility>

#include <absl/strings/str_cat.h>
#include <boost/asio/post.hpp>
#include <spdlog/spdlog.h>

#include "common/files/ranks_file.h"
#include "daemon/limits.h"

namespace muster::worker {
namespace {

// Output after a change is shipped together, so that a rank with a line for each step of less than
// a millisecond does not wake the worker, the coordinator and its readers for each line. The first
// line after a pause is shipped at once.
constexpr auto kBatchTime = std::chrono::milliseconds(10);
// The time of a read after which reports no longer wait for the log: the coordinator counts a rank
// whose end is not reported as running.
constexpr Duration kReadBudget = std::chrono::seconds(5);

}  // namespace

// An open log.
class LogShipper::File {
 public:
  explicit File(int fd) : fd_(fd) {}
  ~File() { close(fd_); }
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  int fd() const { return fd_; }

 private:
  const int fd_;
};

// A read of a log: a chunk from `offset` on, or only the file's size.
struct LogShipper::Read {
  std::shared_ptr<const File> file;
  uint64_t offset = 0;
  size_t bytes_max = 0;
  bool is_final = false;  // begun after finish()
  uint64_t pump = 0;      // the newest call of pump(true) when it began
  // results
  std::string data{};
  uint64_t size = 0;
  bool failed = false;

  void run() {
    struct stat info {};
    failed = fstat(file->fd(), &info) != 0;
    if (failed) return;
    size = static_cast<uint64_t>(info.st_size);
    if (bytes_max == 0 || size <= offset) return;
    data.resize(std::min<uint64_t>(bytes_max, size - offset));
    const ssize_t got = pread(file->fd(), data.data(), data.size(), static_cast<off_t>(offset));
    failed = got < 0;
    data.resize(static_cast<size_t>(std::max<ssize_t>(got, 0)));
    if (data.empty()) size = offset;  // truncated since
  }
};

LogShipper::LogShipper(boost::asio::io_context& context, Sink sink, Progress progress,
                       Settled settled)
    : sink_(std::move(sink)),
      progress_(std::move(progress)),
      settled_(std::move(settled)),
      inotify_(context),
      batch_(context),
      loop_(context) {
  const int fd = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
  if (fd < 0) {
    spdlog::warn("no inotify: {}; logs are read at each heartbeat", std::strerror(errno));
    return;
  }
  inotify_.assign(fd);
  wait_for_changes();
}

LogShipper::~LogShipper() {
  thread_.stop();  // reads that have not begun are omitted
  thread_.join();
}

void LogShipper::add(const RankKey& key, const std::string& path) {
  forget(key);
  Tail tail;
  const int fd = open_ranks_file(path);
  if (fd < 0) {
    spdlog::warn("{}: its log cannot be shipped: {}: {}", to_string(key), path,
                 std::strerror(errno));
    return;
  }
  tail.file = std::make_shared<const File>(fd);
  if (inotify_.is_open()) {
    // The file that is open, whatever is at its path by now.
    tail.watch = inotify_add_watch(inotify_.native_handle(),
                                   absl::StrCat("/proc/self/fd/", fd).c_str(), IN_MODIFY);
    if (tail.watch >= 0) by_watch_[tail.watch] = key;
  }
  tails_[key] = std::move(tail);
}

void LogShipper::finish(const RankKey& key) {
  const auto found = tails_.find(key);
  if (found == tails_.end()) return settled_(key);
  found->second.finished = true;
  request_chunk(key, found->second);
}

void LogShipper::settle(const RankKey& key) {
  const auto found = tails_.find(key);
  if (found == tails_.end()) return;
  const Tail& tail = found->second;
  if (!tail.complete || tail.acked < tail.size) return;
  forget(key);
  settled_(key);
}

void LogShipper::forget(const RankKey& key) {
  const auto found = tails_.find(key);
  if (found == tails_.end()) return;
  if (found->second.watch >= 0) {
    inotify_rm_watch(inotify_.native_handle(), found->second.watch);
    by_watch_.erase(found->second.watch);
  }
  tails_.erase(found);
}

void LogShipper::on_connected() {
  connected_ = true;
  pump(true);
}

void LogShipper::on_disconnected() {
  connected_ = false;
  for (auto& [key, tail] : tails_) {
    tail.sent = tail.acked;
    tail.stalled = false;
  }
}

void LogShipper::on_ack(const RankKey& key, uint64_t offset) {
  const auto found = tails_.find(key);
  if (found == tails_.end()) return;
  Tail& tail = found->second;
  // The coordinator adds notices of its own, so its log may be longer than the file.
  offset = std::min(offset, tail.size);
  // Below the acknowledged offset: a restarted coordinator had not stored it. Above the sent
  // offset: it has data from an earlier stream.
  if (offset < tail.acked || offset > tail.sent) {
    tail.sent = offset;
    tail.changed = true;
  } else if (offset == tail.acked && offset < tail.sent) {
    // The coordinator could not store the chunk, or lacks the data before it. Retries at the next
    // heartbeat.
    tail.sent = offset;
    tail.stalled = true;
  }
  if (offset > tail.acked) tail.stalled = false;
  tail.acked = offset;
  pump();
  settle(key);
}

void LogShipper::pump(bool retry) {
  pumps_ += retry ? 1 : 0;
  for (auto& [key, tail] : tails_) {
    tail.changed |= retry;
    const bool may_send = !tail.stalled || (retry && tail.sent == tail.acked);
    if (connected_ && tail.changed && may_send) request_chunk(key, tail);
  }
  progress_();
}

// Reads the next chunk. Without a connection, reads only the size. Does nothing while a read of the
// log is in progress: its result starts the next one.
void LogShipper::request_chunk(const RankKey& key, Tail& tail) {
  if (tail.reading_since != Instant{}) return;
  tail.reading_since = monotonic_now();
  tail.changed = false;
  Read read{tail.file, tail.sent, connected_ ? daemon::kLogChunkBytesMax : 0, tail.finished,
            pumps_};
  boost::asio::post(thread_, [this, key, read = std::move(read)]() mutable {
    read.run();
    boost::asio::post(
        loop_, [this, key, read = std::move(read)]() mutable { on_read(key, std::move(read)); });
  });
}

void LogShipper::on_read(const RankKey& key, Read&& read) {
  const auto found = tails_.find(key);
  if (found == tails_.end() || found->second.file != read.file) return;
  Tail& tail = found->second;
  tail.reading_since = Instant{};
  if (read.failed) {  // tried again at the next heartbeat
    tail.drained = read.pump;
    return progress_();
  }
  tail.size = read.size;
  tail.complete |= read.is_final;
  const bool is_next = connected_ && read.bytes_max > 0 && read.offset == tail.sent;
  const uint64_t end = read.offset + read.data.size();
  const bool has_shipped =
      is_next && (read.data.empty() || sink_({key, read.offset, std::move(read.data)}));
  if (has_shipped) {
    tail.sent = end;
    if (end >= read.size) tail.drained = read.pump;
  }
  // A full sink calls pump() once it has room.
  tail.changed |= !has_shipped || end < read.size;
  const bool was_current = is_next || !connected_;
  if ((has_shipped || !was_current) && tail.changed && !tail.stalled) request_chunk(key, tail);
  if (tail.finished && !tail.complete) request_chunk(key, tail);
  progress_();
  settle(key);
}

bool LogShipper::is_drained(const RankKey& key, uint64_t pump) const {
  const auto found = tails_.find(key);
  if (found == tails_.end() || found->second.drained >= pump) return true;
  const Instant since = found->second.reading_since;
  return since != Instant{} && monotonic_now() - since > kReadBudget;
}

void LogShipper::wait_for_changes() {
  inotify_.async_wait(boost::asio::posix::stream_descriptor::wait_read,
                      [this](const boost::system::error_code& error) {
                        if (error) return;
                        read_changes();
                        pump();
                        batch_.expires_after(kBatchTime);
                        batch_.async_wait([this](const boost::system::error_code& ended) {
                          if (!ended) wait_for_changes();
                        });
                      });
}

void LogShipper::read_changes() {
  alignas(inotify_event) std::array<char, 4096> buffer{};
  ssize_t got = 0;
  while ((got = read(inotify_.native_handle(), buffer.data(), buffer.size())) > 0) {
    for (size_t at = 0; at < static_cast<size_t>(got);) {
      inotify_event event{};
      std::memcpy(&event, &buffer.at(at), sizeof(event));
      at += sizeof(event) + event.len;
      // An overflow of the kernel's queue has no watch: then any log may have changed.
      const auto key = by_watch_.find(event.wd);
      for (auto& [rank, tail] : tails_) {
        const bool meant =
            (event.mask & IN_Q_OVERFLOW) != 0 || (key != by_watch_.end() && key->second == rank);
        tail.changed = tail.changed || meant;
      }
    }
  }
}

}  // namespace muster::worker
