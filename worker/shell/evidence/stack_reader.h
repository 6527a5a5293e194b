// Collects dumps on threads beside the event loop: reads the stacks, progress pages, process
// states, last log lines and kernel messages of this worker's ranks; resolves symbols; and
// serialises the messages, which may have megabytes. An unreadable rank delays neither the other
// ranks nor the loop.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/thread_pool.hpp>

#include "common/time/time.h"
#include "muster/v1/muster.pb.h"
#include "worker/core/action.h"
#include "worker/core/event.h"
#include "worker/shell/evidence/stack_tools.h"
#include "worker/shell/programs/program_dumps.h"
#include "worker/shell/ranks/launcher.h"

namespace muster::worker {

// Reads dumps for one worker. Called on the event loop's thread only, which also runs the
// callbacks.
class StackReader {
 public:
  // A rank to read, and its process.
  struct Target {
    RankKey key;
    int32_t local_rank = 0;
    pid_t pid = 0;
  };
  struct Callbacks {
    std::function<void(StackResults)> on_stacks;
    std::function<void(SymbolResults)> on_symbols;
    std::function<void(uint64_t stream, v1::WorkerMessage)> on_message;
  };

  // Requires a `launcher` and `tools` that outlive the reader.
  StackReader(boost::asio::io_context& loop, const Launcher& launcher, StackTools& tools,
              std::string proc_root, Callbacks callbacks);
  // Drops reads that have not begun, and blocks until current reads end. Call stop() of the tools
  // first, so that they end soon.
  ~StackReader();
  StackReader(const StackReader&) = delete;
  StackReader& operator=(const StackReader&) = delete;

  // Starts a read; on_stacks receives its result. Requires that `targets` are the ranks of
  // `request` that are alive now. The deadline counts from the time when a thread starts the read,
  // not from now; the wait before is short, because the number of concurrent dumps is bounded.
  void read(const ReadStacks& request, const std::vector<Target>& targets);
  // Starts the resolution of the request's addresses; on_symbols receives its result. Requires that
  // `pid` is a rank of the launch that is alive now, or 0 if there is none. The deadline counts
  // from now, because the coordinator stops waiting; symbols that are not resolved by then stay
  // empty.
  void symbolize(const ReadSymbols& request, pid_t pid);
  // Serialises `action` (SendStackReport or SendSymbols) on a thread, then calls on_message with
  // `stream` and the message.
  template <class Action>
  void write(uint64_t stream, Action action);

 private:
  class Process;
  StackResults read_now(const ReadStacks& request, const std::vector<Process>& processes);
  void request_dumps(const std::vector<Process>& processes);
  void retain_dumps(const std::vector<Process>& processes, Instant deadline,
                    std::vector<RankEvidence>& evidence);
  RankEvidence evidence_of(const Process& process) const;
  SymbolResults symbolize_now(const ReadSymbols& request, pid_t pid, Instant deadline);

  boost::asio::io_context& loop_;
  const Launcher& launcher_;
  StackTools& tools_;
  const std::string proc_root_;
  const Callbacks callbacks_;
  std::mutex asked_mutex_;
  std::map<RankKey, RequestedDumps> requested_;  // ranks whose program dumps were requested
  boost::asio::thread_pool stacks_threads_;
  boost::asio::thread_pool symbols_thread_{
      1};  // separate: a slow file system must not delay stacks
  // separate: serialising must not delay stacks or symbols
  boost::asio::thread_pool messages_thread_{1};
};

}  // namespace muster::worker
