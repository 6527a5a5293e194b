#include "coordinator/core/blame/blame_facts.h"

#include <algorithm>
#include <map>

#include <absl/strings/str_cat.h>

#include "common/text/absl_view.h"
#include "common/text/escape.h"
#include "common/text/program_error.h"
#include "coordinator/core/blame/blame_text.h"

namespace muster::coordinator {
namespace {

constexpr double kHaltedPoints = 9, kOtherPhasePoints = 4, kErrorPoints = 5, kInKernelPoints = 3,
                 kRunsPoints = 1;
// A stack counts as exceptional only if at most one in this many ranks has it.
constexpr int64_t kFewOf = 8;
constexpr size_t kProblemShownBytesMax = 120;
constexpr size_t kErrorShownBytesMax = 300;

bool is_halted_state(char state) {
  return state == 'T' || state == 't' || state == 'Z' || state == 'X';
}

// Returns whether the process that the page names does not exist.
bool has_vanished(const RankEvidence& evidence) {
  return evidence.process_state == '?' && evidence.pid > 0;
}

std::string state_clause(const RankEvidence& evidence) {
  switch (evidence.process_state) {
    case 'T':
      return "is stopped (SIGSTOP)";
    case 't':
      return absl::StrCat(
          "is held by a debugger",
          evidence.tracer_pid > 0 ? absl::StrCat(" (pid ", evidence.tracer_pid, ")") : "");
    case 'Z':
    case 'X':
      return "has ended (a zombie)";
    default:
      return has_vanished(evidence)
                 ? absl::StrCat("has no process any more (pid ", evidence.pid, ")")
                 : "";
  }
}

void index_by_rank(const std::vector<RankEvidence>& from, std::vector<const RankEvidence*>& to) {
  for (const RankEvidence& evidence : from) {
    if (evidence.rank < 0 || evidence.rank >= std::ssize(to)) continue;
    const RankEvidence*& place = to[static_cast<size_t>(evidence.rank)];
    if (place == nullptr) place = &evidence;
  }
}

}  // namespace

BlameFacts::BlameFacts(const BlameInput& input)
    : input_(input),
      views_(input.placement.size()),
      earlier_(input.placement.size()),
      classes_(input.later.stacks.classes()),
      class_of_(input.placement.size(), -1) {
  std::vector<const RankEvidence*> later(views_.size());
  index_by_rank(input.later.ranks, later);
  index_by_rank(input.earlier.ranks, earlier_);
  std::map<Phase, size_t> phases;
  size_t pages = 0, known = 0, asleep = 0;
  for (size_t rank = 0; rank < views_.size(); ++rank) {
    const RankEvidence* evidence = later[rank] != nullptr ? later[rank] : earlier_[rank];
    views_[rank].evidence = evidence;
    if (evidence == nullptr) continue;
    ++known;
    if (evidence->process_state == 'S') ++asleep;
    if (!evidence->page_problem.empty()) continue;
    ++pages;
    ++phases[evidence->phase];
  }
  const auto finished = std::ranges::count_if(
      input.gone, [](const auto& entry) { return entry.second == kFinishedClause; });
  finishing_is_usual_ = 2 * finished > std::ssize(views_);
  pages_are_usual_ = 2 * pages > known;
  sleeping_is_usual_ = 2 * asleep > known;
  const auto usual =
      std::max_element(phases.begin(), phases.end(),
                       [](const auto& a, const auto& b) { return a.second < b.second; });
  if (usual != phases.end()) usual_phase_ = usual->first;
  for (size_t i = 0; i < views_.size(); ++i) {
    const auto rank = static_cast<int32_t>(i);
    const RankEvidence* evidence = views_[i].evidence;
    views_[i].halted = evidence == nullptr || input.gone.contains(Rank(rank)) ||
                       is_halted_state(evidence->process_state) || has_vanished(*evidence) ||
                       evidence->activity.stopped_pid > 0 || (pages_are_usual_ && !has_page(rank));
    // Ranks that have done their work hold up no other rank: those left over do.
    if (const auto gone = input.gone.find(Rank(rank));
        finishing_is_usual_ && gone != input.gone.end() && gone->second == kFinishedClause)
      views_[i].halted = false;
  }
  for (const StackTree::Class& one : classes_)
    waits_.push_back(python_wait_of(input.later.stacks, one));
  for (size_t i = 0; i < classes_.size(); ++i) {
    for (const RankSet::Range& range : classes_[i].ranks.ranges()) {
      const auto end = std::min<int64_t>(int64_t{range.last} + 1, std::ssize(class_of_));
      for (int64_t rank = range.first; rank < end; ++rank)
        class_of_[static_cast<size_t>(rank)] = static_cast<int32_t>(i);
    }
  }
}

bool BlameFacts::has_page(int32_t rank) const {
  return view(rank).evidence != nullptr && view(rank).evidence->page_problem.empty();
}

bool BlameFacts::stays_in_kernel(int32_t rank) const {
  const RankEvidence* now = view(rank).evidence;
  const RankEvidence* before = earlier(rank);
  return now != nullptr && now->process_state == 'D' &&
         (before == nullptr || before->process_state == 'D');
}

bool BlameFacts::is_in_other_phase(int32_t rank) const {
  return has_page(rank) && view(rank).evidence->phase != usual_phase_;
}

double BlameFacts::points(int32_t rank) const {
  double points = 0;
  if (view(rank).halted) points += kHaltedPoints;
  if (is_left_over(rank)) points += kHaltedPoints;
  if (is_in_other_phase(rank)) points += kOtherPhasePoints;
  if (!error(rank, /*own=*/true).empty()) points += kErrorPoints;
  if (stays_in_kernel(rank)) points += kInKernelPoints;
  const RankEvidence* evidence = view(rank).evidence;
  if (sleeping_is_usual_ && evidence != nullptr && evidence->process_state == 'R')
    points += kRunsPoints;
  return points;
}

std::vector<std::string> BlameFacts::clauses(int32_t rank) const {
  std::vector<std::string> clauses;
  const RankEvidence* evidence = view(rank).evidence;
  const auto gone = input_.gone.find(Rank(rank));
  if (gone != input_.gone.end()) {
    clauses.push_back(printable(gone->second, kProblemShownBytesMax));
  } else if (evidence == nullptr) {
    clauses.push_back("left no evidence: its worker did not answer");
  }
  if (evidence == nullptr) return clauses;
  if (const std::string state = state_clause(*evidence);
      !state.empty() && gone == input_.gone.end())
    clauses.push_back(state);
  if (evidence->activity.stopped_pid > 0) {
    clauses.push_back(absl::StrCat(
        "has a child process that is stopped (SIGSTOP): ", evidence->activity.stopped_pid, ", ",
        printable(evidence->activity.stopped_name, kProblemShownBytesMax)));
  }
  if (pages_are_usual_ && !has_page(rank)) {
    clauses.push_back(absl::StrCat("has no progress page (",
                                   printable(evidence->page_problem, kProblemShownBytesMax), ")"));
  }
  if (is_left_over(rank))
    clauses.emplace_back("still runs, and most ranks have exited with code 0");
  if (const std::string printed = error(rank, /*own=*/false); !printed.empty())
    clauses.push_back(
        absl::StrCat("has printed \"", printable(printed, kErrorShownBytesMax), "\""));
  if (is_in_other_phase(rank)) {
    clauses.push_back(absl::StrCat("is in ", av(phase_name(evidence->phase)), " for ",
                                   age_text(evidence->phase_age)));
  }
  if (stays_in_kernel(rank)) {
    clauses.push_back(absl::StrCat("cannot be woken in the kernel (D state",
                                   evidence->wait_channel.empty() ? "" : ", in ",
                                   printable(evidence->wait_channel, kProblemShownBytesMax), ")"));
  }
  if (evidence->memory.is_exhausted()) {
    clauses.push_back(absl::StrCat("is at the memory limit of its control group (",
                                   to_string(evidence->memory), ")"));
  }
  if (makes_progress(rank)) clauses.push_back("makes progress, slowly");
  return clauses;
}

bool BlameFacts::is_left_over(int32_t rank) const {
  return finishing_is_usual_ && !input_.gone.contains(Rank(rank));
}

bool BlameFacts::waits_in_python(int32_t rank) const {
  const int32_t found = class_of_[static_cast<size_t>(rank)];
  if (found < 0 || view(rank).halted) return false;
  const PythonWait wait = waits_[static_cast<size_t>(found)];
  const RankEvidence* evidence = view(rank).evidence;
  return wait == PythonWait::kCertain ||
         (wait == PythonWait::kIfAsleep && evidence != nullptr && evidence->process_state == 'S');
}

std::string BlameFacts::error(int32_t rank, bool own) const {
  const RankEvidence* evidence = view(rank).evidence;
  if (evidence == nullptr) return "";
  // Only an exception with a traceback has a place. Programs print words such as "ERROR", too.
  const auto error = find_program_error(evidence->last_lines);
  if (!error || error->place.empty() || (own && reports_lost_peer(error->text))) return "";
  return to_string(*error);
}

bool BlameFacts::makes_progress(int32_t rank) const {
  const RankEvidence* before = earlier(rank);
  const RankEvidence* now = view(rank).evidence;
  if (before == nullptr || now == nullptr || before == now || !has_page(rank)) return false;
  if (now->step != before->step || now->groups.size() != before->groups.size()) return true;
  for (size_t i = 0; i < now->groups.size(); ++i)
    if (now->groups[i].completed != before->groups[i].completed) return true;
  return false;
}

const StackTree::Class* BlameFacts::stack(int32_t rank) const {
  const int32_t found = class_of_[static_cast<size_t>(rank)];
  return found < 0 ? nullptr : &classes_[static_cast<size_t>(found)];
}

BlameFacts::UsualStack BlameFacts::usual_stack_of(const std::vector<int32_t>& among) const {
  UsualStack usual;
  usual.facts_ = this;
  usual.counts_.resize(classes_.size());
  for (const int32_t rank : among) {
    const int32_t found = class_of_[static_cast<size_t>(rank)];
    if (found < 0) continue;
    ++usual.ranks_;
    ++usual.counts_[static_cast<size_t>(found)];
  }
  const auto most = std::max_element(usual.counts_.begin(), usual.counts_.end());
  if (most != usual.counts_.end() && 2 * *most > usual.ranks_)
    usual.most_ = static_cast<int32_t>(most - usual.counts_.begin());
  return usual;
}

double BlameFacts::UsualStack::departure(int32_t rank) const {
  const int32_t own = facts_->class_of_[static_cast<size_t>(rank)];
  if (most_ < 0 || own < 0 || own == most_) return 0;
  if (counts_[static_cast<size_t>(own)] > std::max<int64_t>(1, ranks_ / kFewOf)) return 0;
  const std::vector<uint32_t>& frames = facts_->classes_[static_cast<size_t>(own)].frames;
  const std::vector<uint32_t>& usual = facts_->classes_[static_cast<size_t>(most_)].frames;
  const auto [end, other] = std::mismatch(frames.begin(), frames.end(), usual.begin(), usual.end());
  const auto longest = static_cast<double>(std::max(frames.size(), usual.size()));
  return 1 - static_cast<double>(end - frames.begin()) / longest;
}

}  // namespace muster::coordinator
