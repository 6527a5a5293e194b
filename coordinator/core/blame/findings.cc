#include "coordinator/core/blame/findings.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <set>
#include <tuple>

#include <absl/strings/str_cat.h>

#include "common/text/absl_view.h"
#include "coordinator/core/blame/blame_text.h"

namespace muster::coordinator {
namespace {

// Points of the table in blame.h.
constexpr double kFindingPoints = 9, kAllEnteredPoints = 4, kElsewherePoints = 6,
                 kTransportPoints = 5, kStackPoints = 5, kAsidePoints = 3, kVictimPoints = 0.3;

std::vector<int32_t> ranks_inside(const WaitGraph::Instance& instance) {
  std::vector<int32_t> ranks;
  for (const WaitGraph::Member& member : instance.inside) ranks.push_back(member.rank);
  return ranks;
}

// The properties of a collective that must be equal on all members of a group. The bytes of an
// all-to-all may differ.
using Call = std::tuple<CollectiveKind, uint32_t, uint64_t, std::string>;
Call call_of(const GroupEvidence& group) {
  const bool bytes_may_differ = group.kind == CollectiveKind::kAllToAll;
  return {group.kind, group.dtype, bytes_may_differ ? 0 : group.bytes, group.collective};
}

}  // namespace

Findings::Findings(const BlameFacts& facts, const WaitGraph& graph)
    : facts_(facts), graph_(graph), witnesses_(facts.views(), graph) {
  for (const WaitGraph::End& end : graph_.ends()) judge_end(end);
  for (size_t i = 0; i < graph_.instances().size(); ++i) judge_mismatch(i);
  judge_halted();
  judge_left_over();
  if (candidates_.empty()) judge_python_waits();
  if (candidates_.empty()) judge_phases();
  if (candidates_.empty()) judge_steps();
  if (candidates_.empty()) judge_stacks();
  add_runner_up();
}

std::vector<int32_t> Findings::all_ranks() const {
  std::vector<int32_t> ranks(facts_.views().size());
  for (size_t i = 0; i < ranks.size(); ++i) ranks[i] = static_cast<int32_t>(i);
  return ranks;
}

std::vector<int32_t> Findings::all_inside() const {
  std::vector<int32_t> ranks;
  for (const Instance& instance : graph_.instances())
    for (const WaitGraph::Member& member : instance.inside) ranks.push_back(member.rank);
  std::sort(ranks.begin(), ranks.end());
  ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
  return ranks;
}

void Findings::add(int32_t rank, Candidate candidate, const BlameFacts::UsualStack& usual) {
  if (rank != kNoRank) {
    candidate.points += facts_.points(rank);
    const double departure = usual.departure(rank);
    candidate.points += kStackPoints * departure;
    std::vector<std::string> clauses = facts_.clauses(rank);
    if (departure > 0) clauses.push_back("stands elsewhere than the others");
    for (const std::string& clause : clauses)
      absl::StrAppend(&candidate.why, candidate.why.empty() ? "" : "; it ", clause);
  }
  const auto [place, is_new] = candidates_.try_emplace(rank, candidate);
  if (!is_new && place->second.points < candidate.points) place->second = std::move(candidate);
}

void Findings::judge_end(const WaitGraph::End& end) {
  if (end.instances.empty()) return judge_behind(end.ranks);
  if (end.ranks.empty()) return judge_all_entered(end.instances[0]);
  // A main thread that is in no collective does not visibly wait, so there may be no cycle.
  if (!end.soft.empty()) return judge_behind(end.soft);
  judge_cycle(end);
}

const Findings::Words& Findings::words_of(size_t index) {
  const auto [place, is_new] = words_.try_emplace(index);
  Words& words = place->second;
  if (!is_new) return words;
  const Instance& instance = graph_.instances()[index];
  words.inside_ranks = ranks_of(instance.inside);
  words.what = collective_text(graph_, instance);
  words.age = wait_text(instance.inside);
  words.inside_text = ranks_text(words.inside_ranks);
  words.wait =
      absl::StrCat(words.inside_text, instance.inside.size() == 1 ? " waits" : " wait", words.age);
  words.awaited = ranks_text(ranks_of(graph_.absent(instance)));
  return words;
}

// Returns the reason why other ranks wait for this rank in the collective: a clause. Sets `shape`,
// and `share` to the probability that this rank is the missing one.
std::string Findings::behind_text(int32_t rank, size_t index, HangShape& shape, double& share) {
  const Instance& instance = graph_.instances()[index];
  const WaitGraph::Group& group = graph_.groups()[instance.group];
  const Words& words = words_of(index);
  if (words.inside_ranks.contains(rank))
    return absl::StrCat("stands still inside ", words.what, " with the others of ",
                        words.inside_text, words.age);
  const auto member = std::lower_bound(group.members.begin(), group.members.end(), rank,
                                       [](const auto& m, int32_t r) { return m.rank < r; });
  const bool is_shown = member != group.members.end() && member->rank == rank;
  if (is_shown || facts_.view(rank).evidence == nullptr) {
    if (instance.seq == 0)
      return absl::StrCat("is not at the other end of ", words.what, ", in which ", words.wait);
    return absl::StrCat("never entered ", words.what, ", in which ", words.wait);
  }
  shape = HangShape::kNeverJoined;
  if (group.pool != WaitGraph::kNoPool) {
    const auto places = static_cast<double>(group.size - group.members.size());
    share = std::min(1.0, places / static_cast<double>(graph_.pool_of(group).size()));
  }
  return absl::StrCat("never joined the group of ", words.what, ", in which ", words.wait);
}

void Findings::judge_behind(const std::vector<int32_t>& ranks) {
  std::vector<int32_t> among = ranks;
  for (const int32_t rank : ranks)
    for (const size_t i : graph_.waiting_in(rank))
      for (const int32_t waiting : ranks_inside(graph_.instances()[i])) among.push_back(waiting);
  std::sort(among.begin(), among.end());
  among.erase(std::unique(among.begin(), among.end()), among.end());
  const BlameFacts::UsualStack usual = facts_.usual_stack_of(among);
  for (const int32_t rank : ranks) {
    Candidate candidate{.shape = HangShape::kBehind, .instance = no_instance(), .why = {}};
    double share = 1.0 / static_cast<double>(ranks.size());
    const std::vector<size_t> waiting = graph_.waiting_in(rank);
    if (waiting.empty()) {
      candidate.why = "is waited for";
    } else {
      candidate.instance = waiting[0];
      candidate.why = behind_text(rank, waiting[0], candidate.shape, share);
    }
    if (facts_.view(rank).halted) candidate.shape = HangShape::kHalted;
    candidate.points = kFindingPoints * share;
    add(rank, std::move(candidate), usual);
  }
}

// Blames the ranks with the worst testimony in the cycle: those that witnesses contradict, if there
// are any, and so on up to those that witnesses support.
void Findings::judge_cycle(const WaitGraph::End& end) {
  std::map<int32_t, size_t> where;  // rank → the instance of the cycle that it is in
  for (const size_t i : end.instances)
    for (const WaitGraph::Member& member : graph_.instances()[i].inside)
      where.try_emplace(member.rank, i);
  std::map<int32_t, Testimony> testimonies;
  std::map<Testimony, int> counts;
  for (const int32_t rank : end.ranks) {
    const auto at = where.find(rank);
    if (at == where.end()) continue;
    const Testimony testimony = witnesses_.on(rank, at->second);
    testimonies[rank] = testimony;
    ++counts[testimony];
  }
  const BlameFacts::UsualStack usual = facts_.usual_stack_of(end.ranks);
  for (const auto& [rank, testimony] : testimonies) {
    const auto& [worst, culprits] = *counts.rbegin();
    const Words& own = words_of(where[rank]);
    Candidate candidate{.points = testimony == worst ? kFindingPoints / culprits : kVictimPoints,
                        .shape = HangShape::kDeadlock,
                        .instance = where[rank],
                        .why = absl::StrCat("waits in ", own.what, " for ", own.awaited)};
    if (const auto waiting = graph_.waiting_in(rank); !waiting.empty()) {
      const Words& other = words_of(waiting[0]);
      absl::StrAppend(&candidate.why, ", while ", other.wait, " for it in ", other.what);
      candidate.instance = waiting[0];
    }
    if (testimony == Testimony::kContradicts)
      candidate.why += "; it has entered other collectives than ranks that do the same";
    add(rank, std::move(candidate), usual);
  }
}

void Findings::judge_all_entered(size_t index) {
  const Instance& instance = graph_.instances()[index];
  if (judge_mismatch(index)) return;
  const std::vector<int32_t> ranks = ranks_inside(instance);
  // Two members cannot show which stack is usual, so the ranks in all collectives are compared.
  const BlameFacts::UsualStack usual =
      facts_.usual_stack_of(ranks.size() > 2 ? ranks : all_inside());
  const Words& words = words_of(index);
  const size_t members = graph_.groups()[instance.group].members.size();
  const std::string all =
      ranks.size() < members
          ? absl::StrCat(ranks.size(), " of ", members, " members (", words.inside_text,
                         ranks.size() == 1 ? ") is still in " : ") are still in ")
          : absl::StrCat("all ", members, " members are in ");
  const auto elsewhere = std::count_if(ranks.begin(), ranks.end(),
                                       [&](int32_t rank) { return usual.departure(rank) > 0; });
  for (const int32_t rank : ranks) {
    const bool is_elsewhere = usual.departure(rank) > 0;
    const auto share = static_cast<double>(is_elsewhere ? elsewhere : std::ssize(ranks));
    add(rank,
        {.points = (is_elsewhere ? kElsewherePoints : kAllEnteredPoints) / share,
         .shape = is_elsewhere ? HangShape::kBehind : HangShape::kTransport,
         .instance = index,
         .why =
             absl::StrCat("is in ", words.what,
                          is_elsewhere ? " with the others" : " like all others there", words.age)},
        usual);
  }
  add(kNoRank,
      {.points = kTransportPoints,
       .shape = HangShape::kTransport,
       .instance = index,
       .why = absl::StrCat(all, words.what, words.age, " and nothing moves between them")},
      usual);
}

bool Findings::judge_mismatch(size_t index) {
  const Instance& instance = graph_.instances()[index];
  if (instance.seq == 0 || instance.inside.size() < 2) return false;
  std::map<Call, std::vector<WaitGraph::Member>> calls;
  for (const WaitGraph::Member& member : instance.inside)
    if (member.group->number() == instance.seq) calls[call_of(*member.group)].push_back(member);
  if (calls.size() < 2) return false;
  const auto most = std::max_element(calls.begin(), calls.end(), [](const auto& a, const auto& b) {
    return a.second.size() < b.second.size();
  });
  // The members by their calls. If several parts are equally large, witnesses may decide.
  using Part = std::map<Call, std::vector<WaitGraph::Member>>::const_iterator;
  std::vector<std::pair<Testimony, Part>> rivals;
  for (Part part = calls.begin(); part != calls.end(); ++part)
    if (part->second.size() == most->second.size())
      rivals.emplace_back(witnesses_.on(part->second[0].rank, no_instance()), part);
  const auto worse = [](const auto& a, const auto& b) { return a.first < b.first; };
  const auto [best, worst] = std::minmax_element(rivals.begin(), rivals.end(), worse);
  const Part right = best->second;
  const bool is_tie = rivals.size() > 1 && best->first == worst->first;
  const WaitGraph::Group& group = graph_.groups()[instance.group];
  const BlameFacts::UsualStack usual = facts_.usual_stack_of(ranks_inside(instance));
  // The part that the text compares with the right part.
  const auto another = right == calls.begin() ? std::next(right) : Part(calls.begin());
  for (Part part = calls.begin(); part != calls.end(); ++part) {
    if (part == right && rivals.size() == 1) continue;
    const auto& others = part == right ? another->second : right->second;
    double points = kFindingPoints;
    if (is_tie) points /= static_cast<double>(rivals.size() * part->second.size());
    if (!is_tie && part == right) points = kVictimPoints;
    for (const WaitGraph::Member& member : part->second) {
      add(member.rank,
          {.points = points,
           .shape = HangShape::kMismatch,
           .instance = index,
           .why = absl::StrCat("entered ", call_text(*member.group), " as number ", instance.seq,
                               " of ", axis_text(group), ", where ", ranks_text(ranks_of(others)),
                               " entered ", call_text(*others[0].group))},
          usual);
    }
  }
  return true;
}

void Findings::judge_halted() {
  const BlameFacts::UsualStack usual_of_none = facts_.usual_stack_of({});
  for (const int32_t rank : all_ranks()) {
    if (!facts_.view(rank).halted || candidates_.contains(rank)) continue;
    add(rank,
        {.points = kAsidePoints, .shape = HangShape::kHalted, .instance = no_instance(), .why = {}},
        usual_of_none);
  }
}

// A rank that has not ended with the others, for example because a thread of it still runs.
void Findings::judge_left_over() {
  const BlameFacts::UsualStack usual_of_none = facts_.usual_stack_of({});
  for (const int32_t rank : all_ranks()) {
    if (!facts_.is_left_over(rank)) continue;
    add(rank,
        {.points = kAsidePoints,
         .shape = HangShape::kOtherPhase,
         .instance = no_instance(),
         .why = {}},
        usual_of_none);
  }
}

// For programs that report no collectives: ranks that do not wait, where others do.
void Findings::judge_python_waits() {
  std::vector<int32_t> waiting, others;
  for (const int32_t rank : all_ranks())
    if (facts_.stack(rank) != nullptr)
      (facts_.waits_in_python(rank) ? waiting : others).push_back(rank);
  if (waiting.empty() || others.empty()) return;
  const std::string who =
      absl::StrCat(ranks_text(ranks_of(waiting)), waiting.size() == 1 ? " waits" : " wait");
  const BlameFacts::UsualStack usual = facts_.usual_stack_of(all_ranks());
  for (const int32_t rank : others) {
    add(rank,
        {.points = kFindingPoints / static_cast<double>(others.size()),
         .shape = HangShape::kBehind,
         .instance = no_instance(),
         .why = absl::StrCat("is not in a collective, and ", who, " in one")},
        usual);
  }
}

void Findings::judge_phases() {
  std::vector<int32_t> others;
  for (const int32_t rank : all_ranks()) {
    if (facts_.is_in_other_phase(rank)) others.push_back(rank);
  }
  const BlameFacts::UsualStack usual = facts_.usual_stack_of(all_ranks());
  for (const int32_t rank : others) {
    add(rank,
        {.points = kFindingPoints / static_cast<double>(others.size()),
         .shape = HangShape::kOtherPhase,
         .instance = no_instance(),
         .why = absl::StrCat("is not in ", av(phase_name(facts_.usual_phase())),
                             " as most others are")},
        usual);
  }
}

void Findings::judge_steps() {
  int64_t most = -1, least = std::numeric_limits<int64_t>::max();
  for (const RankView& view : facts_.views()) {
    if (view.evidence == nullptr) continue;
    most = std::max(most, view.evidence->step);
    least = std::min(least, view.evidence->step);
  }
  std::vector<int32_t> behind;
  for (const int32_t rank : all_ranks()) {
    const RankEvidence* evidence = facts_.view(rank).evidence;
    if (evidence != nullptr && evidence->step == least) behind.push_back(rank);
  }
  if (least >= most || 2 * behind.size() > facts_.views().size()) return;
  const BlameFacts::UsualStack usual = facts_.usual_stack_of(all_ranks());
  for (const int32_t rank : behind) {
    add(rank,
        {.points = kFindingPoints / static_cast<double>(behind.size()),
         .shape = HangShape::kOtherPhase,
         .instance = no_instance(),
         .why = absl::StrCat("has completed ", std::max<int64_t>(least, 0),
                             " steps where others have ", most)},
        usual);
  }
}

void Findings::judge_stacks() {
  const BlameFacts::UsualStack usual = facts_.usual_stack_of(all_ranks());
  for (const int32_t rank : all_ranks()) {
    if (usual.departure(rank) == 0) continue;
    add(rank, {.shape = HangShape::kUnclear, .instance = no_instance(), .why = {}}, usual);
  }
}

// Adds a rank that waits for the first suspect, or any other rank, as a second suspect, because
// users also need the next likely rank.
void Findings::add_runner_up() {
  const auto known = std::count_if(candidates_.begin(), candidates_.end(),
                                   [](const auto& entry) { return entry.first != kNoRank; });
  if (known >= 2) return;
  const BlameFacts::UsualStack usual_of_none = facts_.usual_stack_of({});
  auto left = 2 - known;
  const auto add_victim = [&](int32_t rank, size_t instance, std::string why) {
    if (left == 0 || candidates_.contains(rank)) return;
    --left;
    add(rank,
        {.points = kVictimPoints,
         .shape = HangShape::kUnclear,
         .instance = instance,
         .why = std::move(why)},
        usual_of_none);
  };
  for (size_t i = 0; i < graph_.instances().size() && left > 0; ++i) {
    const Instance& instance = graph_.instances()[i];
    for (const WaitGraph::Member& member : instance.inside)
      add_victim(member.rank, i, absl::StrCat("waits in ", words_of(i).what, words_of(i).age));
  }
  for (const int32_t rank : all_ranks())
    add_victim(rank, no_instance(), "does nothing that others do not");
}

}  // namespace muster::coordinator
