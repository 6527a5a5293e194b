// Stacks and evidence between the wire's messages and the values of common/: the worker writes what the coordinator reads, the
// coordinator writes what people's programs read, and all of them see the same values.
//
// What is read may come from anybody: text is made printable and cut to its bound, numbers that no arithmetic bears are made
// harmless, lists beyond their bound are cut; a tree that is none is refused. What is written is cut to a number of bytes, because a message has a
// bound and a thousand ranks may all differ: the rarest goes first, and what is gone is counted. Plain functions, any thread.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include <absl/status/statusor.h>

#include "common/rank_evidence.h"
#include "common/stack_trace_spec.h"
#include "common/stack_tree.h"
#include "common/time.h"
#include "daemon/limits.h"
#include "muster/v1/muster.pb.h"

namespace muster::daemon {

// Of a message that carries stacks and evidence: what else is in it has room beside them.
constexpr size_t kEvidenceBytesMax = kMessageBytesMax / 2;
constexpr size_t kStackTreeBytesMax = kMessageBytesMax / 2 - (128 << 10);

// Numbers that no arithmetic bears become ones that it does: between 0 and a year.
Duration age_from(int64_t ns);
// '?' for what is no state of /proc.
char process_state_from(uint32_t state);

StackTraceSpec stack_traces_from_proto(const v1::StackTraces& proto);

RankSet rank_set_from_proto(const v1::RankSet& proto);
void rank_set_to_proto(const RankSet& ranks, v1::RankSet& proto);

StackModule module_from_proto(const v1::StackModule& proto);
void module_to_proto(const StackModule& module, v1::StackModule& proto);

FrameSymbol symbol_from_proto(const v1::FrameSymbol& proto);
void symbol_to_proto(const FrameSymbol& symbol, v1::FrameSymbol& proto);

// InvalidArgument says what is no tree in it.
absl::StatusOr<StackTree> stack_tree_from_proto(const v1::StackTree& proto);
// At most so many bytes, and a few for the number of what was dropped. Main threads are kept before others, and what many ranks have
// before what few have. A stack that is cut off ends at its deepest frame that is kept, and counts as dropped.
void stack_tree_to_proto(const StackTree& tree, size_t bytes_max, v1::StackTree& proto);

using EvidenceMessages = google::protobuf::RepeatedPtrField<v1::RankEvidence>;

// At most `ranks_max` of them.
std::vector<RankEvidence> evidence_from_proto(const EvidenceMessages& proto, size_t ranks_max);
// At most so many bytes: output goes first, then groups in which nobody waits, then ranks of which there is no trouble to tell.
void evidence_to_proto(const std::vector<RankEvidence>& ranks, size_t bytes_max,
                       EvidenceMessages& proto);

using TextMessages = google::protobuf::RepeatedPtrField<std::string>;

// At most `lines_max` lines, the newest, of at most `bytes_max` bytes each.
std::vector<std::string> lines_from_proto(const TextMessages& proto, size_t lines_max,
                                          size_t bytes_max);
void lines_to_proto(const std::vector<std::string>& lines, size_t lines_max, size_t bytes_max,
                    TextMessages& proto);

}  // namespace muster::daemon
