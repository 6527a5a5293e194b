// Converts stacks and evidence between wire messages and the values of common/, for worker,
// coordinator and clients.
//
// Input is untrusted: text is made printable and cut to its bound, values that would break
// arithmetic are sanitised, lists are cut to their bound; an invalid tree is refused. Output is cut
// to a number of bytes, because messages are bounded and a thousand ranks may all have different
// stacks. The rarest stacks are dropped first, and counted. Free functions; thread-safe.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include <absl/status/statusor.h>

#include "common/job/rank_evidence.h"
#include "common/job/stack_trace_spec.h"
#include "common/stacks/stack_tree.h"
#include "common/time/time.h"
#include "daemon/limits.h"
#include "muster/v1/muster.pb.h"

namespace muster::daemon {

// Bounds of stacks and evidence in one message, which leave room for its other fields.
constexpr size_t kEvidenceBytesMax = kMessageBytesMax / 2;
constexpr size_t kStackTreeBytesMax = kMessageBytesMax / 2 - (128 << 10);

// Returns `ns` as a duration, clamped to the range from 0 to a year.
Duration age_from(int64_t ns);
// Returns the process state as a letter of /proc/PID/stat; '?' for an unknown value.
char process_state_from(uint32_t state);

StackTraceSpec stack_traces_from_proto(const v1::StackTraces& proto);

RankSet rank_set_from_proto(const v1::RankSet& proto);
void rank_set_to_proto(const RankSet& ranks, v1::RankSet& proto);

StackModule module_from_proto(const v1::StackModule& proto);
void module_to_proto(const StackModule& module, v1::StackModule& proto);

FrameSymbol symbol_from_proto(const v1::FrameSymbol& proto);
void symbol_to_proto(const FrameSymbol& symbol, v1::FrameSymbol& proto);

// Returns InvalidArgument, with the reason, if the message is not a tree.
absl::StatusOr<StackTree> stack_tree_from_proto(const v1::StackTree& proto);
// Writes at most `bytes_max` bytes, plus a few bytes for the number of dropped stacks. Prefers the
// stacks of main threads, then stacks of many ranks. A stack that is cut ends at its deepest
// written frame, and counts as dropped.
void stack_tree_to_proto(const StackTree& tree, size_t bytes_max, v1::StackTree& proto);

using EvidenceMessages = google::protobuf::RepeatedPtrField<v1::RankEvidence>;

// Returns at most `ranks_max` entries.
std::vector<RankEvidence> evidence_from_proto(const EvidenceMessages& proto, size_t ranks_max);
// Writes at most `bytes_max` bytes. Drops the ranks' output first, then groups without waiting
// ranks, then ranks without problems.
void evidence_to_proto(const std::vector<RankEvidence>& ranks, size_t bytes_max,
                       EvidenceMessages& proto);

using TextMessages = google::protobuf::RepeatedPtrField<std::string>;

// Returns the newest `lines_max` lines, each cut to `bytes_max` bytes.
std::vector<std::string> lines_from_proto(const TextMessages& proto, size_t lines_max,
                                          size_t bytes_max);
void lines_to_proto(const std::vector<std::string>& lines, size_t lines_max, size_t bytes_max,
                    TextMessages& proto);

}  // namespace muster::daemon
