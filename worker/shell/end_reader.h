// Reads beside the event loop what ranks that have just ended leave behind: the last lines of their output, their pages, and what the kernel
// says. A file system that stands still costs the report its evidence, and the loop nothing.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/thread_pool.hpp>

#include "common/time.h"
#include "worker/core/event.h"
#include "worker/gpus/gpu_watch.h"
#include "worker/shell/launcher.h"
#include "worker/stacks/process_evidence.h"

namespace muster::worker {

struct EndedRank {
  RankReaped event;         // without its detail, cause and evidence
  int32_t local_rank = -1;  // -1: the core does not know it any more
  pid_t pid = 0;
  bool was_killed = false;  // by this worker
  OomKillCounter oom_kills;
  int64_t oom_kills_before = -1;  // when it was started; -1: the kernel does not tell
  std::vector<int32_t> gpus{};    // its own, into GpuReport::gpus
  Instant started{};
  bool of_program = false;  // whose exit codes have no meaning that we know
};

struct EndReaderOptions {
  std::string kernel_log;
  const GpuWatch* gpus = nullptr;  // outlives the reader; null: none
  // The coordinator is to hear of a death within a second, with evidence or without.
  Duration deadline = std::chrono::milliseconds(500);
};

// The event loop's thread calls everything, and is where `on_read` comes: once for each rank, in their order but for those that are late.
class EndReader {
 public:
  // `launcher` outlives the reader.
  EndReader(boost::asio::io_context& loop, const Launcher& launcher, EndReaderOptions options,
            std::function<void(RankReaped)> on_read);
  // Waits for what is being read.
  ~EndReader();
  EndReader(const EndReader&) = delete;
  EndReader& operator=(const EndReader&) = delete;

  // Ranks that were reaped together; the kernel's log is read once for them.
  void read(std::vector<EndedRank> ranks);

 private:
  struct Batch;
  void read_now(std::vector<EndedRank>& ranks) const;

  boost::asio::io_context& loop_;
  const Launcher& launcher_;
  const EndReaderOptions options_;
  const std::function<void(RankReaped)> on_read_;
  boost::asio::thread_pool thread_{1};
};

}  // namespace muster::worker
