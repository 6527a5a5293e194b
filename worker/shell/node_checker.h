// Runs the node check, a program in its own process that is killed at its deadline. The result of
// the check is the program's output or failure. A thread beside the event loop waits for it: a
// check that hangs on a dead disk blocks only that thread.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>

#include <absl/status/statusor.h>
#include <boost/asio/io_context.hpp>
#include <boost/asio/thread_pool.hpp>

#include "common/process/run_child.h"
#include "common/time/time.h"
#include "worker/core/event.h"

namespace muster::worker {

// The program of the check, its folders and its time limit.
struct NodeCheckerOptions {
  std::string program;   // path of muster-trainer; empty: not installed, and every check passes
  std::string work_dir;  // the worker's work directory
  // folder for the ranks' local checkpoints; created if missing
  std::string local_dir = "/dev/shm";
  // Time limit of a check, below the coordinator's limit of 10 s. A check takes a fraction of a
  // second, or a few seconds on a heavily loaded machine.
  Duration deadline = std::chrono::seconds(8);
  // For deep checks: the GPUs of this worker, as CUDA_VISIBLE_DEVICES names them, or "none"; and
  // the address at which other nodes reach this one.
  std::string gpus = "none";
  std::string bind_address = "127.0.0.1";
};

// Runs checks in the background: one short check and one deep check at a time. Called on the event
// loop's thread only; `on_done` runs on that thread, too.
class NodeChecker {
 public:
  NodeChecker(boost::asio::io_context& loop, NodeCheckerOptions options,
              std::function<void(NodeCheckDone)> on_done);
  // Blocks until a running check ends, at most until its deadline.
  ~NodeChecker();
  NodeChecker(const NodeChecker&) = delete;
  NodeChecker& operator=(const NodeChecker&) = delete;

  // Starts a check; `on_done` receives its result.
  void run();
  // Starts a deep check; `on_done` receives its result.
  void run_deep(const DeepCheckOrder& order, std::function<void(DeepCheckDone)> on_done);
  // Kills the deep check that was started last, within kChildWatchInterval. Its result has
  // DeepCheckFigures::stopped, unless the check has ended before.
  void stop_deep();

 private:
  boost::asio::io_context& loop_;
  const NodeCheckerOptions options_;
  const std::function<void(NodeCheckDone)> on_done_;
  std::shared_ptr<std::atomic<bool>> stop_deep_;  // stops the newest deep check
  boost::asio::thread_pool thread_{1};
  boost::asio::thread_pool deep_thread_{1};
};

// Runs one check and returns its result. Blocks, at most a little longer than the deadline.
NodeCheckDone run_node_check(const NodeCheckerOptions& options);

// Does the same for a deep check. `stop` may be set by another thread.
DeepCheckDone run_deep_check(const NodeCheckerOptions& options, const DeepCheckOrder& order,
                             const std::atomic<bool>& stop);
// Returns the result of a deep check whose program has ended, or was killed.
DeepCheckDone result_of_deep_check(const absl::StatusOr<ChildEnd>& child, bool is_stopped);

// Returns the path of muster-trainer beside this program; if there is none, `trainer` if that is a
// muster-trainer; otherwise "".
std::string find_node_check_program(const std::string& trainer);

}  // namespace muster::worker
