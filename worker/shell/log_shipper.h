// Follows the ranks' log files and ships new content to the coordinator's stream.
//
// Each file is read from the acknowledged offset: after a reconnection, unacknowledged data is sent
// again with its offset, so that the receiver detects duplicates. Nothing is buffered here: the
// file is the buffer. Not thread-safe: called on the event loop's thread only.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>

#include "worker/core/rank.h"

namespace muster::worker {

struct LogChunk {
  RankKey key;
  uint64_t offset = 0;
  std::string data;  // at most daemon::kLogChunkBytesMax
};

class LogShipper {
 public:
  // Accepts a chunk, or returns false if the stream is full; the owner then calls pump() once there
  // is room.
  using Sink = std::function<bool(LogChunk&&)>;
  // Called after a chunk was shipped, or after a log's end was reached.
  using Progress = std::function<void()>;
  // Called once for each finish().
  using Settled = std::function<void(const RankKey&)>;

  LogShipper(boost::asio::io_context& context, Sink sink, Progress progress, Settled settled);
  ~LogShipper();
  LogShipper(const LogShipper&) = delete;
  LogShipper& operator=(const LogShipper&) = delete;

  void add(const RankKey& key, const std::string& path);
  // Declares that the log is complete. Follows it until all of it is acknowledged, possibly at
  // once, then closes it. An unknown rank settles immediately.
  void finish(const RankKey& key);

  // Closes the log at once, also with unacknowledged content.
  void forget(const RankKey& key);

  void on_connected();     // ships from the acknowledged offset
  void on_disconnected();  // unacknowledged content may be lost
  void on_ack(const RankKey& key, uint64_t offset);

  // Ships while there is new content and the sink accepts it. `retry` (with each heartbeat)
  // also reads logs without a change notification, for file systems that send none, and logs that
  // the coordinator could not accept.
  void pump(bool retry = false);

  // Returns whether the sink has received everything that the rank's log holds now. True for an
  // unknown rank.
  bool is_drained(const RankKey& key);

 private:
  struct Tail {
    int fd = -1;
    int watch = -1;
    uint64_t sent = 0;
    uint64_t acked = 0;
    bool changed = true;
    // the coordinator could not accept a chunk: one chunk per heartbeat retries
    bool stalled = false;
    bool finished = false;
  };

  void wait_for_changes();
  void read_changes();
  bool ship_one(const RankKey& key, Tail& tail);
  void settle(const RankKey& key);

  Sink sink_;
  Progress progress_;
  Settled settled_;
  boost::asio::posix::stream_descriptor inotify_;
  boost::asio::steady_timer batch_;
  std::map<RankKey, Tail> tails_;
  std::map<int, RankKey> by_watch_;
  bool connected_ = false;
};

}  // namespace muster::worker
