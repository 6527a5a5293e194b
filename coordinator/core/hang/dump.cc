#include "coordinator/core/hang/dump.h"

#include <algorithm>

#include <absl/strings/str_cat.h>

#include "common/job/group_channels.h"

namespace muster::coordinator {
namespace {

// The bound of stored kernel messages. The newest are stored, because on a failing node they show
// the cause.
constexpr size_t kKernelMessagesPerDump = 200;

// Returns the call paths of the main threads by rank, without the innermost call, which changes in
// a loop that makes no progress.
std::map<int32_t, std::string> paths_of(const StackTree& tree, const std::set<int32_t>& ranks) {
  std::map<int32_t, std::string> paths;
  for (const StackTree::Class& place : tree.classes("main")) {
    std::string path;
    for (size_t i = 0; i + 1 < place.frames.size(); ++i) {
      const StackFrame& frame = tree.frames()[place.frames[i]];
      if (frame.module == kNoModule) {
        absl::StrAppend(&path, frame.text, ";");
      } else {
        const StackModule& module = tree.modules()[frame.module];
        absl::StrAppend(&path, module.build_id.empty() ? module.path : module.build_id, "+",
                        frame.address, ";");
      }
    }
    for (const RankSet::Range& range : place.ranks.ranges()) {
      for (auto rank = ranks.lower_bound(range.first); rank != ranks.end() && *rank <= range.last;
           ++rank)
        paths[*rank] = path;
    }
  }
  return paths;
}

// Returns whether the rank cannot continue by itself. A rank that a debugger holds ('t') may
// continue: a user is investigating it.
bool is_halted(const RankEvidence& before, const RankEvidence& after) {
  const auto halted = [](char state) { return state == 'T' || state == 'Z'; };
  return halted(before.process_state) && halted(after.process_state);
}

// Returns whether the processes did nothing in the `elapsed` time. Idle libraries have threads that
// wake up now and then.
bool is_idle(const ProcessActivity& before, const ProcessActivity& after, Duration elapsed) {
  constexpr double kCpuShareMax = 0.02;
  constexpr Duration kCpuMin = std::chrono::milliseconds(20);  // two ticks of the kernel's clock
  constexpr double kIoBytesPerSecondMax = 4096;
  const auto cpu_max = kCpuMin + std::chrono::duration_cast<Duration>(kCpuShareMax * elapsed);
  const double io_max = kIoBytesPerSecondMax * (1 + to_seconds(elapsed));
  const auto still = [](const ProcessActivity& activity) {
    return activity.is_known && activity.busy == 0 && !activity.is_asleep && !activity.has_device;
  };
  return still(before) && still(after) && after.cpu - before.cpu <= cpu_max &&
         static_cast<double>(after.io_bytes) <= static_cast<double>(before.io_bytes) + io_max;
}

bool made_progress(const RankEvidence& before, const RankEvidence& after) {
  if (before.step != after.step || before.phase != after.phase) return true;
  for (const GroupEvidence& group : after.groups) {
    if (is_background(group)) continue;
    const auto same = std::find_if(before.groups.begin(), before.groups.end(), [&](const auto& g) {
      return g.name == group.name && g.id == group.id;
    });
    if (same == before.groups.end() || same->enqueued != group.enqueued ||
        same->completed != group.completed) {
      return true;
    }
  }
  return false;
}

// The collectives that ranks wait in, and how many members have entered each. A collective that all
// members have entered with the same call may still complete.
class Meetings {
 public:
  void add(const RankEvidence& rank) {
    for (const GroupEvidence& group : rank.groups) {
      if (is_background(group)) continue;
      Meeting& meeting = meetings_[{group.name, group.id}];
      meeting.members = std::max(meeting.members, group.members);
      ++meeting.seen;
      if (!group.is_inside()) continue;
      if (meeting.inside++ == 0) {
        meeting.completed = group.completed;
        meeting.number = group.number();
        meeting.kind = group.kind;
      }
      // The page may show the kind of the newest enqueued call, and some members may have enqueued
      // more calls.
      meeting.same = meeting.same && group.completed == meeting.completed &&
                     (group.number() != meeting.number || group.kind == meeting.kind);
    }
  }

  bool some_is_whole() const {
    return std::any_of(meetings_.begin(), meetings_.end(), [](const auto& entry) {
      const Meeting& meeting = entry.second;
      // A group that reports no size is as large as the number of ranks that show it. A message may
      // show only one of its ends.
      const uint32_t members = std::max(meeting.members, meeting.seen);
      const bool message =
          meeting.kind == CollectiveKind::kSend || meeting.kind == CollectiveKind::kRecv;
      return meeting.inside > 0 && meeting.inside == members && meeting.same && !message;
    });
  }

 private:
  struct Meeting {
    uint32_t members = 0;
    uint32_t seen = 0;
    uint32_t inside = 0;
    uint64_t completed = 0;
    uint64_t number = 0;
    CollectiveKind kind = CollectiveKind::kNone;
    bool same = true;
  };
  std::map<std::pair<std::string, uint32_t>, Meeting> meetings_;
};

}  // namespace

bool is_background(const GroupEvidence& group) {
  return group.channel() >= kFirstBackgroundChannel;
}

bool is_waiting_for_peers(const RankEvidence& rank) {
  return std::any_of(rank.groups.begin(), rank.groups.end(),
                     [](const auto& group) { return group.is_inside() && !is_background(group); });
}

Dump::Dump(JobId job, Attempt attempt, int32_t samples, Requested requested)
    : job_(job),
      attempt_(attempt),
      samples_(static_cast<size_t>(samples)),
      requested_(std::move(requested)) {
  for (const auto& [worker, ranks] : requested_) waiting_.insert(worker);
}

bool Dump::add(const StackReportReceived& report) {
  const auto requested = requested_.find(report.worker);
  const bool wanted = report.job == job_ && report.attempt == attempt_ &&
                      requested != requested_.end() && report.sample >= 0 &&
                      report.sample < std::ssize(samples_);
  if (!wanted) return false;
  Sample& sample = samples_[static_cast<size_t>(report.sample)];
  if (!sample.from.insert(report.worker).second) return false;
  sample.stacks.add(report.stacks);
  for (const RankEvidence& rank : report.ranks) {
    const bool theirs = std::find(requested->second.begin(), requested->second.end(),
                                  Rank(rank.rank)) != requested->second.end();
    if (theirs) sample.ranks.insert_or_assign(rank.rank, rank);
  }
  for (const StackModule& module : report.stacks.modules()) modules_.emplace(module, report.worker);
  kernel_messages_[report.worker] = report.kernel_messages;
  const bool all = std::all_of(samples_.begin(), samples_.end(),
                               [&](const Sample& s) { return s.from.contains(report.worker); });
  if (all) waiting_.erase(report.worker);
  return true;
}

std::vector<WorkerName> Dump::silent() const {
  std::vector<WorkerName> silent;
  for (const auto& requested : requested_) {
    const WorkerName& worker = requested.first;
    const bool sent = std::any_of(samples_.begin(), samples_.end(), [&](const Sample& sample) {
      return sample.from.contains(worker);
    });
    if (!sent) silent.push_back(worker);
  }
  return silent;
}

std::vector<RankEvidence> Dump::ranks(size_t sample) const {
  std::vector<RankEvidence> ranks;
  for (const auto& [rank, evidence] : samples_[sample].ranks) ranks.push_back(evidence);
  return ranks;
}

std::vector<RankEvidence> Dump::newest_ranks() const {
  std::map<int32_t, RankEvidence> newest;
  for (const Sample& sample : samples_) {
    for (const auto& [rank, evidence] : sample.ranks) newest.insert_or_assign(rank, evidence);
  }
  for (const auto& [worker, requested] : requested_) {
    for (const Rank rank : requested) {
      RankEvidence absent;
      absent.rank = rank.value();
      absent.page_problem = absent.stack_problem =
          absl::StrCat("worker ", worker.value(), " did not answer");
      newest.try_emplace(rank.value(), std::move(absent));
    }
  }
  std::vector<RankEvidence> ranks;
  for (auto& [rank, evidence] : newest) ranks.push_back(std::move(evidence));
  return ranks;
}

StackTree Dump::newest_stacks() const {
  const auto newest = std::find_if(samples_.rbegin(), samples_.rend(),
                                   [](const Sample& sample) { return !sample.from.empty(); });
  return newest == samples_.rend() ? StackTree() : newest->stacks.total();
}

std::vector<std::string> Dump::kernel_messages() const {
  std::vector<std::string> messages;
  for (const auto& [worker, lines] : kernel_messages_) {
    for (const std::string& line : lines) {
      if (messages.size() < kKernelMessagesPerDump)
        messages.push_back(absl::StrCat(worker.value(), ": ", line));
    }
  }
  return messages;
}

WorkerName Dump::worker_with(const StackModule& module) const {
  const auto found = modules_.find(module);
  return found == modules_.end() ? WorkerName() : found->second;
}

JobStackDump Dump::to_stack_dump() const {
  return {job_, attempt_, newest_stacks(), newest_ranks(), silent()};
}

Activities activities_in(const Dump& dump, size_t sample, const std::map<Rank, std::string>& gone) {
  Activities activities;
  for (const RankEvidence& rank : dump.ranks(sample)) {
    if (!gone.contains(Rank(rank.rank))) activities.emplace(rank.rank, rank.activity);
  }
  return activities;
}

Standstill standstill_in(const Dump& dump, const std::map<Rank, std::string>& gone,
                         const Activities& since, Duration elapsed) {
  constexpr Duration kSamplesApart = std::chrono::seconds(1);
  const Activities first = activities_in(dump, 0, gone);
  bool idle = true;
  for (const RankEvidence& rank : dump.ranks(dump.samples() - 1)) {
    if (gone.contains(Rank(rank.rank))) continue;
    const auto before = first.find(rank.rank);
    if (before == first.end()) return Standstill::kMayContinue;
    if (is_waiting_for_peers(rank)) continue;
    const auto earlier = since.find(rank.rank);
    const bool does_nothing =
        is_idle(before->second, rank.activity, kSamplesApart) &&
        (earlier == since.end() || is_idle(earlier->second, rank.activity, elapsed));
    const int32_t stopped = rank.activity.stopped_pid;
    if (does_nothing && stopped > 0 && stopped == before->second.stopped_pid)
      return Standstill::kStoppedChild;
    idle = idle && does_nothing;
  }
  return idle ? Standstill::kIdle : Standstill::kMayContinue;
}

Motion motion_in(const Dump& dump, const std::map<Rank, std::string>& gone) {
  std::map<int32_t, RankEvidence> first;
  for (RankEvidence& rank : dump.ranks(0)) first.emplace(rank.rank, std::move(rank));
  std::set<int32_t> free;  // ranks that wait for no other
  Meetings meetings;
  bool halted = false;
  bool unseen = false;
  std::set<int32_t> seen;
  for (const RankEvidence& rank : dump.ranks(dump.samples() - 1)) {
    const auto before = first.find(rank.rank);
    if (before == first.end() || gone.contains(Rank(rank.rank))) continue;
    seen.insert(rank.rank);
    halted = halted || is_halted(before->second, rank);
    if (!rank.page_problem.empty() || !before->second.page_problem.empty()) {
      free.insert(rank.rank);
      continue;
    }
    if (made_progress(before->second, rank)) return Motion::kProgress;
    meetings.add(rank);
    if (!is_waiting_for_peers(rank)) free.insert(rank.rank);
  }
  for (const auto& [worker, ranks] : dump.requested()) {
    unseen = unseen || std::any_of(ranks.begin(), ranks.end(), [&](const Rank rank) {
               return !seen.contains(rank.value()) && !gone.contains(rank);
             });
  }
  if (halted) return Motion::kNone;
  const auto before = paths_of(dump.stacks(0), free);
  const auto after = paths_of(dump.stacks(dump.samples() - 1), free);
  const bool moved = std::any_of(after.begin(), after.end(), [&](const auto& entry) {
    const auto was = before.find(entry.first);
    return was != before.end() && was->second != entry.second;
  });
  if (moved) return Motion::kStacks;
  if (unseen) return Motion::kUnseen;
  return !free.empty() || meetings.some_is_whole() ? Motion::kUnsure : Motion::kNone;
}

BlameInput blame_input(const Job& job, const Dump& dump, std::map<Rank, std::string> gone) {
  BlameInput input;
  input.placement = job.placement;
  input.gone = std::move(gone);
  if (dump.samples() > 1) input.earlier = {dump.ranks(0), dump.stacks(0)};
  input.later = {dump.newest_ranks(), dump.newest_stacks()};
  return input;
}

}  // namespace muster::coordinator
