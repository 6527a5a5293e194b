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

#include <spdlog/spdlog.h>

#include "daemon/limits.h"

namespace muster::worker {
namespace {

// Output after a change is shipped together, so that a rank with a line for each step of less than
// a millisecond does not wake the worker, the coordinator and its readers for each line. The first
// line after a pause is shipped at once.
constexpr auto kBatchTime = std::chrono::milliseconds(10);

}  // namespace

LogShipper::LogShipper(boost::asio::io_context& context, Sink sink, Progress progress,
                       Settled settled)
    : sink_(std::move(sink)),
      progress_(std::move(progress)),
      settled_(std::move(settled)),
      inotify_(context),
      batch_(context) {
  const int fd = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
  if (fd < 0) {
    spdlog::warn("no inotify: {}; logs are read at each heartbeat", std::strerror(errno));
    return;
  }
  inotify_.assign(fd);
  wait_for_changes();
}

LogShipper::~LogShipper() {
  for (const auto& [key, tail] : tails_) close(tail.fd);
}

void LogShipper::add(const RankKey& key, const std::string& path) {
  forget(key);
  Tail tail;
  tail.fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (tail.fd < 0) {
    spdlog::warn("{}: its log cannot be shipped: {}: {}", to_string(key), path,
                 std::strerror(errno));
    return;
  }
  if (inotify_.is_open()) {
    tail.watch = inotify_add_watch(inotify_.native_handle(), path.c_str(), IN_MODIFY);
    if (tail.watch >= 0) by_watch_[tail.watch] = key;
  }
  tails_[key] = tail;
}

void LogShipper::finish(const RankKey& key) {
  const auto found = tails_.find(key);
  if (found == tails_.end()) return settled_(key);
  found->second.finished = true;
  settle(key);
}

void LogShipper::settle(const RankKey& key) {
  const auto found = tails_.find(key);
  if (found == tails_.end() || !found->second.finished) return;
  struct stat info {};
  const bool readable = fstat(found->second.fd, &info) == 0;
  if (readable && found->second.acked < static_cast<uint64_t>(info.st_size)) return;
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
  close(found->second.fd);
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
  struct stat info {};
  if (fstat(tail.fd, &info) != 0) return;
  // The coordinator adds notices of its own, so its log may be longer than the file.
  offset = std::min(offset, static_cast<uint64_t>(info.st_size));
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
  if (retry) {
    for (auto& [key, tail] : tails_) {
      tail.changed = true;
      if (connected_ && tail.stalled && tail.sent == tail.acked) ship_one(key, tail);
    }
  }
  // Ships one chunk of each log at a time, so that one rank with much output does not block the
  // others.
  bool more = connected_;
  while (more) {
    more = false;
    for (auto& [key, tail] : tails_) {
      if (tail.changed && !tail.stalled) more = ship_one(key, tail) || more;
    }
  }
  progress_();
}

// Returns true if a chunk was shipped and more may follow.
bool LogShipper::ship_one(const RankKey& key, Tail& tail) {
  LogChunk chunk{key, tail.sent, std::string(daemon::kLogChunkBytesMax, '\0')};
  const ssize_t got =
      pread(tail.fd, chunk.data.data(), chunk.data.size(), static_cast<off_t>(tail.sent));
  if (got <= 0) {
    tail.changed = false;
    return false;
  }
  chunk.data.resize(static_cast<size_t>(got));
  if (!sink_(std::move(chunk))) return false;
  tail.sent += static_cast<uint64_t>(got);
  return true;
}

bool LogShipper::is_drained(const RankKey& key) {
  const auto found = tails_.find(key);
  if (found == tails_.end()) return true;
  struct stat info {};
  if (fstat(found->second.fd, &info) != 0) return true;
  return found->second.sent >= static_cast<uint64_t>(info.st_size);
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
