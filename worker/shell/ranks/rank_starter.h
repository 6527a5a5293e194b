// Starts ranks without blocking the event loop: files are prepared on other threads, and the loop
// does not wait until a child executes its program. If a file system does not respond, the start of
// the rank fails after kStartDeadline, and the worker's heartbeats continue.
//
//  start() ──▶ files prepared ──▶ forked ──▶ the pipe closes: on_started
//                    │               │
//                    └───────────────┴────▶ an error, or the deadline: on_failed
//
// Called on the event loop's thread only.
#pragma once

#include <functional>
#include <map>
#include <memory>

#include <boost/asio/io_context.hpp>

#include "common/time/time.h"
#include "worker/core/action.h"
#include "worker/core/event.h"
#include "worker/core/rank.h"
#include "worker/shell/files/file_tasks.h"
#include "worker/shell/ranks/launcher.h"
#include "worker/shell/ranks/reaper.h"

namespace muster::worker {

// Longer than a busy file system takes, and well below the coordinator's time limit for a start.
constexpr Duration kStartDeadline = std::chrono::seconds(10);

class RankStarter {
 public:
  using OnStarted = std::function<void(const SpawnRank& request, pid_t pid)>;
  using OnFailed = std::function<void(const SpawnRank& request, const absl::Status& problem)>;

  // Requires a `reaper` that outlives the starter. Copies `launcher`, because threads that hang may
  // use it after the worker's end.
  RankStarter(boost::asio::io_context& loop, const Launcher& launcher, Reaper& reaper,
              OnStarted on_started, OnFailed on_failed, Duration deadline = kStartDeadline);
  ~RankStarter();
  RankStarter(const RankStarter&) = delete;
  RankStarter& operator=(const RankStarter&) = delete;

  // Starts the rank. Calls on_started or on_failed later, once. `input_fd`: its standard input; -1:
  // none.
  void start(const SpawnRank& request, int input_fd = -1);
  // Called for each child that is reaped. Returns false if the child had executed its rank's
  // program; on_started has then been called. Otherwise returns true: on_failed is called later,
  // and the caller has nothing else to do for this child.
  bool settle(const RankKey& key);

 private:
  class Start;
  using StartPtr = std::shared_ptr<Start>;

  void fork_rank(const StartPtr& start);
  void wait_for_exec(const StartPtr& start);
  bool take_state(const StartPtr& start);
  void explain(const StartPtr& start, const ExecFailure& failure);
  void give_up(const StartPtr& start);
  void fail(const StartPtr& start, absl::Status problem);
  StartPtr finish(const StartPtr& start);

  boost::asio::io_context& loop_;
  const std::shared_ptr<const Launcher> launcher_;
  Reaper& reaper_;
  const OnStarted on_started_;
  const OnFailed on_failed_;
  const Duration deadline_;
  std::map<RankKey, StartPtr> starts_;
  FileTasks files_;
};

}  // namespace muster::worker
