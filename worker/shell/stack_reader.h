// Reads what a dump wants beside the event loop: stacks, pages, process states, ends of logs and kernel messages of this worker's ranks,
// and names of places in modules. A rank that cannot be read costs the others nothing, and the loop nothing at all.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/thread_pool.hpp>

#include "common/time.h"
#include "worker/core/action.h"
#include "worker/core/event.h"
#include "worker/shell/launcher.h"
#include "worker/stacks/stack_sampler.h"
#include "worker/stacks/symbolizer.h"

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
  };

  // `launcher` outlives the reader.
  StackReader(boost::asio::io_context& loop, const Launcher& launcher, std::string proc_root,
              Callbacks callbacks);
  // Waits for what is being read.
  ~StackReader();
  StackReader(const StackReader&) = delete;
  StackReader& operator=(const StackReader&) = delete;

  // `targets`: the ranks of `request`, alive at this moment.
  void read(const ReadStacks& request, std::vector<Target> targets);
  // `pid`: of a rank of the launch, alive at this moment; 0: there is none any more.
  void symbolize(const ReadSymbols& request, pid_t pid);

 private:
  class Process;
  StacksRead read_now(const ReadStacks& request, const std::vector<Process>& processes,
                      Instant deadline);
  RankEvidence evidence_of(const Process& process) const;
  SymbolsRead symbolize_now(const ReadSymbols& request, pid_t pid);

  boost::asio::io_context& loop_;
  const Launcher& launcher_;
  const std::string proc_root_;
  const Callbacks callbacks_;
  StackSampler sampler_;
  Symbolizer symbolizer_;
  boost::asio::thread_pool stacks_thread_{1};
  boost::asio::thread_pool symbols_thread_{1};  // a slow file system must not keep stacks waiting
};

}  // namespace muster::worker
