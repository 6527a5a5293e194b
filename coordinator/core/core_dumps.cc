// Dumps of stacks for hang verdicts and for users, and lookups of their symbols.
#include <algorithm>
#include <utility>

#include <absl/strings/str_cat.h>

#include "common/absl_view.h"
#include "coordinator/core/core.h"

namespace muster::coordinator {
namespace {

// Concurrent requests by users and scripts. Fewer than a worker reads at once
// (worker/shell/stack_reader.cc), so that the dump of a suspicion finds a free reader.
constexpr size_t kRequestsMax = 3;

}  // namespace

void Core::on(const StacksRequested& event) {
  const auto refuse = [&](absl::Status status) {
    actions_.push_back(ReplyStacks{event.token, std::move(status), {}});
  };
  const auto found = jobs_.unfinished(event.job);
  if (!found.ok()) return refuse(found.status());
  const Job& job = **found;
  const std::string name = absl::StrCat("job ", job.id.value());
  if (!is_live(job.state)) {
    return refuse(absl::FailedPreconditionError(absl::StrCat(
        name, " is not running (", av(job_state_name(job.state)), "): it has no stacks")));
  }
  if (event.rank.value() < -1 || event.rank.value() >= std::ssize(job.placement)) {
    return refuse(absl::InvalidArgumentError(absl::StrCat(
        "rank is ", event.rank.value(), ": ", name, " has ranks 0 to ", job.placement.size() - 1)));
  }
  if (const size_t open = dumps_.requests(); open >= kRequestsMax) {
    return refuse(absl::ResourceExhaustedError(
        absl::StrCat(open, " dumps are on their way; ask again when they are there")));
  }
  // The first of several samples requests the program's dumps, and the program can answer until the
  // last one.
  const DumpPlan plan = event.program_dumps ? DumpPlan{2, options_.program_dumps_deadline}
                                            : DumpPlan{1, options_.sample_deadline};
  const auto begun = dumps_.begin(job, event.rank, plan, event.token, fleet_,
                                  attempts_.at(job.id).reach.unreachable, options_, time_.now);
  if (!begun) {
    return refuse(absl::FailedPreconditionError(
        absl::StrCat("no worker with a running rank of ", name, " is connected now; ask again")));
  }
  actions_.insert(actions_.end(), begun->messages.begin(), begun->messages.end());
}

void Core::on(const StackReportReceived& event) {
  Worker* worker = fleet_.current(event.worker, event.incarnation);
  if (worker == nullptr) return;
  worker->last_heard = time_.now;
  OpenDump* open = dumps_.find(event.dump);
  if (open == nullptr || !open->dump.add(event)) return;
  if (open->request) return answer_if_over(event.dump);
  Job& job = jobs_.at(open->dump.job());
  attempts_.at(event.job).progress.correct(event, job.ranks.size(), time_.now);
  climb(job);
}

void Core::on(const SymbolsReceived& event) {
  Worker* worker = fleet_.current(event.worker, event.incarnation);
  if (worker == nullptr) return;
  worker->last_heard = time_.now;
  if (const auto complete = dumps_.add(event)) end_symbols(*complete);
}

// Returns false if no worker can be asked.
bool Core::await_symbols(const Dump& dump, OpenSymbols open) {
  const bool is_requested = open.request.has_value();
  const IncidentId incident = open.incident;
  const DumpTable::Lookup lookup =
      dumps_.await_symbols(dump, std::move(open), fleet_, options_, time_.now);
  for (const IncidentId replaced : lookup.replaced) incidents_.settle(replaced);
  if (lookup.messages.empty()) return false;
  actions_.insert(actions_.end(), lookup.messages.begin(), lookup.messages.end());
  if (!is_requested) incidents_.await(incident);
  return true;
}

// Adds the symbols to the incident or answer: the verdict stays, but its source positions become
// readable.
void Core::end_symbols(const OpenSymbols& open) {
  if (open.request) {
    actions_.push_back(ReplyStacks{*open.request, absl::OkStatus(), open.answer});
    return;
  }
  if (Incident* incident = incidents_.change(open.incident))
    take_blame(*incident, open.input, blame(open.input));
  incidents_.settle(open.incident);
}

// Answers the caller that waits for the dump.
void Core::answer_if_over(DumpId id) {
  const OpenDump& open = *dumps_.find(id);
  const auto attempt = attempts_.find(open.dump.job());
  const std::set<WorkerName>* unreachable =
      attempt == attempts_.end() ? nullptr : &attempt->second.reach.unreachable;
  if (!is_over(open, fleet_, unreachable, time_.now)) return;
  const OpenDump complete = dumps_.take(id);
  OpenSymbols named;
  named.request = complete.request;
  named.answer = complete.dump.to_people();
  StackDump answer = named.answer;
  if (!await_symbols(complete.dump, std::move(named)))
    actions_.push_back(ReplyStacks{*complete.request, absl::OkStatus(), std::move(answer)});
}

void Core::check_dumps() {
  for (const DumpId id : dumps_.requested()) answer_if_over(id);
  for (const OpenSymbols& late : dumps_.take_late_symbols(time_.now)) end_symbols(late);
}

}  // namespace muster::coordinator
