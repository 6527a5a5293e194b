// Reads in the background what ended ranks leave behind: the last lines of output, pages, and
// kernel messages. If a file system hangs, the report lacks its evidence, but the event loop does
// not block.
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
  int32_t local_rank = -1;  // -1: unknown to the core
  pid_t pid = 0;
  bool was_killed = false;  // by this worker
  OomKillCounter oom_kills;
  int64_t oom_kills_before = -1;  // count at its start; -1: unavailable
  std::vector<int32_t> gpus{};    // its own, as indices into GpuReport::gpus
  Instant started{};
  bool of_program = false;  // a foreign program: its exit codes have no defined meaning
};

struct EndReaderOptions {
  std::string kernel_log;
  const GpuWatch* gpus = nullptr;  // outlives the reader; null: none
  // The coordinator must learn of a death within a second, with or without evidence.
  Duration deadline = std::chrono::milliseconds(500);
};

// Called on the event loop's thread only, which also runs `on_read`: once for each rank, in order,
// except for late ones.
class EndReader {
 public:
  // Requires a `launcher` that outlives the reader.
  EndReader(boost::asio::io_context& loop, const Launcher& launcher, EndReaderOptions options,
            std::function<void(RankReaped)> on_read);
  // Blocks until pending reads are done.
  ~EndReader();
  EndReader(const EndReader&) = delete;
  EndReader& operator=(const EndReader&) = delete;

  // Reads ranks that were reaped together; reads the kernel's log once for all of them.
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
