#include "coordinator/core/incident/crash_evidence.h"

#include <algorithm>
#include <set>
#include <utility>

#include <absl/strings/str_cat.h>

namespace muster::coordinator {
namespace {

constexpr char kEnded[] = "it has ended";
constexpr char kNotRead[] = "a rank that has ended needs none to be named";

// Returns the evidence from the rank's heartbeats. Only its page would also show collectives.
RankEvidence last_evidence(const Job& job, Rank rank, Instant now) {
  RankEvidence evidence;
  evidence.rank = rank.value();
  evidence.stack_problem = kNotRead;
  const RankState& state = job.ranks[static_cast<size_t>(rank.value())];
  evidence.pid = state.pid;
  if (state.pid == 0 && state.step < 0) {
    evidence.page_problem = "no report of it has arrived";
    return evidence;
  }
  evidence.phase = state.phase;
  evidence.step = state.step;
  evidence.step_seconds = state.step_seconds;
  if (state.last_progress != Instant{})
    evidence.progress_age = std::max(now - state.last_progress, Duration::zero());
  evidence.process_state = state.process_state;
  return evidence;
}

// Adds the evidence that the rank left behind. An unreadable page, which may never have existed,
// does not replace the evidence from heartbeats.
void take_end(RankEvidence& known, const RankEvidence& left) {
  RankEvidence taken = left;
  if (!left.page_problem.empty()) {
    const std::string problem = known.page_problem.empty() ? "" : left.page_problem;
    taken = known;
    taken.page_problem = problem;
    if (left.pid > 0) taken.pid = left.pid;
    if (!left.last_lines.empty()) taken.last_lines = left.last_lines;
  } else if (left.last_lines.empty()) {
    taken.last_lines = known.last_lines;
  }
  taken.rank = known.rank;
  taken.process_state = '?';
  taken.stack_problem = kEnded;
  known = std::move(taken);
}

std::vector<Rank> ranks_to_describe(const Job& job, const Fault& fault) {
  std::vector<Rank> order;
  if (fault.rank.value() >= 0) order.push_back(fault.rank);
  for (const RankExit& exit : job.exits) order.push_back(exit.rank);
  std::vector<Rank> others;
  for (const RankPlacement& rank : job.placement) others.push_back(rank.rank);
  const auto step = [&](Rank rank) { return job.ranks[static_cast<size_t>(rank.value())].step; };
  std::ranges::stable_sort(others, [&](Rank a, Rank b) { return step(a) < step(b); });
  order.insert(order.end(), others.begin(), others.end());
  std::set<Rank> seen;
  std::erase_if(order, [&](Rank rank) {
    return rank.value() >= std::ssize(job.ranks) || !seen.insert(rank).second;
  });
  order.resize(std::min(order.size(), kIncidentRanksMax));
  return order;
}

}  // namespace

void CrashEvidence::add(Rank rank, const WorkerName& worker, const EndEvidence& left) {
  if (ended.size() < kIncidentRanksMax || ended.contains(rank))
    ended.insert_or_assign(rank, left.rank);
  for (const std::string& message : left.kernel_messages) {
    std::string line = absl::StrCat(worker.value(), ": ", message);
    if (kernel_messages.size() < kKernelMessagesMax &&
        std::ranges::find(kernel_messages, line) == kernel_messages.end())
      kernel_messages.push_back(std::move(line));
  }
}

void take_crash_evidence(Incident& incident, const Job& job, const Fault& fault,
                         const CrashEvidence& crash, Instant now) {
  incident.ranks.clear();
  for (const Rank rank : ranks_to_describe(job, fault)) {
    RankEvidence& evidence = incident.ranks.emplace_back(last_evidence(job, rank, now));
    const auto exit = std::ranges::find(job.exits, rank, &RankExit::rank);
    if (exit != job.exits.end()) {
      evidence.stack_problem = kEnded;
      evidence.process_state = '?';
      evidence.step = std::max(evidence.step, exit->last_step);
      if (!exit->detail.empty()) evidence.last_lines = {exit->detail};
    }
    if (const auto left = crash.ended.find(rank); left != crash.ended.end())
      take_end(evidence, left->second);
  }
  incident.kernel_messages = crash.kernel_messages;
}

bool complete_crash_evidence(Incident& incident, const CrashEvidence& crash) {
  bool changed = incident.kernel_messages != crash.kernel_messages;
  incident.kernel_messages = crash.kernel_messages;
  for (RankEvidence& rank : incident.ranks) {
    const auto left = crash.ended.find(Rank(rank.rank));
    if (left == crash.ended.end()) continue;
    const RankEvidence before = rank;
    take_end(rank, left->second);
    changed = changed || rank != before;
  }
  return changed;
}

}  // namespace muster::coordinator
