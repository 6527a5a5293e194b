// Runs the node check: a program in its own process, beside the event loop, killed at its deadline.
// Its output, or its failure, is the result. A check that hangs on a dead disk occupies only its
// own thread.
#pragma once

#include <functional>
#include <string>

#include <boost/asio/io_context.hpp>
#include <boost/asio/thread_pool.hpp>

#include "common/time.h"
#include "worker/core/event.h"

namespace muster::worker {

struct NodeCheckerOptions {
  std::string program;   // muster-trainer; empty: not installed, every node passes
  std::string work_dir;  // the worker's
  // local checkpoint folder of ranks; created if missing
  std::string local_dir = "/dev/shm";
  // Below the coordinator's limit of 10 s. A check takes a fraction of a second, on a heavily
  // loaded machine a few seconds.
  Duration deadline = std::chrono::seconds(8);
};

// Called on the event loop's thread only, which also runs `on_done`.
class NodeChecker {
 public:
  NodeChecker(boost::asio::io_context& loop, NodeCheckerOptions options,
              std::function<void(NodeCheckDone)> on_done);
  // Blocks until a running check ends, at most until its deadline.
  ~NodeChecker();
  NodeChecker(const NodeChecker&) = delete;
  NodeChecker& operator=(const NodeChecker&) = delete;

  void run();

 private:
  boost::asio::io_context& loop_;
  const NodeCheckerOptions options_;
  const std::function<void(NodeCheckDone)> on_done_;
  boost::asio::thread_pool thread_{1};
};

// Runs the check. Blocks, at most a little longer than the deadline.
NodeCheckDone run_node_check(const NodeCheckerOptions& options);

// Returns muster-trainer beside this program, else `trainer` if that is muster-trainer, else "".
std::string find_node_check_program(const std::string& trainer);

}  // namespace muster::worker
