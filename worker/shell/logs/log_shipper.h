// Follows the ranks' log files and sends new content to the coordinator's stream.
//
// The coordinator acknowledges offsets in each file. After a reconnection, the shipper reads each
// file again from its acknowledged offset and sends the data with the offset, so that the
// coordinator detects duplicates. Nothing is buffered in memory: the file is the buffer. Called on
// the event loop's thread only.
//
// A thread beside the loop reads the files, at most one chunk of each log at a time, so a slow disk
// does not delay heartbeats.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/thread_pool.hpp>

#include "common/time/time.h"
#include "worker/core/rank.h"

namespace muster::worker {

// Consecutive bytes of one rank's log.
struct LogChunk {
  RankKey key;
  uint64_t offset = 0;
  std::string data;  // at most daemon::kLogChunkBytesMax
};

// Sends the logs of all ranks of a worker.
class LogShipper {
 public:
  // Accepts a chunk and returns true, or returns false if the stream is full; the owner then calls
  // pump() once the stream has room.
  using Sink = std::function<bool(LogChunk&&)>;
  // Called after a chunk was shipped, or after a log's end was reached.
  using Progress = std::function<void()>;
  // Called once for each finish(), when the coordinator has acknowledged the complete log.
  using Settled = std::function<void(const RankKey&)>;

  LogShipper(boost::asio::io_context& context, Sink sink, Progress progress, Settled settled);
  ~LogShipper();
  LogShipper(const LogShipper&) = delete;
  LogShipper& operator=(const LogShipper&) = delete;

  // Follows the rank's log file at `path` from its beginning.
  void add(const RankKey& key, const std::string& path);
  // Declares that the log is complete. When all of it is acknowledged, closes the log and calls
  // Settled. For an unknown rank, calls Settled immediately.
  void finish(const RankKey& key);

  // Closes the log at once, even if content is unacknowledged.
  void forget(const RankKey& key);

  void on_connected();     // starts to send from the acknowledged offsets
  void on_disconnected();  // stops sending; unacknowledged content may be lost
  // Records that the coordinator has received the first `offset` bytes of the log.
  void on_ack(const RankKey& key, uint64_t offset);

  // Sends while there is new content and the sink accepts it. With `retry`, which the owner sets
  // once per heartbeat, also reads logs without a change notification, because some file systems
  // send none, and logs that the coordinator could not accept before.
  void pump(bool retry = false);

  // Returns the number of the last call of pump(true).
  uint64_t last_pump() const { return pumps_; }
  // Returns whether the sink has received everything that the rank's log held at the call of
  // pump(true) with this number; true for an unknown rank, and for a log that cannot be read.
  bool is_drained(const RankKey& key, uint64_t pump) const;

 private:
  class File;
  struct Tail {
    std::shared_ptr<const File> file;
    int watch = -1;
    uint64_t sent = 0;
    uint64_t acked = 0;
    uint64_t size = 0;  // the file's size when it was last read
    bool changed = true;
    // the coordinator could not accept a chunk; one chunk per heartbeat is tried again
    bool stalled = false;
    bool finished = false;
    bool complete = false;    // `size` is final: the file was read after finish()
    uint64_t drained = 0;     // the newest pump whose content the sink has received
    Instant reading_since{};  // the begin of the read in progress; zero: none
  };
  struct Read;

  void wait_for_changes();
  void read_changes();
  void request_chunk(const RankKey& key, Tail& tail);
  void on_read(const RankKey& key, Read&& read);
  void settle(const RankKey& key);

  Sink sink_;
  Progress progress_;
  Settled settled_;
  boost::asio::posix::stream_descriptor inotify_;
  boost::asio::steady_timer batch_;
  std::map<RankKey, Tail> tails_;
  std::map<int, RankKey> by_watch_;
  bool connected_ = false;
  uint64_t pumps_ = 1;  // calls of pump(true)
  boost::asio::io_context& loop_;
  // last member: its reads end before the members that their results use are destroyed
  boost::asio::thread_pool thread_{1};
};

}  // namespace muster::worker
