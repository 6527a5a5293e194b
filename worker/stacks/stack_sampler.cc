#include "worker/stacks/stack_sampler.h"

#include <poll.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include <absl/strings/str_format.h>

#include "worker/stacks/lone_thread.h"
#include "worker/stacks/proc_files.h"
#include "worker/stacks/process_reader.h"

namespace muster::worker {
namespace {

constexpr size_t kTargetsMax = 256;  // ranks of one node
constexpr size_t kReadersKeptMax = 64;
constexpr Duration kFarewell = std::chrono::seconds(1);
// Part of the deadline reserved for work after a reader's own waits.
constexpr Duration kReserveMax = std::chrono::milliseconds(100);

bool has_ended(int pidfd) {
  pollfd state{.fd = pidfd, .events = POLLIN, .revents = 0};
  return pidfd >= 0 && poll(&state, 1, 0) > 0;
}

// Returns the reason why a process was not read in time, from data that does not block.
// Uninterruptible sleep is the reason itself; otherwise the reader was slow.
std::string delay(pid_t pid, Duration waited) {
  const auto stat = read_task_stat(kProcRoot, pid);
  const char state = stat ? stat->state : '?';
  const std::string channel = read_wait_channel(kProcRoot, pid, pid);
  return absl::StrFormat("%s within %.3g s (state %c%s%s)",
                         state == 'D' ? "did not answer" : "its worker could not read it",
                         to_seconds(waited), state, channel.empty() ? "" : ", waits in ", channel);
}

}  // namespace

class StackSampler::Impl : public std::enable_shared_from_this<StackSampler::Impl> {
 public:
  explicit Impl(const StackSamplerOptions& options) : py_spy_(options.py_spy) {}

  StackSample sample(std::span<const StackTarget> targets, Instant deadline) {
    const Instant now = monotonic_now();
    const Duration reserve = std::clamp((deadline - now) / 10, Duration{}, kReserveMax);
    const auto round = std::make_shared<Round>();
    round->readings.resize(targets.size());
    std::vector<size_t> busy;  // targets that another call reads
    for (size_t i = 0; i < targets.size(); ++i) busy.push_back(i);

    std::unique_lock lock(mutex_);
    while (!stopped_) {
      std::erase_if(busy,
                    [&](size_t i) { return start(targets[i], deadline - reserve, round, i); });
      const Duration left = deadline - monotonic_now();
      if ((busy.empty() && round->pending == 0) || left <= Duration::zero()) break;
      changed_.wait_for(lock, left);  // wait_until would use another clock
    }
    StackSample sample;
    for (size_t i = 0; i < targets.size(); ++i) {
      std::optional<Reading>& reading = round->readings[i];
      if (!reading) {
        reading = problem(targets[i],
                          stopped_ ? "its worker leaves" : delay(targets[i].pid, deadline - now));
      }
      append(*std::move(reading), sample);
    }
    return sample;
  }

  void stop() {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
    changed_.notify_all();
  }

  void send_farewell() {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, kFarewell, [this] { return running_ == 0; });
  }

 private:
  // The result of one reader.
  struct Reading {
    RankStacks stacks;
    std::vector<StackModule> modules;  // modules of the frames in `stacks`
  };
  // One call of sample(); its readers may outlive it.
  struct Round {
    std::vector<std::optional<Reading>> readings;
    size_t pending = 0;
  };
  // A process with cached module data.
  struct Known {
    std::shared_ptr<ProcessReader> reader;
    uint64_t start_ticks = 0;
    bool busy = false;
    Instant until;  // its reader's deadline
    Instant used;
  };

  static void append(Reading&& reading, StackSample& sample) {
    std::vector<uint32_t> places;
    for (const StackModule& module : reading.modules)
      places.push_back(module_index(module, sample.modules));
    for (ThreadStack& thread : reading.stacks.threads) {
      for (StackFrame& frame : thread.frames) {
        if (frame.module != kNoModule) frame.module = places.at(frame.module);
      }
    }
    sample.ranks.push_back(std::move(reading.stacks));
  }
  static Reading problem(const StackTarget& target, std::string text) {
    Reading reading;
    reading.stacks.rank = target.rank;
    reading.stacks.pid = target.pid;
    reading.stacks.problem = std::move(text);
    return reading;
  }

  // Requires the lock. Returns false if another call reads the process now.
  bool start(const StackTarget& target, Instant deadline, const std::shared_ptr<Round>& round,
             size_t index) {
    const auto refuse = [&](const char* why) {
      round->readings[index] = problem(target, why);
      return true;
    };
    const auto stat = read_task_stat(kProcRoot, target.pid);
    if (!stat || has_ended(target.pidfd)) return refuse("dead");
    if (index >= kTargetsMax) return refuse("more processes than are read at once");
    Known& known = find(target, stat->start_ticks);
    if (known.busy && monotonic_now() > known.until)
      return refuse("an earlier reader still waits for it in the kernel");
    if (known.busy) return false;
    known.busy = true;
    known.until = deadline;
    ++running_;
    ++round->pending;
    const bool started =
        start_lone_thread([self = shared_from_this(), reader = known.reader, target, deadline,
                           round, index] { self->run(*reader, target, deadline, *round, index); });
    if (started) return true;
    known.busy = false;
    --running_;
    --round->pending;
    return refuse("no thread could be started to read it");
  }

  void run(ProcessReader& reader, const StackTarget& target, Instant deadline, Round& round,
           size_t index) {
    Reading reading;
    reading.stacks = reader.read(py_spy_, target.self_stacks, deadline, reading.modules);
    reading.stacks.rank = target.rank;
    // The pid may belong to another process by now.
    if (has_ended(target.pidfd)) reading = problem(target, "died while it was read");
    const std::lock_guard lock(mutex_);
    round.readings[index] = std::move(reading);
    --round.pending;
    --running_;
    for (auto& [pid, known] : known_) {
      if (known.reader.get() == &reader) known.busy = false;
    }
    changed_.notify_all();
  }

  // Requires the lock.
  Known& find(const StackTarget& target, uint64_t start_ticks) {
    const pid_t pid = target.pid;
    const auto found = known_.find(pid);
    const bool same_life = found != known_.end() && found->second.start_ticks == start_ticks;
    // A blocked reader keeps its data.
    if (!same_life) known_.erase(pid);
    if (known_.size() >= kReadersKeptMax && !known_.contains(pid)) forget_oldest();
    Known& known = known_[pid];
    if (known.reader == nullptr) {
      known.reader =
          std::make_shared<ProcessReader>(kProcRoot, pid, start_ticks, &images_, target.user);
      known.start_ticks = start_ticks;
    }
    known.used = monotonic_now();
    return known;
  }

  void forget_oldest() {
    auto oldest = known_.end();
    for (auto it = known_.begin(); it != known_.end(); ++it) {
      if (it->second.busy) continue;
      if (oldest == known_.end() || it->second.used < oldest->second.used) oldest = it;
    }
    if (oldest != known_.end()) known_.erase(oldest);
  }

  const PySpy py_spy_;
  ModuleImages images_;  // outlives the readers
  std::mutex mutex_;     // guards the members below, and rounds
  std::condition_variable changed_;
  std::map<pid_t, Known> known_;
  size_t running_ = 0;
  bool stopped_ = false;
};

StackSampler::StackSampler(const StackSamplerOptions& options)
    : impl_(std::make_shared<Impl>(options)) {}
StackSampler::~StackSampler() { impl_->send_farewell(); }

StackSample StackSampler::sample(std::span<const StackTarget> targets, Instant deadline) {
  return impl_->sample(targets, deadline);
}

void StackSampler::stop() { impl_->stop(); }

}  // namespace muster::worker
