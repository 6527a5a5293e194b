// The worker's shell: one event loop that converts the stream, processes, files, signals and timers
// to events of the core, and carries out the core's actions.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <absl/status/statusor.h>
#include <boost/asio/io_context.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>

#include "common/job/ids.h"
#include "daemon/endpoint.h"
#include "daemon/http_server.h"
#include "worker/core/core.h"
#include "worker/gpus/gpu_watch.h"
#include "worker/network/network_watch.h"
#include "worker/shell/evidence/end_reader.h"
#include "worker/shell/evidence/oom_kill_history.h"
#include "worker/shell/evidence/stack_reader.h"
#include "worker/shell/evidence/stack_tools.h"
#include "worker/shell/evidence/stack_tracer.h"
#include "worker/shell/files/file_tasks.h"
#include "worker/shell/logs/log_shipper.h"
#include "worker/shell/logs/output_watch.h"
#include "worker/shell/metrics/metrics.h"
#include "worker/shell/node_checker.h"
#include "worker/shell/options.h"
#include "worker/shell/programs/program_ports.h"
#include "worker/shell/ranks/launcher.h"
#include "worker/shell/ranks/page_reader.h"
#include "worker/shell/ranks/rank_guard.h"
#include "worker/shell/ranks/rank_input.h"
#include "worker/shell/ranks/rank_starter.h"
#include "worker/shell/ranks/reaper.h"
#include "worker/shell/rendezvous/rendezvous_server.h"
#include "worker/shell/stream/stream.h"

namespace muster::worker {

// Returns `options` with `visible` set from this process's CUDA_VISIBLE_DEVICES.
GpuWatchOptions gpu_watch_options(GpuWatchOptions options);

// One muster-worker process.
class Worker {
 public:
  // Checks the options, opens the listening ports, and writes the port file. Errors state what the
  // operator must change.
  static absl::StatusOr<std::unique_ptr<Worker>> create(const WorkerOptions& options);
  ~Worker();

  // Runs until the core emits Exit; returns the program's exit code. The calling thread starts the
  // ranks, and the kernel kills the ranks when that thread ends.
  int run();

 private:
  Worker(const WorkerOptions& options, std::unique_ptr<GpuWatch> gpus, LauncherOptions launcher,
         StackTracerOptions tracer, NodeCheckerOptions checker);

  absl::Status listen(const WorkerOptions& options, const daemon::Endpoint& rendezvous);
  std::map<std::string, daemon::HttpHandler> pages();

  void show_life();
  void handle(const Event& event);
  void step_all();
  void arm_timer();
  void wait_for_signals();
  bool is_already_requested(int signo);
  void reap_children();
  void report_end(const RankReaped& event);

  void carry_out(const Connect& action);
  void carry_out(const Disconnect& action);
  void carry_out(const SpawnRank& action);
  void on_started(const SpawnRank& request, pid_t pid);
  void on_start_failed(const SpawnRank& request, const absl::Status& problem);
  void carry_out(const SignalRank& action);
  void carry_out(const ReadPages& action);
  void carry_out(const ReadStacks& action);
  void carry_out(const ReadSymbols& action);
  void carry_out(const RunNodeCheck& action);
  void carry_out(const RunDeepCheck& action);
  void carry_out(const StopDeepCheck& action);
  void carry_out(const SendRegister& action);
  void carry_out(const SendLeaving& action);
  void carry_out(const SendHeartbeat& action);
  void carry_out(const SendStackReport& action);
  void carry_out(const SendSymbols& action);
  void carry_out(const SendNodeChecked& action);
  void carry_out(const SendRankExited& action);
  void carry_out(const ForgetRank& action);
  void carry_out(const DropLog& action);
  void carry_out(const RemoveLaunch& action);
  void carry_out(const EndLaunch& action);
  void carry_out(const DropLocalCopies& action);
  void carry_out(const KeepLocalCopies& action);
  void carry_out(const Note& action);
  void carry_out(const Exit& action);

  void on_message(const v1::CoordinatorMessage& message);
  void on_closed(StreamEnd end, const std::string& reason);
  void set_lease(int64_t lease_ms);
  bool ship(LogChunk&& chunk);
  void send_due_reports();
  std::vector<StackTracer::TracedRank> ranks_to_trace(const LaunchKey& launch) const;
  absl::StatusOr<RankFigures> figures_of(const PageReader::Page& page, const Core::RankState& rank);
  void on_pages(const std::vector<PageReader::Page>& pages);
  void stop_when_closed();

  void sample_node();
  void add_oom_kills(const std::map<RankKey, int64_t>& counts, Instant at);
  void check_gpus();
  NodeCheckDone with_gpus(NodeCheckDone done) const;
  StackResults with_gpus(StackResults read) const;
  void check_network();
  NodeCheckDone with_network(NodeCheckDone done) const;
  StackResults with_network(StackResults read) const;

  boost::asio::io_context context_{1};
  boost::asio::steady_timer timer_{context_};
  boost::asio::signal_set signals_{context_};
  Instant leave_requested_at_{};  // time of the first signal that stops the worker
  const Incarnation incarnation_;
  const std::string coordinator_;
  const std::unique_ptr<GpuWatch> gpus_;
  // one clause for each GPU that an earlier run of the worker found and this run did not
  std::vector<std::string> missing_gpus_;
  std::string no_gpus_because_;  // empty: there are GPUs
  uint64_t gpu_changes_ = 0;     // GpuReport::changes at the time of the last GpusChanged
  bool gpus_are_silent_ = false;
  const NetworkWatch network_;
  bool network_is_silent_ = false;
  Launcher launcher_;
  std::optional<RankInput> input_;  // standard input of the ranks; nullopt: they have no input
  RankGuard* const guard_;          // null: the ranks have no guard
  boost::asio::steady_timer life_timer_{context_};
  Reaper reaper_;
  RankStarter starter_;
  Metrics metrics_;
  LogShipper logs_;
  OutputWatch outputs_;  // for ranks whose output is their only sign of progress
  CoordinatorStream stream_;
  uint64_t streams_ = 0;  // number of streams opened so far
  EndReader end_reader_;
  std::set<RankKey> ending_;  // ranks that are reaped, but whose end the core has not received yet
  StackTools stack_tools_;
  StackReader stack_reader_;
  StackTracer stack_tracer_;
  NodeChecker node_checker_;
  FolderRemover folder_remover_;
  // State recorded since a rank's start.
  struct Start {
    Instant at{};
    OomKillHistory oom_kills;
  };
  std::map<RankKey, Start> starts_;
  FileTasks files_{context_};
  PageReader page_reader_{context_, launcher_};
  Instant links_due_{};                           // time of the next read of stalled links
  std::shared_ptr<FileTasks::Task> node_sample_;  // null: none runs
  Instant next_node_sample_{};
  // Ranks that were up while the disk of the logs was full. Their output may be incomplete.
  std::set<RankKey> without_space_;
  const std::string proc_root_;
  const std::string work_dir_;
  std::unique_ptr<RendezvousServer> rendezvous_;
  std::unique_ptr<ProgramPorts> program_ports_;  // null: no block was free
  std::unique_ptr<daemon::HttpServer> http_;
  std::unique_ptr<Core> core_;

  std::deque<Event> pending_;  // events raised while the core's actions are carried out
  bool stepping_ = false;
  // reports that wait until the rest of their rank's log is sent
  struct DueReport {
    SendRankExited report;
    uint64_t pump;  // LogShipper::last_pump() that reads the log after the rank's end
  };
  std::vector<DueReport> due_reports_;
  bool leaving_ = false;
  int exit_code_ = 0;
};

}  // namespace muster::worker
