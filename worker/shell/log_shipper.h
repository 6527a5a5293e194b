// Follows the log files of the ranks and hands what is new to the coordinator's stream.
//
// A file is read from where the coordinator has acknowledged it: after a reconnection what may have been lost is
// sent again, with its offset, so that the receiver can tell. Nothing is buffered here: the file is the buffer.
// Not thread-safe: the event loop's thread calls everything.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>

#include "worker/core/rank.h"

namespace muster::worker {

struct LogChunk {
  RankKey key;
  uint64_t offset = 0;
  std::string data;  // at most daemon::kLogChunkBytesMax
};

class LogShipper {
 public:
  // Takes a chunk, or returns false when the stream has no room now; then pump() is called when it has.
  using Sink = std::function<bool(LogChunk&&)>;
  // Called after something was shipped, or a log was found to be at its end.
  using Progress = std::function<void()>;
  // Called once for each finish().
  using Settled = std::function<void(const RankKey&)>;

  LogShipper(boost::asio::io_context& context, Sink sink, Progress progress, Settled settled);
  ~LogShipper();
  LogShipper(const LogShipper&) = delete;
  LogShipper& operator=(const LogShipper&) = delete;

  void add(const RankKey& key, const std::string& path);
  // Nothing more will be written: follows the log until the whole of it is acknowledged, which may be now, and lets go
  // of it. An unknown rank's is settled.
  void finish(const RankKey& key);

  // Lets go of the log at once, whatever of it is not acknowledged.
  void forget(const RankKey& key);

  void on_connected();     // ships from what is acknowledged
  void on_disconnected();  // what is not acknowledged may be lost
  void on_ack(const RankKey& key, uint64_t offset);

  // Ships while there is something new and the sink takes it. `look_again`, with each heartbeat: also the logs of which
  // no change was noticed, for file systems whose changes are not notified, and those that the coordinator could not take.
  void pump(bool look_again = false);

  // Everything that the rank's log holds now has been handed to the sink. True for an unknown rank.
  bool is_drained(const RankKey& key);

 private:
  struct Tail {
    int fd = -1;
    int watch = -1;
    uint64_t sent = 0;
    uint64_t acked = 0;
    bool changed = true;
    bool stalled =
        false;  // the coordinator could not take what came: one chunk per heartbeat asks again
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
  std::map<RankKey, Tail> tails_;
  std::map<int, RankKey> by_watch_;
  bool connected_ = false;
};

}  // namespace muster::worker
