// The stack dumps in progress, for hang verdicts and for users, and the pending lookups of their
// symbols. Symbols complete an incident or the answer to a user: they add source positions and do
// not change the verdict. Pure; called on one thread at a time.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include <absl/status/statusor.h>

#include "common/job/ids.h"
#include "common/time/time.h"
#include "coordinator/core/action.h"
#include "coordinator/core/blame/blame.h"
#include "coordinator/core/core_options.h"
#include "coordinator/core/event.h"
#include "coordinator/core/fleet/fleet.h"
#include "coordinator/core/hang/dump.h"
#include "coordinator/core/incident/incident_book.h"
#include "coordinator/core/records/job.h"

namespace muster::coordinator {

// The number of samples of a dump, and the time limit for each.
struct DumpPlan {
  int32_t samples = 1;
  Duration deadline{};
};

// A dump in progress.
struct OpenDump {
  Dump dump;
  Instant deadline;
  // The caller that waits for the dump. Unset: the dump serves a hang verdict.
  std::optional<RequestToken> request;
};

// A pending symbol lookup, for an incident or for a caller that requested stacks.
struct OpenSymbols {
  // For an incident: its number, and the blame input that contains the stacks.
  IncidentId incident;
  BlameInput input;
  // For a caller: its token and the pending answer, which contains the stacks.
  std::optional<RequestToken> request;
  JobStackDump answer;
  std::set<StackModule> modules;
  Instant deadline;

  StackTree& stacks() { return request ? answer.stacks : input.later.stacks; }
};

class DumpTable {
 public:
  struct Begun {
    DumpId id;
    std::vector<SendToWorker> messages;
  };
  // Begins a dump of the ranks that are up, or of rank `only`, without the workers in
  // `unreachable`. Returns nullopt if no worker with such ranks can be reached.
  std::optional<Begun> begin(const Job& job, Rank only, const DumpPlan& plan,
                             std::optional<RequestToken> request, const Fleet& fleet,
                             const std::set<WorkerName>& unreachable, const CoreOptions& options,
                             Instant now);
  // Returns the dump; null if there is no such dump.
  OpenDump* find(DumpId id);
  // Removes the dump from the table and returns it. Requires that the table contains it.
  OpenDump take(DumpId id) { return std::move(dumps_.extract(id).mapped()); }
  void drop(DumpId id) { dumps_.erase(id); }

  // Begins the dump of `job` that a user has requested, and returns its messages. `unreachable`:
  // the unreachable workers of the job's attempt. Requires that the job has an attempt if it is
  // live. Errors: FailedPrecondition if the job has no stacks now; InvalidArgument for an unknown
  // rank; ResourceExhausted if too many users wait for dumps.
  absl::StatusOr<std::vector<SendToWorker>> request(const StacksRequested& event, const Job& job,
                                                    const Fleet& fleet,
                                                    const std::set<WorkerName>* unreachable,
                                                    const CoreOptions& options, Instant now);
  // Returns the dumps that users wait for.
  std::vector<DumpId> requested() const;
  // Ends a user's dump if it is over. Returns the messages that request its symbols, or the reply
  // if no worker can resolve them. `unreachable`: see is_over(). Requires that a user waits for the
  // dump.
  ActionList answer_if_over(DumpId id, const Fleet& fleet, const std::set<WorkerName>* unreachable,
                            const CoreOptions& options, Instant now);

  // Requests the symbols of the stacks in `input`, for `incident`, and returns the messages. The
  // incident book retains the incident until the symbols have arrived. A lookup replaces an earlier
  // lookup for the same incident.
  std::vector<SendToWorker> look_up(IncidentBook& incidents, IncidentId incident, const Dump& dump,
                                    BlameInput input, const Fleet& fleet,
                                    const CoreOptions& options, Instant now);
  // Adds symbols to their lookup. After the last symbols, completes the incident, or returns the
  // answer for the user who waits.
  std::optional<ReplyStacks> add(const SymbolsReceived& event, IncidentBook& incidents);
  // Ends the lookups that are past their deadline in the same way, with the symbols received so
  // far.
  std::vector<ReplyStacks> end_late_lookups(IncidentBook& incidents, Instant now);

  // Excludes coordinator downtime: extends every deadline by `time`.
  void excuse(Duration time);
  std::optional<Instant> next_deadline() const;

 private:
  std::vector<SendToWorker> await_symbols(const Dump& dump, OpenSymbols open, const Fleet& fleet,
                                          const CoreOptions& options, Instant now);

  std::map<DumpId, OpenDump> dumps_;
  std::map<DumpId, OpenSymbols> symbols_;
  DumpId last_{0};
};

// Returns the time that a dump of two samples takes. If a worker is silent, the dump starts this
// long before the end of the permitted silence, so that the dump does not delay the verdict.
Duration time_of_dump(const CoreOptions& options);

// Returns whether every report has arrived, or the missing reports can no longer arrive in time.
// `unreachable`: the unreachable workers of the dump's attempt; null if the attempt has ended.
bool is_over(const OpenDump& open, const Fleet& fleet, const std::set<WorkerName>* unreachable,
             Instant now);

}  // namespace muster::coordinator
