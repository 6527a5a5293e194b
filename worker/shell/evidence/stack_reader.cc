#include "worker/shell/evidence/stack_reader.h"

#include <algorithm>
#include <optional>
#include <utility>

#include <absl/strings/str_cat.h>
#include <boost/asio/post.hpp>
#include <spdlog/spdlog.h>

#include "common/progress/progress_page.h"
#include "common/stacks/self_stacks.h"
#include "worker/shell/evidence/pidfd.h"
#include "worker/shell/stream/translate.h"
#include "worker/stacks/kernel_messages.h"
#include "worker/stacks/proc_files.h"
#include "worker/stacks/process_activity.h"
#include "worker/stacks/process_evidence.h"
#include "worker/stacks/working_process.h"

namespace muster::worker {
namespace {

// The coordinator's limit for symbols.
constexpr Duration kSymbolsBudget = std::chrono::seconds(4);
// Number of concurrent dumps: they wait for unresponsive ranks, not for a processor.
constexpr size_t kStacksThreads = 4;
// Ranks with pending program dumps: all ranks of a node, of a few jobs.
constexpr size_t kRequestedMax = 4096;

}  // namespace

// A rank's process.
class StackReader::Process {
 public:
  explicit Process(const Target& target) : target_(target), pidfd_(target.pid) {}

  const Target& target() const { return target_; }
  StackTarget stack_target(const Launcher& launcher, const std::string& proc_root) const {
    const LaunchKey launch = target_.key.launch();
    const LaunchFolders& folders = launcher.folders();
    return {target_.key.rank.value(), target_.pid, pidfd_.get(),
            self_stacks_path(folders.page_path(launch, target_.local_rank)),
            user_of_rank(folders.folder(launch), proc_root, target_.pid, launcher.has_users())};
  }

 private:
  Target target_;
  PidFd pidfd_;
};

StackReader::StackReader(boost::asio::io_context& loop, const Launcher& launcher, StackTools& tools,
                         std::string proc_root, Callbacks callbacks)
    : loop_(loop),
      launcher_(launcher),
      tools_(tools),
      proc_root_(std::move(proc_root)),
      callbacks_(std::move(callbacks)),
      stacks_threads_(kStacksThreads) {}

StackReader::~StackReader() {
  for (boost::asio::thread_pool* threads : {&stacks_threads_, &symbols_thread_, &messages_thread_})
    threads->stop();
  stacks_threads_.join();
  symbols_thread_.join();
  messages_thread_.join();
}

void StackReader::read(const ReadStacks& request, const std::vector<Target>& targets) {
  const auto processes = std::make_shared<std::vector<Process>>();
  for (const Target& target : targets) processes->emplace_back(target);
  boost::asio::post(stacks_threads_, [this, request, processes] {
    auto read = std::make_shared<StackResults>(read_now(request, *processes));
    boost::asio::post(loop_, [this, read] { callbacks_.on_stacks(std::move(*read)); });
  });
}

void StackReader::symbolize(const ReadSymbols& request, pid_t pid) {
  const Instant deadline = monotonic_now() + kSymbolsBudget;
  boost::asio::post(symbols_thread_, [this, request, pid, deadline] {
    auto read = std::make_shared<SymbolResults>(symbolize_now(request, pid, deadline));
    boost::asio::post(loop_, [this, read] { callbacks_.on_symbols(std::move(*read)); });
  });
}

template <class Action>
void StackReader::write(uint64_t stream, Action action) {
  boost::asio::post(messages_thread_, [this, stream, action = std::move(action)] {
    auto message = std::make_shared<v1::WorkerMessage>(to_message(action));
    boost::asio::post(
        loop_, [this, stream, message] { callbacks_.on_message(stream, std::move(*message)); });
  });
}
template void StackReader::write(uint64_t stream, SendStackReport action);
template void StackReader::write(uint64_t stream, SendSymbols action);

StackResults StackReader::read_now(const ReadStacks& request,
                                   const std::vector<Process>& processes) {
  const Instant deadline = monotonic_now() + request.deadline;
  std::vector<StackTarget> targets;
  std::vector<pid_t> pids;
  for (const Process& process : processes) {
    targets.push_back(process.stack_target(launcher_, proc_root_));
    pids.push_back(process.target().pid);
  }
  StackResults result{request.launch, request.dump, request.sample, {}, {}, {}};
  // A dump for a suspected hang, or a full one requested by a person, also requests program dumps.
  const bool requests_dumps = request.samples > 1 && request.sample == 0;
  const bool retains_dumps = request.samples > 1 && request.sample + 1 == request.samples;
  // Pages and states come first: they show the ranks before they are disturbed.
  for (const Process& process : processes) result.ranks.push_back(evidence_of(process));
  if (requests_dumps) request_dumps(processes);
  const StackSample sample = tools_.sampler.sample(targets, deadline);
  if (retains_dumps) retain_dumps(processes, deadline, result.ranks);
  auto stacks = std::make_shared<StackTree>();
  stacks->add(sample);
  result.stacks = std::move(stacks);
  for (size_t i = 0; i < std::min(sample.ranks.size(), result.ranks.size()); ++i) {
    result.ranks[i].stack_problem = sample.ranks[i].problem;
    result.ranks[i].stack_note = sample.ranks[i].note;
  }
  const Instant now = monotonic_now();
  const Instant since = now - std::min(kKernelMessagesAge, now.time_since_epoch());
  std::vector<std::string> groups;
  for (const pid_t pid : pids)
    groups.push_back(OomKillCounter::of(proc_root_, kCgroupRoot, pid).group());
  for (const KernelMessage& message :
       read_kernel_messages(kKernelLog, {.pids = pids,
                                        .since = since,
                                        .groups = groups,
                                        .foreign_pids = has_foreign_pids(proc_root_)}))
    result.kernel_messages.push_back(kernel_message_text(message));
  return result;
}

void StackReader::request_dumps(const std::vector<Process>& processes) {
  for (const Process& process : processes) {
    const RankKey& key = process.target().key;
    RequestedDumps requested =
        request_program_dumps(launcher_.folders().folder(key.launch()), key.rank);
    const std::lock_guard lock(asked_mutex_);
    if (requested.paths.empty()) {
      requested_.erase(key);
    } else {
      // An aborted dump leaves its entry behind.
      if (requested_.size() >= kRequestedMax && !requested_.contains(key))
        requested_.erase(requested_.begin());
      requested_[key] = std::move(requested);
    }
  }
}

void StackReader::retain_dumps(const std::vector<Process>& processes, Instant deadline,
                               std::vector<RankEvidence>& evidence) {
  std::vector<RequestedDumps> requested;
  for (const Process& process : processes) {
    const std::lock_guard lock(asked_mutex_);
    if (auto one = requested_.extract(process.target().key))
      requested.push_back(std::move(one.mapped()));
  }
  wait_for_program_dumps(requested, deadline);
  for (size_t i = 0; i < std::min(processes.size(), evidence.size()); ++i) {
    const RankKey& key = processes[i].target().key;
    evidence[i].files = find_program_dumps(launcher_.folders().folder(key.launch()), key.rank);
  }
}

RankEvidence StackReader::evidence_of(const Process& process) const {
  const Target& target = process.target();
  const auto page =
      read_progress_page(launcher_.folders().page_path(target.key.launch(), target.local_rank));
  RankEvidence evidence;
  if (page.ok()) {
    evidence = evidence_from_page(*page, monotonic_now());
  } else {
    evidence.page_problem = std::string(page.status().message());
  }
  evidence.rank = target.key.rank.value();
  evidence.pid = target.pid;
  read_process_state(proc_root_, working_process(proc_root_, target.pid), evidence);
  evidence.memory = read_memory_use(proc_root_, kCgroupRoot, target.pid);
  evidence.activity = read_process_activity(proc_root_, target.pid);
  evidence.last_lines = launcher_.last_lines(target.key, kEvidenceLinesMax);
  return evidence;
}

SymbolResults StackReader::symbolize_now(const ReadSymbols& request, pid_t pid, Instant deadline) {
  SymbolResults result{request.dump, request.module, {}};
  const auto symbols =
      tools_.symbolizer.symbolize(request.module, request.addresses, pid, deadline,
                                  user_of_rank(launcher_.folders().folder(request.launch),
                                               proc_root_, pid, launcher_.has_users()));
  if (!symbols.ok())
    spdlog::info("no symbols of {}: {}", request.module.path,
                 std::string(symbols.status().message()));
  for (size_t i = 0; i < request.addresses.size(); ++i)
    result.symbols.emplace_back(
        request.addresses[i], symbols.ok() && i < symbols->size() ? (*symbols)[i] : FrameSymbol{});
  return result;
}

}  // namespace muster::worker
