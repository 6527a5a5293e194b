// Runs the check of this node: a program in a process of its own, beside the event loop, killed at its deadline. What it says, or what is wrong
// with it, is the answer; one that hangs on a dead disk costs its thread and nothing else.
#pragma once

#include <functional>
#include <string>

#include <boost/asio/io_context.hpp>
#include <boost/asio/thread_pool.hpp>

#include "common/time.h"
#include "worker/core/event.h"

namespace muster::worker {

struct NodeCheckerOptions {
  std::string program;   // muster-trainer; empty: there is none, and every node passes
  std::string work_dir;  // the worker's
  std::string local_dir =
      "/dev/shm";  // where ranks keep local checkpoints; made where it is missing
  // The coordinator waits for 10 s. A check takes a fraction of a second, on a machine under heavy load a few.
  Duration deadline = std::chrono::seconds(8);
};

// The event loop's thread calls everything, and is where `on_done` comes.
class NodeChecker {
 public:
  NodeChecker(boost::asio::io_context& loop, NodeCheckerOptions options,
              std::function<void(NodeCheckDone)> on_done);
  // Waits for one that runs, for as long as its deadline lets it.
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

// The check itself. Blocks, at most a little longer than the deadline.
NodeCheckDone run_node_check(const NodeCheckerOptions& options);

// muster-trainer beside this program, or `trainer` where that is one; empty: neither.
std::string find_node_check_program(const std::string& trainer);

}  // namespace muster::worker
