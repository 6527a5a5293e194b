// Serves dumps beside the event loop: reads stacks, pages, process states, ends of logs and kernel
// messages of this worker's ranks; resolves symbols; and serialises the messages, which may have
// megabytes. An unreadable rank delays neither the other ranks nor the loop.
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

#include "common/time.h"
#include "muster/v1/muster.pb.h"
#include "worker/core/action.h"
#include "worker/core/event.h"
#include "worker/shell/launcher.h"
#include "worker/shell/program_dumps.h"
#include "worker/shell/stack_tools.h"

namespace muster::worker {

// Called on the event loop's thread only, which also runs the callbacks.
class StackReader {
 public:
  struct Target {
    RankKey key;
    int32_t local_rank = 0;
    pid_t pid = 0;
  };
  struct Callbacks {
    std::function<void(StacksRead)> on_stacks;
    std::function<void(SymbolsRead)> on_symbols;
    std::function<void(uint64_t stream, v1::WorkerMessage)> on_message;
  };

  // Requires a `launcher` and `tools` that outlive the reader.
  StackReader(boost::asio::io_context& loop, const Launcher& launcher, StackTools& tools,
              std::string proc_root, Callbacks callbacks);
  // Blocks until current reads end, which stop() of the tools accelerates; drops reads that have
  // not begun.
  ~StackReader();
  StackReader(const StackReader&) = delete;
  StackReader& operator=(const StackReader&) = delete;

  // Requires `targets`: the ranks of `request`, alive at this moment. The deadline counts from the
  // start of the read: the number of concurrent dumps is bounded.
  void read(const ReadStacks& request, const std::vector<Target>& targets);
  // Requires `pid`: a rank of the launch, alive at this moment; 0: none is left. The deadline
  // counts from now, because the requester stops waiting; symbols that come too late stay empty.
  void symbolize(const ReadSymbols& request, pid_t pid);
  // Serialises `action`, SendStackReport or SendSymbols, and passes the message to on_message with
  // `stream`.
  template <class Action>
  void write(uint64_t stream, Action action);

 private:
  class Process;
  StacksRead read_now(const ReadStacks& request, const std::vector<Process>& processes);
  void request_dumps(const std::vector<Process>& processes);
  void retain_dumps(const std::vector<Process>& processes, Instant deadline,
                    std::vector<RankEvidence>& evidence);
  RankEvidence evidence_of(const Process& process) const;
  SymbolsRead symbolize_now(const ReadSymbols& request, pid_t pid, Instant deadline);

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
  boost::asio::thread_pool messages_thread_{1};  // separate: must not delay either of the others
};

}  // namespace muster::worker
