#include "coordinator/core/attempt/first_fault.h"

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <absl/strings/str_cat.h>

#include "common/text/escape.h"
#include "coordinator/core/attempt/lost_link.h"
#include "coordinator/core/blame/blame_text.h"
#include "coordinator/core/recovery/log_verdict.h"
#include "coordinator/core/recovery/rank_faults.h"
#include "coordinator/core/recovery/restart_policy.h"

namespace muster::coordinator {
namespace {

constexpr size_t kGroupNameBytesMax = 64;

struct FirstFault {
  Rank rank{-1};
  std::string why;  // a clause whose subject is the rank
};

// The last collective of a member of a group, from its page.
struct Member {
  int32_t rank = -1;
  int64_t step = -1;
  GroupEvidence group;
};
// Without the bytes: members may send different numbers of them.
using LastCall = std::tuple<uint64_t, CollectiveKind, std::string>;

LastCall last_call(const GroupEvidence& group) {
  return {group.enqueued, group.kind, group.collective};
}

// Returns the only element whose key differs from the key of all others; nullptr if there is none,
// or if there are less than three elements.
template <class Element, class Key>
const Element* odd_one(const std::vector<Element>& elements, Key key) {
  if (elements.size() < 3) return nullptr;
  using Value = decltype(key(elements[0]));
  std::map<Value, std::vector<const Element*>> parts;
  for (const Element& element : elements) parts[key(element)].push_back(&element);
  if (parts.size() != 2) return nullptr;
  for (const auto& [value, part] : parts)
    if (part.size() == 1) return part[0];
  return nullptr;
}

std::string call_of(const Member& member) {
  const uint64_t count = member.group.enqueued;
  std::string text =
      absl::StrCat("entered ", count, count == 1 ? " collective of " : " collectives of ",
                   printable(member.group.name, kGroupNameBytesMax));
  if (member.step >= 0) absl::StrAppend(&text, " by step ", member.step);
  if (count > 0) absl::StrAppend(&text, ", the last one ", call_text(member.group));
  return text;
}

// Messages between two ranks have other numbers on each rank.
bool is_between_two(const Member& member) {
  const CollectiveKind kind = member.group.kind;
  return kind == CollectiveKind::kSend || kind == CollectiveKind::kRecv ||
         kind == CollectiveKind::kSendRecv;
}

std::optional<FirstFault> by_collectives(const CrashEvidence& crash) {
  std::map<std::pair<std::string, uint32_t>, std::vector<Member>> groups;
  for (const auto& [rank, evidence] : crash.ended) {
    if (!evidence.page_problem.empty()) continue;
    for (const GroupEvidence& group : evidence.groups)
      groups[{group.name, group.id}].push_back({rank.value(), evidence.step, group});
  }
  for (const auto& [name, members] : groups) {
    // A member that still runs may be the one that differs.
    const bool is_whole = std::ranges::all_of(members, [&](const Member& member) {
      return member.group.members == 0 || member.group.members == members.size();
    });
    if (!is_whole || std::ranges::any_of(members, is_between_two)) continue;
    const Member* odd =
        odd_one(members, [](const Member& member) { return last_call(member.group); });
    if (odd == nullptr && members.size() == 2) {
      // A rank that leaves a collective out gets ahead of its peer.
      const Member &a = members[0], &b = members[1];
      if (a.step > b.step && a.group.enqueued <= b.group.enqueued) odd = &a;
      if (b.step > a.step && b.group.enqueued <= a.group.enqueued) odd = &b;
    }
    if (odd == nullptr) continue;
    const Member& other = odd == &members[0] ? members[1] : members[0];
    return FirstFault{
        Rank(odd->rank),
        absl::StrCat("has ", call_of(*odd), ", where ",
                     members.size() == 2 ? "the other one" : "the others", " ", call_of(other))};
  }
  return std::nullopt;
}

std::optional<FirstFault> by_steps(const Job& job) {
  std::vector<std::pair<int32_t, int64_t>> steps;
  for (size_t rank = 0; rank < job.ranks.size(); ++rank)
    steps.emplace_back(static_cast<int32_t>(rank), job.ranks[rank].step);
  for (const RankExit& exit : job.exits) {
    int64_t& step = steps[static_cast<size_t>(exit.rank.value())].second;
    step = std::max(step, exit.last_step);
  }
  const auto* odd = odd_one(steps, [](const auto& entry) { return entry.second; });
  if (odd == nullptr) return std::nullopt;
  const int64_t others = odd == &steps[0] ? steps[1].second : steps[0].second;
  // A rank that reports no steps is not behind, and one that was ahead may have waited for others.
  if (odd->second < 0 || odd->second > others) return std::nullopt;
  return FirstFault{
      Rank(odd->first),
      absl::StrCat("has completed ", odd->second, odd->second == 1 ? " step" : " steps",
                   ", where the others have ", "completed ", others)};
}

// Returns the only rank that has not ended, if the job has more than two.
std::optional<Rank> only_running(const Job& job) {
  std::vector<int32_t> alive;
  for (size_t rank = 0; rank < job.ranks.size(); ++rank)
    if (job.ranks[rank].life != RankState::Life::kExited)
      alive.push_back(static_cast<int32_t>(rank));
  if (alive.size() != 1 || job.ranks.size() <= 2) return std::nullopt;
  return Rank(alive[0]);
}

// Returns the rank whose exit or collectives show that it left the others.
std::optional<FirstFault> shown_fault(const Job& job, const CrashEvidence& crash) {
  // Reports arrive in order.
  const auto witness = std::ranges::find_if(job.exits, is_witness);
  const auto leaver = std::find_if(job.exits.begin(), witness, is_success);
  const auto finished = std::count_if(job.exits.begin(), witness, is_success);
  if (leaver != witness && 2 * finished <= std::ssize(job.ranks))
    return FirstFault{leaver->rank, "has exited with code 0 before the others were through"};
  return only_running(job) ? std::nullopt : by_collectives(crash);
}

// Returns the rank that differs from the others in a way that a lost link explains, too.
std::optional<FirstFault> likely_fault(const Job& job) {
  if (const std::optional<Rank> rank = only_running(job))
    return FirstFault{*rank, "is the only rank that still runs"};
  return by_steps(job);
}

}  // namespace

Fault fault_of_witnesses(const Job& job, const CrashEvidence& crash, int64_t unix_ns) {
  const RankExit& witness = *std::ranges::find_if(job.exits, is_witness);
  const auto worker_of = [&](Rank rank) {
    return job.placement[static_cast<size_t>(rank.value())].worker;
  };
  Fault reported = fault_of(witness, worker_of(witness.rank), unix_ns);
  if (!witness.lost_link.empty()) absl::StrAppend(&reported.message, "; ", witness.lost_link);
  std::optional<FirstFault> found = shown_fault(job, crash);
  if (!found)
    if (std::optional<Fault> of_link = fault_of_lost_link(job, unix_ns)) return *std::move(of_link);
  if (!found) found = likely_fault(job);
  if (!found || found->rank == witness.rank) {
    if (found) absl::StrAppend(&reported.message, "; it ", found->why);
    return reported;
  }
  Fault fault = reported;
  fault.rank = found->rank;
  fault.worker = worker_of(found->rank);
  fault.last_step =
      std::max(fault.last_step, job.ranks[static_cast<size_t>(found->rank.value())].step);
  fault.message = absl::StrCat(rank_and_node_text(found->rank.value(), job.placement), " ",
                               found->why, "; ", reported.message);
  return fault;
}

}  // namespace muster::coordinator
