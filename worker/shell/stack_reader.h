// Reads what a dump wants beside the event loop: stacks, pages, process states, ends of logs and kernel messages of this worker's ranks,
// and names of places in modules; and makes the messages that tell of it, which may be megabytes. A rank that cannot be read costs the
// others nothing, and the loop nothing at all.
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

// The event loop's thread calls everything, and is where the callbacks come.
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

  // `launcher` and `tools` outlive the reader.
  StackReader(boost::asio::io_context& loop, const Launcher& launcher, StackTools& tools,
              std::string proc_root, Callbacks callbacks);
  // Waits for what is being read, which a stop() of the tools makes short; what has not begun is dropped.
  ~StackReader();
  StackReader(const StackReader&) = delete;
  StackReader& operator=(const StackReader&) = delete;

  // `targets`: the ranks of `request`, alive at this moment. Its deadline counts from when they are looked at: several dumps are read at
  // once, but not any number.
  void read(const ReadStacks& request, const std::vector<Target>& targets);
  // `pid`: of a rank of the launch, alive at this moment; 0: there is none any more. Its deadline counts from now, because who asks
  // waits no longer; what comes too late has no names.
  void symbolize(const ReadSymbols& request, pid_t pid);
  // Makes the message of `action`, SendStackReport or SendSymbols, for on_message. `stream`: handed through.
  template <class Action>
  void write(uint64_t stream, Action action);

 private:
  class Process;
  StacksRead read_now(const ReadStacks& request, const std::vector<Process>& processes);
  void ask_for_dumps(const std::vector<Process>& processes);
  void keep_dumps(const std::vector<Process>& processes, Instant deadline,
                  std::vector<RankEvidence>& evidence);
  RankEvidence evidence_of(const Process& process) const;
  SymbolsRead symbolize_now(const ReadSymbols& request, pid_t pid, Instant deadline);

  boost::asio::io_context& loop_;
  const Launcher& launcher_;
  StackTools& tools_;
  const std::string proc_root_;
  const Callbacks callbacks_;
  std::mutex asked_mutex_;
  std::map<RankKey, AskedDumps> asked_;  // of whom dumps are to come
  boost::asio::thread_pool stacks_threads_;
  boost::asio::thread_pool symbols_thread_{1};   // a slow file system must not keep stacks waiting
  boost::asio::thread_pool messages_thread_{1};  // nor either of them what has been read
};

}  // namespace muster::worker
