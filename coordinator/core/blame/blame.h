// Names the culprits of a hang: combines the pages, process states and stacks of a hung job into a
// list of suspects and one sentence. A pure function of two samples. Pages are enough for a result;
// stacks make the result more precise.
//
// The wait graph (wait_graph.h) shows the ranks that are behind, the collectives that all members
// entered and that did not complete, and cycles of waiting ranks. Other evidence about these ranks
// (blame_facts.h) and contradictions between ranks (witnesses.h) add points, and
//
//     confidence = points / (points of all suspects + 1)
//
// so that one clear culprit has a confidence of 0.9, two simultaneous faults have about 0.47 each,
// and weak evidence gives a low confidence.
//
// The finding about a rank gives these points:
//
//    9    the rank is behind: other ranks wait for it, and it does not visibly wait for others.
//         Divided if several main threads may or may not wait for a thread of their rank
//    9    the rank never joined a group; multiplied by missing members / ranks that may be missing
//    9    the rank entered another collective under the same number than most members: another
//         kind, type, size or name. If the largest parts are equal and no witness decides, as in a
//         group of two: divided by all their members
//    9    the rank is part of a cycle: divided by the ranks that witnesses contradict; if there are
//         none, by the ranks without support; otherwise by all ranks of the cycle
//    6    the rank is in a collective that all members entered, and its main thread is elsewhere:
//         divided by the number of such ranks. The transport between the members then gets 5, and
//         the other members share 4
//    9    the rank is in another phase, or has fewer steps, than most ranks, and no collective is
//         involved: divided by the number of such ranks
//
// The rank's own state adds:
//
//    +9   dead, without its worker, or without a page where other ranks have one; stopped, held by
//         a debugger, or a zombie
//    +4   in another phase than most ranks
//    +3   in the kernel (D state) in all samples
//    +0…5 by how early its main thread's stack departs from the usual stack of the ranks in the
//         finding, if few ranks have the same stack
//    +1   runs while most ranks sleep
//
// A rank that only waits has 0.3 points if it is added as the second suspect.
//
// Ranks with +9 points are suspects even if no rank visibly waits for them; they then get 3 points
// instead of those of a finding. If a rank is part of two findings, only the stronger one counts.
//
// Takes some tens of milliseconds for 16,384 ranks. Ignores evidence of ranks that the job does not
// have.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "common/rank_evidence.h"
#include "common/rank_set.h"
#include "common/stack_tree.h"
#include "coordinator/core/records/incident.h"
#include "coordinator/core/records/job.h"

namespace muster::coordinator {

// A sample of a job at one moment, merged over its workers.
struct BlameSample {
  std::vector<RankEvidence> ranks;  // in any order; only the first entry of a rank counts
  StackTree stacks;
};

struct BlameInput {
  std::vector<RankPlacement> placement;  // by rank
  // The ranks without readable evidence. Each has a clause whose subject is the rank: "was killed
  // by signal 9 (SIGKILL)", "is on a worker that does not answer".
  std::map<Rank, std::string> gone;
  BlameSample earlier;  // empty when there is one sample
  BlameSample later;
};

// The kind of a hang: the kind of the first suspect's finding.
enum class HangShape {
  kBehind,       // a rank has not entered a collective in which others wait
  kNeverJoined,  // as kBehind, because the rank has not joined the process group yet
  kMismatch,     // members of a group are in different collectives under one number
  kDeadlock,     // ranks wait for each other in a cycle
  kTransport,    // all members entered the collective, and it does not complete
  kHalted,       // a rank is dead, stopped or held by a debugger, in any activity
  // No collective is involved: the rank is in another phase, or behind in steps.
  kOtherPhase,
  kUnclear,  // nothing distinguishes the ranks
};
constexpr std::array<std::string_view, 8> kHangShapeNames = {
    "behind",    "never joined", "mismatch",    "deadlock",
    "transport", "halted",       "other phase", "unclear"};

struct Blame {
  HangShape shape = HangShape::kUnclear;
  std::string sentence;  // one printable sentence of at most kSentenceBytesMax bytes
  // At most kSuspectsMax, the likeliest first; at least two when the job has two ranks.
  std::vector<Suspect> suspects;
  RankSet victims;  // the ranks that wait for the first suspect, directly or not
};

constexpr size_t kSentenceBytesMax = 2048;

// Returns the suspects and the sentence. The suspects do not depend on symbols, but their source
// positions do: call the function again with the same samples once `later.stacks` has symbols.
Blame blame(const BlameInput& input);

}  // namespace muster::coordinator
