// Takes periodic stack traces of launches that request them (common/job/stack_trace_spec.h). Traces
// go into each rank's own output, as JSON lines into a folder that a log agent watches, or to an
// OTLP endpoint. An unreadable rank delays neither the other ranks nor the event loop.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/thread_pool.hpp>

#include "common/job/stack_trace_spec.h"
#include "worker/core/rank.h"
#include "worker/shell/evidence/stack_tools.h"
#include "worker/shell/evidence/stack_trace.h"
#include "worker/shell/evidence/trace_file.h"
#include "worker/shell/logs/otlp_logs.h"

namespace muster::worker {

// The destinations of traces.
struct StackTracerOptions {
  std::string worker;
  std::string folder;              // folder for the JSON lines
  std::optional<OtlpTarget> otlp;  // if set, traces go there instead of into `folder`
  // Whether only this process's user may read the lines and change the folder.
  bool is_private = false;
};

// Traces all launches of a worker. Called on the event loop's thread only.
class StackTracer {
 public:
  // A running rank and its output.
  struct TracedRank {
    RankKey key;
    pid_t pid = 0;
    std::string log_path;
    std::string self_stacks{};  // see StackTarget
  };
  // Returns the ranks of a launch that are up.
  using Ranks = std::function<std::vector<TracedRank>(const LaunchKey& launch)>;

  // Requires `tools` that outlive the tracer.
  StackTracer(boost::asio::io_context& loop, StackTools& tools, StackTracerOptions options,
              Ranks ranks);
  // Blocks until the current trace ends. Call stop() of the tools first, so that it ends soon.
  ~StackTracer();
  StackTracer(const StackTracer&) = delete;
  StackTracer& operator=(const StackTracer&) = delete;

  // Starts the traces of the launch if its spec requests them. A repeated call has no effect.
  void begin(const LaunchKey& launch, const JobSpec& spec);
  void end(const LaunchKey& launch);

  // taken() returns the number of traces that were written or passed to OTLP since the start,
  // dropped() the number of lost traces. Both are thread-safe.
  uint64_t taken() const { return taken_; }
  uint64_t dropped() const { return dropped_ + (otlp_ == nullptr ? 0 : otlp_->dropped()); }

 private:
  struct TracedLaunch {
    std::string job_name;
    StackTraceSpec spec;
    boost::asio::steady_timer timer;
    std::shared_ptr<TraceFile> file;  // null: the traces go into the ranks' output or to OTLP
    bool is_being_read = false;
  };
  struct Job;

  void arm(const LaunchKey& key);
  void take(const LaunchKey& key);
  // Called on the tracer's thread.
  std::vector<StackTrace> read(const Job& job);
  void write(const Job& job, const std::vector<StackTrace>& traces);
  void log_problem(const absl::Status& status);

  boost::asio::io_context& loop_;
  StackTools& tools_;
  const StackTracerOptions options_;
  const Ranks ranks_;
  std::map<LaunchKey, TracedLaunch> launches_;
  std::atomic<uint64_t> taken_{0};
  std::atomic<uint64_t> dropped_{0};
  bool problem_logged_ = false;  // used by the thread only
  std::unique_ptr<OtlpLogs> otlp_;
  boost::asio::thread_pool thread_{1};
};

}  // namespace muster::worker
