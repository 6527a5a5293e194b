#include "worker/shell/ranks/rank_starter.h"

#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <utility>

#include <absl/strings/str_cat.h>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>
#include <spdlog/spdlog.h>

#include "common/time/time.h"
#include "worker/shell/ranks/node_fault.h"

namespace muster::worker {
namespace {

// The result of a task on another thread.
struct PreparedStart {
  absl::StatusOr<SpawnRequest> request = absl::UnknownError("not prepared");
  int log_fd = -1;
  ~PreparedStart() {
    if (log_fd >= 0) close(log_fd);
  }
};

}  // namespace

// One rank that is being started.
class RankStarter::Start {
 public:
  Start(boost::asio::io_context& loop, SpawnRank wanted, int input)
      : request(std::move(wanted)), input_fd(input), pipe(loop), deadline(loop) {}

  const SpawnRank request;
  const int input_fd;
  std::shared_ptr<FileTasks::Task> task;  // the one that runs; null: none
  SpawnRequest process;
  pid_t pid = 0;  // 0: not forked yet
  boost::asio::posix::stream_descriptor pipe;
  boost::asio::steady_timer deadline;
};

RankStarter::RankStarter(boost::asio::io_context& loop, const Launcher& launcher, Reaper& reaper,
                         OnStarted on_started, OnFailed on_failed, Duration deadline)
    : loop_(loop),
      launcher_(std::make_shared<const Launcher>(launcher)),
      reaper_(reaper),
      on_started_(std::move(on_started)),
      on_failed_(std::move(on_failed)),
      deadline_(deadline),
      files_(loop) {}

RankStarter::~RankStarter() = default;

void RankStarter::start(const SpawnRank& request, int input_fd) {
  const auto start = std::make_shared<Start>(loop_, request, input_fd);
  starts_[request.key] = start;
  start->deadline.expires_after(deadline_);
  start->deadline.async_wait([this, start](const boost::system::error_code& error) {
    if (!error) give_up(start);
  });
  const auto prepared = std::make_shared<PreparedStart>();
  start->task = files_.run(
      [launcher = launcher_, request, prepared] {
        prepared->request = launcher->prepare(request);
        if (!prepared->request.ok()) return;
        const auto log_fd = open_log(*prepared->request);
        if (log_fd.ok()) prepared->log_fd = *log_fd;
        if (!log_fd.ok()) prepared->request = log_fd.status();
      },
      [this, start, prepared] {
        start->task = nullptr;
        if (!prepared->request.ok()) return fail(start, prepared->request.status());
        start->process = *std::move(prepared->request);
        start->process.input_fd = start->input_fd;
        const auto process = begin_spawn(start->process, prepared->log_fd);
        if (!process.ok()) return fail(start, process.status());
        start->pid = process->pid;
        start->pipe.assign(process->failure_fd);
        const auto& user = start->process.user;
        reaper_.add(start->pid, start->request.key, user ? user->uid : geteuid());
        wait_for_exec(start);
      });
  if (start->task == nullptr)
    fail(start, node_fault(absl::ResourceExhaustedError(
                    "too many threads hang in file systems that do not respond")));
}

void RankStarter::wait_for_exec(const StartPtr& start) {
  start->pipe.async_wait(boost::asio::posix::stream_descriptor::wait_read,
                         [this, start](const boost::system::error_code& error) {
                           if (!error && !take_state(start)) wait_for_exec(start);
                         });
}

// Returns whether the child has become its program, or cannot.
bool RankStarter::take_state(const StartPtr& start) {
  ExecFailure failure;
  switch (read_start(start->pipe.native_handle(), failure)) {
    case StartState::kStarting:
      return false;
    case StartState::kStarted:
      finish(start);
      on_started_(start->request, start->pid);
      return true;
    case StartState::kFailed:
      explain(start, failure);
      return true;
  }
  return true;
}

// The reason may be in the program's file, whose file system may hang by now.
void RankStarter::explain(const StartPtr& start, const ExecFailure& failure) {
  start->pipe.close();
  reaper_.forget(start->pid);
  start->pid = 0;
  const auto problem = std::make_shared<absl::Status>();
  start->task =
      files_.run([problem, failure,
                  process = start->process] { *problem = describe_failure(failure, process); },
                 [this, start, problem] {
                   start->task = nullptr;
                   fail(start, *problem);
                 });
  if (start->task == nullptr)
    fail(start,
         absl::UnavailableError(absl::StrCat("it cannot be started: errno ", failure.error)));
}

bool RankStarter::settle(const RankKey& key) {
  const auto found = starts_.find(key);
  if (found == starts_.end() || found->second->pid == 0) return false;
  const StartPtr start = found->second;
  if (!take_state(start)) explain(start, {.error = EIO, .step = 0});
  return starts_.contains(key);
}

void RankStarter::give_up(const StartPtr& start) {
  files_.abandon(start->task);
  const std::string time = absl::StrCat(" for ", to_seconds(deadline_), " s");
  if (start->process.arguments.empty()) {
    const std::string folder = launcher_->folders().folder(start->request.key.launch());
    return fail(start, node_fault(absl::DeadlineExceededError(
                           absl::StrCat("a file system has not responded", time, ": that of ",
                                        folder, ", or one in which the program is searched"))));
  }
  // The kernel ends the child when the file system responds. The program never runs.
  if (start->pid != 0) {
    kill(start->pid, SIGKILL);
    reaper_.forget(start->pid);
  }
  absl::Status problem = absl::DeadlineExceededError(
      absl::StrCat("a file system has not responded", time, ": that of the working directory ",
                   start->process.directory, " or of ", start->process.arguments.front()));
  fail(start, Launcher::start_problem(start->request, std::move(problem)));
}

void RankStarter::fail(const StartPtr& start, absl::Status problem) {
  on_failed_(finish(start)->request, problem);
}

RankStarter::StartPtr RankStarter::finish(const StartPtr& start) {
  boost::system::error_code ignored;
  start->deadline.cancel();
  start->pipe.close(ignored);
  const auto found = starts_.find(start->request.key);
  if (found != starts_.end() && found->second == start) starts_.erase(found);
  return start;
}

}  // namespace muster::worker
