#include "coordinator/core/blame/blame.h"

#include <algorithm>
#include <utility>

#include <absl/strings/str_cat.h>

#include "common/text/absl_view.h"
#include "common/text/escape.h"
#include "coordinator/core/blame/blame_facts.h"
#include "coordinator/core/blame/blame_text.h"
#include "coordinator/core/blame/findings.h"
#include "coordinator/core/blame/source_frame.h"
#include "coordinator/core/blame/wait_graph.h"

namespace muster::coordinator {
namespace {

// The score reserved for suspects outside the list.
constexpr double kDoubtPoints = 1;
// The sentence also names a second suspect whose confidence is at least this fraction of the first
// one's.
constexpr double kAboutAsLikely = 0.6;
constexpr size_t kWhyBytesMax = 768;

using Ranked = std::pair<int32_t, Candidate>;

// Returns the candidates by descending points. Candidates with equal points are sorted by rank,
// with the transport last.
std::vector<Ranked> ranked(const Findings& findings) {
  std::vector<Ranked> order(findings.candidates().begin(), findings.candidates().end());
  std::stable_sort(order.begin(), order.end(), [](const Ranked& a, const Ranked& b) {
    return a.second.points > b.second.points;
  });
  return order;
}

Suspect suspect_of(const Ranked& ranked, double all_points, const BlameInput& input,
                   const BlameFacts& facts, const WaitGraph& graph) {
  const auto& [rank, candidate] = ranked;
  Suspect suspect;
  suspect.rank = Rank(rank);
  suspect.confidence = candidate.points / all_points;
  suspect.why = printable(
      candidate.why.empty() ? "stands elsewhere than the others" : candidate.why, kWhyBytesMax);
  if (candidate.instance < graph.instances().size()) {
    const WaitGraph::Instance& instance = graph.instances()[candidate.instance];
    suspect.axis = axis_text(graph.groups()[instance.group]);
    suspect.collective = collective_short(instance);
  }
  if (rank == kNoRank) return suspect;
  suspect.worker = input.placement[static_cast<size_t>(rank)].worker;
  if (const StackTree::Class* stack = facts.stack(rank); stack != nullptr)
    suspect.source = source_of(input.later.stacks, *stack);
  return suspect;
}

std::string suspect_text(const Suspect& suspect, int64_t victims, const BlameInput& input) {
  if (suspect.rank.value() == kNoRank)
    return absl::StrCat("no single rank stands out: ", suspect.why,
                        "; the network or the transport is the likeliest cause");
  const std::string holds =
      victims == 0 ? "" : absl::StrCat(" holds up ", victims, victims == 1 ? " rank" : " ranks");
  return absl::StrCat(rank_and_node_text(suspect.rank.value(), input.placement), holds, ": it ",
                      suspect.why, suspect.source.empty() ? "" : "; it stands at ", suspect.source);
}

std::string sentence_of(const Blame& blame, const WaitGraph& graph, const BlameInput& input) {
  if (blame.suspects.empty()) return "nothing is known of this job's ranks";
  const Suspect& first = blame.suspects[0];
  std::string sentence = blame.shape == HangShape::kDeadlock ? "deadlock: " : "";
  absl::StrAppend(&sentence, suspect_text(first, blame.victims.size(), input));
  for (size_t i = 1; i < blame.suspects.size(); ++i) {
    const Suspect& other = blame.suspects[i];
    if (other.confidence < kAboutAsLikely * first.confidence || first.rank.value() == kNoRank)
      break;
    const int64_t victims =
        other.rank.value() == kNoRank ? 0 : graph.waiting_for(other.rank.value()).size();
    absl::StrAppend(&sentence, i == 1 ? ". As likely, or besides: " : ". ",
                    suspect_text(other, victims, input));
  }
  return printable(sentence, kSentenceBytesMax);
}

// Makes the cut link the first suspect and the sentence. The evidence about the ranks remains.
void blame_cut_link(const std::string& cut_link, Blame& blame) {
  constexpr double kConfidence = 0.9;
  blame.is_cut_link = true;
  blame.shape = HangShape::kTransport;
  blame.sentence = printable(cut_link, kSentenceBytesMax);
  std::erase_if(blame.suspects, [](const Suspect& other) { return other.rank.value() == kNoRank; });
  for (Suspect& suspect : blame.suspects) suspect.confidence *= 1 - kConfidence;
  Suspect link;
  link.why = printable(cut_link, kWhyBytesMax);
  link.confidence = kConfidence;
  blame.suspects.insert(blame.suspects.begin(), std::move(link));
  if (blame.suspects.size() > kSuspectsMax) blame.suspects.pop_back();
}

}  // namespace

Blame blame(const BlameInput& input) {
  const BlameFacts facts(input);
  const WaitGraph graph(facts.views());
  const Findings findings(facts, graph);
  const std::vector<Ranked> order = ranked(findings);
  double all_points = kDoubtPoints;
  for (const Ranked& entry : order) all_points += entry.second.points;
  Blame blame;
  for (size_t i = 0; i < std::min(order.size(), kSuspectsMax); ++i)
    blame.suspects.push_back(suspect_of(order[i], all_points, input, facts, graph));
  if (order.empty()) {
    blame.sentence = sentence_of(blame, graph, input);
    return blame;
  }
  blame.shape = order[0].second.shape;
  if (order[0].first != kNoRank) {
    blame.victims = graph.waiting_for(order[0].first);
  } else {
    blame.victims = ranks_of(graph.instances()[order[0].second.instance].inside);
  }
  blame.sentence = sentence_of(blame, graph, input);
  const bool names_no_rank = order[0].first == kNoRank && blame.shape == HangShape::kTransport;
  if (!input.cut_link.empty() && names_no_rank) blame_cut_link(input.cut_link, blame);
  return blame;
}

}  // namespace muster::coordinator
