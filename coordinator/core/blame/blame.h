// Names the culprits of a hang: combines the progress pages, process states and stacks of a hung
// job's ranks into a list of suspects and a summary of one sentence. A pure function of two
// samples. Progress pages are enough for a result; stacks make the result more precise.
//
// The wait graph (wait_graph.h) shows the ranks that are behind, the collectives that all members
// entered and that did not complete, and cycles of waiting ranks. Each of these findings gives
// points to ranks. Witnesses, which are ranks that run the same program (witnesses.h), decide which
// ranks of a cycle or a mismatch get them. Other evidence about a rank (blame_facts.h) adds points.
// Then
//
//     confidence = points / (points of all suspects + 1)
//
// so one clear culprit has a confidence of 0.9, two simultaneous faults have about 0.47 each, and
// weak evidence gives a low confidence.
//
// The finding about a rank gives these points:
//
//    9    the rank is behind: other ranks wait for it, and it does not visibly wait for others.
//         If several of these ranks have a main thread that is in no collective, while another
//         thread of the rank is in one, it is unknown which of them is behind: divided by their
//         number
//    9    the rank never joined a group; multiplied by (members that have not joined) / (ranks that
//         may be one of them), at most 1
//    9    under one sequence number, the rank entered a different collective than most members:
//         another kind, type, size or name. The members that entered the same collective form a
//         part. If several parts are the largest, witnesses choose the right one, and its members
//         get 0.3. If witnesses cannot choose, as in a group of two: divided by the number of
//         largest parts and by the number of members of the rank's part
//    9    the rank is part of a cycle, and has the least support by witnesses of all ranks in it.
//         From least to most: contradicted, not comparable, partly supported, supported. Divided by
//         the number of ranks with the least support; the other ranks of the cycle get 0.3
//    6    the rank is in a collective that all members entered, but its main thread's stack departs
//         from the usual one: divided by the number of such ranks. The transport between the
//         members gets 5, and each other member 4 / (number of members)
//    9    no finding above applies, Python stacks show ranks that wait in collectives; the rank
//         does not wait: divided by the number of such ranks
//    9    no finding above applies, and the rank is in another phase than most ranks, or has
//         completed fewer steps: divided by the number of such ranks
//
// The rank's own state adds:
//
//    +9   dead; on a worker that did not respond; without a readable progress page although most
//         ranks have one; stopped, held by a debugger, or a zombie
//    +9   still runs although most ranks have exited with code 0; those are no suspects
//    +4   in another phase than most ranks
//    +5   its output ends with an exception that is no known consequence of another rank's fault
//    +3   in the kernel (D state) in all samples
//    +0…5 its main thread's stack departs from the usual stack of the ranks in the finding, and few
//         ranks have the same stack: the earlier it departs, the more points
//    +1   runs while most ranks sleep
//
// If the findings name fewer than two ranks, ranks that only wait become suspects with 0.3 points.
//
// Ranks with +9 points are suspects even if no rank visibly waits for them; without a finding, they
// get 3 points in its place. If a rank is part of two findings, only the stronger one counts.
//
// Takes some tens of milliseconds for 16,384 ranks. Ignores evidence about ranks that the job does
// not have.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "common/job/rank_evidence.h"
#include "common/job/rank_set.h"
#include "common/stacks/stack_tree.h"
#include "coordinator/core/records/incident.h"
#include "coordinator/core/records/job.h"

namespace muster::coordinator {

// A sample of a job at one moment, merged over its workers.
struct BlameSample {
  std::vector<RankEvidence> ranks;  // in any order; only the first entry of a rank counts
  StackTree stacks;
};

// The clause of a rank that has exited with code 0, in BlameInput::gone.
constexpr char kFinishedClause[] = "exited with code 0";

struct BlameInput {
  std::vector<RankPlacement> placement;  // by rank
  // The ranks that have ended, and those whose worker does not respond. Each has a clause whose
  // subject is the rank: "was killed by signal 9", "is on worker w3, which does not answer".
  std::map<Rank, std::string> gone;
  BlameSample earlier;  // empty if there is only one sample
  BlameSample later;
  // A sentence about nodes of the job that cannot reach each other; empty: none are known. It
  // explains why ranks wait, so it becomes the first suspect if no rank stands out.
  std::string cut_link{};
};

// The kind of a hang: the kind of the first suspect's finding.
enum class HangShape {
  kBehind,       // a rank has not entered a collective in which others wait
  kNeverJoined,  // as kBehind, because the rank has not joined the process group yet
  kMismatch,     // members of a group are in different collectives with the same number
  kDeadlock,     // ranks wait for each other in a cycle
  kTransport,    // all members entered the collective, but it does not complete
  kHalted,       // a rank has one of the states with +9 points
  // No collective is involved: the rank is in another phase, or has completed fewer steps.
  kOtherPhase,
  kUnclear,  // nothing distinguishes the ranks
};
constexpr std::array<std::string_view, 8> kHangShapeNames = {
    "behind",    "never joined", "mismatch",    "deadlock",
    "transport", "halted",       "other phase", "unclear"};

struct Blame {
  HangShape shape = HangShape::kUnclear;
  std::string sentence;  // one printable sentence of at most kSentenceBytesMax bytes
  // At most kSuspectsMax, the likeliest first; at least two if the job has two ranks.
  std::vector<Suspect> suspects;
  RankSet victims;           // the ranks that wait for the first suspect, directly or not
  bool is_cut_link = false;  // the first suspect is BlameInput::cut_link
};

constexpr size_t kSentenceBytesMax = 2048;

// Returns the suspects and the sentence. The suspects do not depend on symbols, but their source
// positions do: call the function again with the same samples once `later.stacks` has symbols.
Blame blame(const BlameInput& input);

}  // namespace muster::coordinator
