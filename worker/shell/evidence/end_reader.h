// Reads in the background what ended ranks leave behind: the last lines of output, pages, and
// kernel messages. If a file system hangs, the report of the end lacks the evidence on it, but the
// event loop does not block.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/thread_pool.hpp>

#include "common/time/time.h"
#include "worker/core/event.h"
#include "worker/gpus/gpu_watch.h"
#include "worker/network/network_watch.h"
#include "worker/shell/ranks/launcher.h"
#include "worker/stacks/cpu_time.h"
#include "worker/stacks/process_evidence.h"

namespace muster::worker {

// A rank that has been reaped, and data about it from its start.
struct EndedRank {
  // the event to complete: `cause`, `figures` and `evidence` are not set yet; `last_step` has the
  // last known value; `detail` only if it is not the newest line of the output
  RankReaped event;
  int32_t local_rank = -1;  // -1: unknown to the core
  pid_t pid = 0;
  bool was_killed = false;  // this worker killed the rank
  OomKillCounter oom_kills;
  int64_t oom_kills_before = -1;  // OomKillHistory::count_before() the end
  std::optional<CpuTime> cpu_time{};
  std::vector<int32_t> gpus{};  // the rank's GPUs, as indices into GpuReport::gpus
  Instant started{};
  // the rank runs a user's program, whose exit codes have no defined meaning
  bool of_program = false;
};

// The sources of evidence and the time limit.
struct EndReaderOptions {
  std::string kernel_log;
  bool foreign_pids = false;       // has_foreign_pids(): the log's pids are not those of the ranks
  const GpuWatch* gpus = nullptr;  // must outlive the reader; null: there are no GPUs
  // must outlive the reader; null: network devices are not watched
  const NetworkWatch* network = nullptr;
  // Time limit for reading the evidence. The coordinator must receive the report of an end within a
  // second, with or without evidence.
  Duration deadline = std::chrono::milliseconds(500);
};

// Completes the events of ended ranks. Called on the event loop's thread only. This thread also
// runs `on_read`, once for each rank, in the order of read(), except for ranks whose reads were
// late.
class EndReader {
 public:
  // Requires a `launcher` that outlives the reader.
  EndReader(boost::asio::io_context& loop, const Launcher& launcher, EndReaderOptions options,
            std::function<void(RankReaped)> on_read);
  // Blocks until pending reads are done.
  ~EndReader();
  EndReader(const EndReader&) = delete;
  EndReader& operator=(const EndReader&) = delete;

  // Reads the evidence of ranks that were reaped together; reads the kernel's log once for all
  // these ranks.
  void read(std::vector<EndedRank> ranks);

 private:
  struct Batch;
  // `reaped`: the time of the ranks' ends.
  void read_now(std::vector<EndedRank>& ranks, Instant reaped) const;

  boost::asio::io_context& loop_;
  const Launcher& launcher_;
  const EndReaderOptions options_;
  const std::function<void(RankReaped)> on_read_;
  boost::asio::thread_pool thread_{1};
};

}  // namespace muster::worker
