#include "worker/shell/evidence/end_reader.h"

#include <signal.h>

#include <algorithm>
#include <memory>
#include <span>
#include <utility>

#include <absl/strings/str_cat.h>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <spdlog/spdlog.h>

#include "common/progress/progress_page.h"
#include "common/text/end_reason.h"
#include "common/text/program_error.h"
#include "worker/shell/evidence/oom_kill_history.h"
#include "worker/shell/evidence/shared_memory.h"
#include "worker/shell/files/disk_space.h"
#include "worker/stacks/kernel_messages.h"

namespace muster::worker {
namespace {

Instant ago(Duration time) {
  const Instant now = monotonic_now();
  return now - std::min(time, now.time_since_epoch());
}

// The driver may report a lost GPU shortly after its rank has died of it; a measurement takes
// milliseconds on a healthy node.
constexpr Duration kGpuMeasurementWait = std::chrono::milliseconds(300);
// An older error of a GPU has not ended the rank; a permanent one may have.
constexpr Duration kGpuErrorAge = std::chrono::minutes(2);
// The newest reading may be older than the end.
constexpr Duration kNetworkReadingWait = std::chrono::milliseconds(200);
// InfiniBand ends a connection over a lost link after its retries, within two minutes. TCP needs
// longer, but seldom ends a connection over a link that is up again.
constexpr Duration kLostLinkAge = std::chrono::minutes(2);

// The lines that are searched for the error that ended a program: a traceback through libraries is
// longer than the evidence.
constexpr size_t kErrorLinesMax = 200;

bool died_by_itself(const EndedRank& rank) {
  return !rank.was_killed && (rank.event.signal != 0 || rank.event.exit_code != 0);
}

// A shell reports the signal of its command by such a code.
constexpr int32_t kKilledCommand = 128 + SIGKILL;

// The control group may hold other ranks, and a rank that this worker killed was not killed by the
// kernel. A rank that was moved to another group, or died because the whole machine ran out of
// memory, is named in the kernel's log.
ExitCause cause_of(const EndedRank& rank, std::span<const KernelMessage> own_messages) {
  const bool is_shell_of_it = rank.of_program && rank.event.exit_code == kKilledCommand;
  if ((rank.event.signal != SIGKILL && !is_shell_of_it) || rank.was_killed)
    return ExitCause::kUnknown;
  if (rank.oom_kills_before >= 0 && rank.oom_kills.count() > rank.oom_kills_before)
    return ExitCause::kOutOfMemory;
  std::vector<KernelMessage> recent;
  std::ranges::copy_if(own_messages, std::back_inserter(recent),
                       [since = ago(kOomKillAge)](const KernelMessage& message) {
                         return message.at >= since - kernel_clock_error(message.at);
                       });
  return rank.pid > 0 && reports_oom_kill(recent, rank.pid) ? ExitCause::kOutOfMemory
                                                            : ExitCause::kUnknown;
}

std::string limit_text(const OomKillCounter& group) {
  const uint64_t limit = group.limit(), used = group.peak();
  if (limit == 0) return "no cgroup limit: the machine's memory is used up";
  return absl::StrCat("cgroup limit ", limit >> 20, " MiB",
                      used > 0 ? absl::StrCat(", used ", used >> 20, " MiB") : std::string());
}

// Returns the detail of a rank that the kernel killed for memory: "out of memory (cgroup limit 300
// MiB, used 300 MiB)". The kernel's counter also counts kills for a lack of memory of the whole
// machine; then the kernel's log has the memory of the rank.
std::string memory_text(const EndedRank& rank, std::span<const KernelMessage> own_messages) {
  const uint64_t own = killed_process_bytes(own_messages, rank.pid);
  return absl::StrCat("out of memory (", limit_text(rank.oom_kills),
                      own > 0 ? absl::StrCat(", the rank used ", own >> 20, " MiB") : std::string(),
                      ")");
}

// Returns the limit that a signal of the kernel reports; "" for other signals.
std::string signal_text(const EndedRank& rank) {
  constexpr int32_t kOfCommand = 128;  // a shell adds it to its command's signal
  const bool is_shells = rank.of_program && rank.event.exit_code > kOfCommand;
  const int32_t signal = is_shells ? rank.event.exit_code - kOfCommand : rank.event.signal;
  switch (signal) {
    case SIGKILL:
    case SIGXCPU:
      return cpu_limit_text(rank.cpu_time, signal, is_shells);
    case SIGXFSZ:
      return "a file has reached the limit of sizes (ulimit -f)";
    case SIGSYS:
      return "a system call is forbidden here (seccomp)";
    case SIGBUS:
      return shared_memory_text(kSharedMemoryFolder);
    default:
      return "";
  }
}

// Adds what the kernel did to the processes of a rank that reports its own end: a loader or a
// compiler that was killed for memory ends its parent with an ordinary code.
void name_other_reasons(EndedRank& rank) {
  if (!died_by_itself(rank) || rank.event.cause != ExitCause::kUnknown) return;
  std::string& detail = rank.event.detail;
  if (const std::string reason = signal_text(rank); !reason.empty())
    detail = absl::StrCat(reason, detail.empty() ? "" : "; ", detail);
  if (rank.oom_kills_before < 0 || rank.oom_kills.count() <= rank.oom_kills_before) return;
  absl::StrAppend(&detail, detail.empty() ? "" : "; ",
                  "the kernel killed a process of its control group for memory (",
                  limit_text(rank.oom_kills), ")");
}

// Returns whether a GPU may explain the end: not if the exit code has its own reason, such as a
// full disk. Includes the bad-input code: for a lost GPU CUDA returns the same error as for a
// missing one.
bool may_be_gpus(const EndedRank& rank) {
  const int32_t code = rank.event.exit_code;
  return died_by_itself(rank) && rank.event.cause == ExitCause::kUnknown &&
         (rank.event.signal != 0 || rank.of_program || code == to_int(ExitCode::kFailure) ||
          code == to_int(ExitCode::kBadInput) || code == to_int(ExitCode::kPeerLost));
}

void take_gpus(EndedRank& rank, const GpuReport& report, EndEvidence& evidence) {
  if (rank.gpus.empty() || !died_by_itself(rank)) return;
  const Instant now = monotonic_now();
  for (std::string& message : errors_since(report, rank.gpus, rank.started, now).messages)
    if (evidence.kernel_messages.size() < kKernelMessagesMax)
      evidence.kernel_messages.push_back(std::move(message));
  const std::string cause =
      errors_since(report, rank.gpus, std::max(rank.started, ago(kGpuErrorAge)), now).cause;
  if (cause.empty() || !may_be_gpus(rank)) return;
  rank.event.cause = ExitCause::kGpuFault;
  rank.event.detail = absl::StrCat(cause, rank.event.detail.empty() ? "" : "; ", rank.event.detail);
}

// Returns whether the loss of a link may explain the end: only if the rank reports that a peer is
// gone. NCCL and gloo end a program by SIGABRT.
bool may_be_network(const EndedRank& rank) {
  const RankReaped& end = rank.event;
  if (!died_by_itself(rank) || end.cause != ExitCause::kUnknown) return false;
  if (!rank.of_program) return end.exit_code == to_int(ExitCode::kPeerLost);
  return (end.signal == 0 || end.signal == SIGABRT) && reports_lost_peer(end.detail);
}

void take_network(EndedRank& rank, const NetworkReport& report, EndEvidence& evidence) {
  if (!died_by_itself(rank)) return;
  const Instant now = monotonic_now();
  add_network_messages(report, std::max(rank.started, ago(kKernelMessagesAge)), now,
                       evidence.kernel_messages);
  if (!may_be_network(rank)) return;
  // A rank that has trained on after the loss does not need the link.
  Instant since = rank.started;
  if (rank.event.figures) since = std::max(since, rank.event.figures->last_progress - kLostLinkAge);
  if (auto lost = lost_link(report, since, ago(kLostLinkAge), now)) {
    rank.event.lost_link = std::move(lost->clause);
    rank.event.link_is_down = lost->is_down;
  }
}

// Adds the kernel's message about a failed device to the reason of a rank: the program often sees
// only that its call failed.
void add_kernel_reason(EndedRank& rank, std::span<const KernelMessage> messages,
                       const GpuReport& report, bool foreign_pids) {
  if (!died_by_itself(rank) || rank.event.cause != ExitCause::kUnknown) return;
  const Instant since = std::max(rank.started, ago(kGpuErrorAge));
  std::vector<std::string> texts;
  for (const KernelMessage& message : messages)
    if (message.at >= since - kernel_clock_error(message.at)) texts.push_back(message.text);
  std::vector<std::string> gpus;
  for (const int32_t index : rank.gpus) {
    const auto gpu = static_cast<size_t>(index);
    if (gpu < report.gpus.size() && !report.gpus[gpu].pci_address.empty())
      gpus.push_back(report.gpus[gpu].pci_address);
  }
  std::string& detail = rank.event.detail;
  const std::string reason = kernel_reason(detail, texts, foreign_pids ? 0 : rank.pid, gpus);
  if (!reason.empty())
    absl::StrAppend(&detail, detail.empty() ? "" : "; ", "the kernel reported: ", reason);
}

RankEvidence evidence_of(const EndedRank& rank, const Launcher& launcher) {
  const RankKey& key = rank.event.key;
  RankEvidence evidence;
  if (rank.local_rank < 0) {
    evidence.page_problem = "it is not known any more";
  } else if (const auto page =
                 read_progress_page(launcher.folders().page_path(key.launch(), rank.local_rank));
             page.ok()) {
    evidence = evidence_from_page(*page, monotonic_now());
  } else {
    evidence.page_problem = std::string(page.status().message());
  }
  evidence.rank = key.rank.value();
  evidence.pid = rank.pid;
  evidence.last_lines = launcher.last_lines(key, kEvidenceLinesMax);
  return evidence;
}

}  // namespace

// Answered once on the loop's thread, by the finished read or by the deadline, whichever comes
// first.
struct EndReader::Batch {
  Batch(boost::asio::io_context& loop, std::vector<EndedRank> ended)
      : ranks(std::move(ended)), deadline(loop) {}

  std::vector<EndedRank> ranks;
  boost::asio::steady_timer deadline;
  bool answered = false;
};

EndReader::EndReader(boost::asio::io_context& loop, const Launcher& launcher,
                     EndReaderOptions options, std::function<void(RankReaped)> on_read)
    : loop_(loop),
      launcher_(launcher),
      options_(std::move(options)),
      on_read_(std::move(on_read)) {}

EndReader::~EndReader() {
  thread_.stop();
  thread_.join();
}

void EndReader::read(std::vector<EndedRank> ranks) {
  if (ranks.empty()) return;
  const auto batch = std::make_shared<Batch>(loop_, std::move(ranks));
  const auto answer = [this, batch](const std::vector<EndedRank>& read) {
    if (std::exchange(batch->answered, true)) return;
    batch->deadline.cancel();
    for (const EndedRank& rank : read) on_read_(rank.event);
  };
  batch->deadline.expires_after(options_.deadline);
  batch->deadline.async_wait([batch, answer](const boost::system::error_code& error) {
    if (error || batch->answered) return;
    spdlog::warn("evidence of {} ended ranks is not read in time", batch->ranks.size());
    answer(batch->ranks);
  });
  boost::asio::post(
      thread_, [this, answer, ranks = batch->ranks, reaped = monotonic_now()]() mutable {
        read_now(ranks, reaped);
        boost::asio::post(loop_, [answer, ranks = std::move(ranks)] { answer(ranks); });
      });
}

void EndReader::read_now(std::vector<EndedRank>& ranks, Instant reaped) const {
  std::vector<pid_t> pids;
  std::vector<std::string> groups;
  for (const EndedRank& rank : ranks) {
    if (rank.pid > 0) pids.push_back(rank.pid);
    groups.push_back(rank.oom_kills.group());
  }
  std::vector<KernelMessage> messages;
  if (std::ranges::any_of(ranks, died_by_itself))
    messages = read_kernel_messages(options_.kernel_log, {.pids = pids,
                                                          .since = ago(kKernelMessagesAge),
                                                          .until = reaped,
                                                          .groups = groups,
                                                          .foreign_pids = options_.foreign_pids});
  // Foreign pids may equal those of the ranks by chance.
  const std::span<const KernelMessage> own_messages =
      options_.foreign_pids ? std::span<const KernelMessage>() : messages;
  GpuReport gpus;
  if (options_.gpus != nullptr && std::ranges::any_of(ranks, [](const EndedRank& rank) {
        return !rank.gpus.empty() && died_by_itself(rank);
      }))
    gpus = options_.gpus->measure(kGpuMeasurementWait);
  NetworkReport network;
  if (options_.network != nullptr && std::ranges::any_of(ranks, died_by_itself))
    network = options_.network->measure(kNetworkReadingWait);
  for (EndedRank& rank : ranks) {
    auto evidence = std::make_shared<EndEvidence>();
    if (rank.local_rank >= 0) {
      const auto figures = launcher_.read_page(rank.event.key, rank.local_rank);
      if (figures.ok()) {
        rank.event.last_step = figures->step;
        rank.event.figures = *figures;
      }
    }
    evidence->rank = evidence_of(rank, launcher_);
    if (is_disk_full(launcher_.folders().folder(rank.event.key.launch())))
      rank.event.output_incomplete = true;
    if (died_by_itself(rank)) {
      for (const KernelMessage& message : messages)
        evidence->kernel_messages.push_back(kernel_message_text(message));
    }
    // Output that cannot explain the end is not read, because its file system may hang.
    if (rank.event.detail.empty() && has_reason_in_output(rank.event.signal))
      rank.event.detail =
          reason_in_lines(launcher_.last_lines(rank.event.key, kErrorLinesMax), rank.event.signal);
    if (rank.event.cause == ExitCause::kUnknown) rank.event.cause = cause_of(rank, own_messages);
    // The newest line of a killed rank is unrelated to its end.
    if (rank.event.cause == ExitCause::kOutOfMemory)
      rank.event.detail = memory_text(rank, own_messages);
    name_other_reasons(rank);
    take_gpus(rank, gpus, *evidence);
    take_network(rank, network, *evidence);
    add_kernel_reason(rank, messages, gpus, options_.foreign_pids);
    rank.event.evidence = std::move(evidence);
  }
}

}  // namespace muster::worker
