// Dumps of stacks that are on their way, for the ladder and for people, and the symbols that are
// looked up for them. Pure; one thread at a time.
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

// How many samples a dump takes, and the time for each.
struct DumpPlan {
  int32_t samples = 1;
  Duration deadline{};
};

struct OpenDump {
  Dump dump;
  Instant deadline;
  // The caller who waits for it. Unset: the ladder.
  std::optional<RequestToken> request;
};

// Symbols that are awaited, for an incident or for a caller who wants stacks.
struct OpenSymbols {
  // The incident, whose stacks are input.later's …
  IncidentId incident;
  BlameInput input;
  // … or the caller, whose answer waits.
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
  // Begins a dump of the ranks that are up, or of rank `only`, without the workers of
  // `unreachable`. Nothing when no worker can be asked.
  std::optional<Begun> begin(const Job& job, Rank only, const DumpPlan& plan,
                             std::optional<RequestToken> request, const Fleet& fleet,
                             const std::set<WorkerName>& unreachable, const CoreOptions& options,
                             Instant now);
  // Null: there is no such dump.
  OpenDump* find(DumpId id);
  // Requires that there is one.
  OpenDump take(DumpId id) { return std::move(dumps_.extract(id).mapped()); }
  void drop(DumpId id) { dumps_.erase(id); }
  // The dumps for which people wait.
  std::vector<DumpId> requested() const;
  // Dumps and symbols for which people wait.
  size_t requests() const;

  struct Lookup {
    // Empty: no worker can be asked, and nothing is awaited.
    std::vector<SendToWorker> messages;
    // The incidents whose earlier lookups this one replaces.
    std::vector<IncidentId> replaced;
  };
  // Requests the symbols of open.stacks(): one worker for each module, since all have the same
  // code. The rank may have ended by then; the file is still there.
  Lookup await_symbols(const Dump& dump, OpenSymbols open, const Fleet& fleet,
                       const CoreOptions& options, Instant now);
  // Adds the symbols. The lookup, if this was its last module.
  std::optional<OpenSymbols> add(const SymbolsReceived& event);
  // The lookups whose time is over, with what has come.
  std::vector<OpenSymbols> take_late_symbols(Instant now);

  // The coordinator stood still for `time`.
  void excuse(Duration time);
  std::optional<Instant> next_deadline() const;

 private:
  std::map<DumpId, OpenDump> dumps_;
  std::map<DumpId, OpenSymbols> symbols_;
  DumpId last_{0};
};

// Every report has come, or what is missing will not come in time. `unreachable`: of the dump's
// attempt; null when that has ended.
bool is_over(const OpenDump& open, const Fleet& fleet, const std::set<WorkerName>* unreachable,
             Instant now);

}  // namespace muster::coordinator
