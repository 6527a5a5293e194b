// Names the culprits of a hang: joins pages, process states and stacks of a hung job into suspects
// and one sentence. A pure function of what two samples say; it works on pages alone and gets
// better with stacks.
//
// First who waits for whom (wait_graph.h): its ends are the ranks that are behind, collectives that
// everybody entered and nobody completed, and circles. Then what else speaks against those ranks
// (blame_facts.h), and who contradicts whom (witnesses.h). Points are added, and
//
//     confidence = points / (points of all suspects + 1)
//
// so that one clear culprit is at 0.9, two faults at once are at 0.45 each, and where little is
// known nobody is sure.
//
//     9    a rank is behind: others wait for it, and it is not seen to wait for anybody. Divided
//          where several main threads may or may
//          not wait for a thread of their own
//     9    it never joined the group; times the share of places where more ranks may be meant than
//          are missing
//     9    it entered another collective under the number: other kind, type, bytes or name than
//          most. Where parts are equally large and no
//          witness knows more, as in a group of two, divided by all their members
//     9    of a circle, divided by those whom witnesses contradict; where there are none, by those
//          with whom nobody agrees; else by all
//     6    of a collective that everybody entered, divided by the few whose main threads stand
//          elsewhere; 5 for the transport between its
//          members, 4 divided by the others
//     9    another phase than most; fewer steps than most: divided by who they are, where no
//          collective is involved
//     +9   dead, its worker gone, no page where others have one; stopped, held by a debugger, a
//          zombie
//     +4   in another phase than most                  +3   in the kernel (D) in all samples
//     +0…5 by how early its main thread's stack leaves that of most others of the finding, if few
//     are where it is
//     +1   runs while most sleep
//     0.3  who only waits, to have a runner-up
//
// Ranks with a mark of +9 are suspects where nobody is seen to wait for them, too, with 3 points
// instead of a finding's. The marks of a rank whose evidence is good in one finding and weak in
// another count once, with the stronger.
//
// 16,384 ranks take some tens of milliseconds. Evidence of ranks that the job does not have is
// ignored.
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
  std::vector<RankEvidence> ranks;  // in any order; the first one of a rank counts
  StackTree stacks;
};

struct BlameInput {
  std::vector<RankPlacement> placement;  // by rank
  // Why nothing can be read of a rank, as the clause behind "it": "was killed by signal 9
  // (SIGKILL)", "is on a worker that does not answer".
  std::map<Rank, std::string> gone;
  BlameSample earlier;  // empty when there is one sample
  BlameSample later;
};

// The kind of the hang: that of the first suspect's finding.
enum class HangShape {
  kBehind,       // a rank has not entered what others wait in
  kNeverJoined,  // … because it is not in the group yet
  kMismatch,     // members of a group are in different collectives under one number
  kDeadlock,     // ranks wait for each other in a circle
  kTransport,    // everybody is there, and nothing moves
  kHalted,       // dead, stopped or held, whatever it was in
  kOtherPhase,   // no collective is involved: it is in another phase, or behind in steps
  kUnclear,      // nothing distinguishes the ranks
};
constexpr std::array<std::string_view, 8> kHangShapeNames = {
    "behind",    "never joined", "mismatch",    "deadlock",
    "transport", "halted",       "other phase", "unclear"};

struct Blame {
  HangShape shape = HangShape::kUnclear;
  std::string sentence;  // one, of at most kSentenceBytesMax bytes, printable
  // At most kSuspectsMax, the likeliest first; at least two when the job has two ranks.
  std::vector<Suspect> suspects;
  RankSet victims;  // who waits for the first suspect, directly or not
};

constexpr size_t kSentenceBytesMax = 2048;

// Call it again with the same samples once `later.stacks` has symbols: whom it names does not
// depend on them, where that rank stands does.
Blame blame(const BlameInput& input);

}  // namespace muster::coordinator
