// Dumps of stacks that are in progress, for hang verdicts and for users, and the lookups of their
// symbols. Pure; called on one thread at a time.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "common/ids.h"
#include "common/time.h"
#include "coordinator/core/action.h"
#include "coordinator/core/blame/blame.h"
#include "coordinator/core/core_options.h"
#include "coordinator/core/event.h"
#include "coordinator/core/fleet/fleet.h"
#include "coordinator/core/hang/dump.h"
#include "coordinator/core/records/job.h"

namespace muster::coordinator {

// The number of samples of a dump, and the time limit for each.
struct DumpPlan {
  int32_t samples = 1;
  Duration deadline{};
};

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
  StackDump answer;
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
  // `unreachable`. Returns nullopt if no worker can be asked.
  std::optional<Begun> begin(const Job& job, Rank only, const DumpPlan& plan,
                             std::optional<RequestToken> request, const Fleet& fleet,
                             const std::set<WorkerName>& unreachable, const CoreOptions& options,
                             Instant now);
  // Null: there is no such dump.
  OpenDump* find(DumpId id);
  // Requires that there is one.
  OpenDump take(DumpId id) { return std::move(dumps_.extract(id).mapped()); }
  void drop(DumpId id) { dumps_.erase(id); }
  // The dumps that callers wait for.
  std::vector<DumpId> requested() const;
  // The number of dumps and lookups that callers wait for.
  size_t requests() const;

  struct Lookup {
    // Empty: no worker can be asked, so the lookup is not started.
    std::vector<SendToWorker> messages;
    // The incidents whose earlier lookups this one replaces.
    std::vector<IncidentId> replaced;
  };
  // Requests the symbols of open.stacks() from one worker per module, since all workers have the
  // same code. The rank may have ended by then; its file is still there.
  Lookup await_symbols(const Dump& dump, OpenSymbols open, const Fleet& fleet,
                       const CoreOptions& options, Instant now);
  // Adds the symbols. Returns the lookup if this was its last module.
  std::optional<OpenSymbols> add(const SymbolsReceived& event);
  // Removes and returns the lookups past their deadline, with the symbols received so far.
  std::vector<OpenSymbols> take_late_symbols(Instant now);

  // Excludes coordinator downtime: extends every deadline by `time`.
  void excuse(Duration time);
  std::optional<Instant> next_deadline() const;

 private:
  std::map<DumpId, OpenDump> dumps_;
  std::map<DumpId, OpenSymbols> symbols_;
  DumpId last_{0};
};

// Returns whether every report has arrived or the missing ones will not arrive in time.
// `unreachable`: the unreachable workers of the dump's attempt; null if the attempt has ended.
bool is_over(const OpenDump& open, const Fleet& fleet, const std::set<WorkerName>* unreachable,
             Instant now);

}  // namespace muster::coordinator
