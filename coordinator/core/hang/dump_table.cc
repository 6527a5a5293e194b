#include "coordinator/core/hang/dump_table.h"

#include <algorithm>
#include <utility>

#include <absl/strings/str_cat.h>

#include "common/text/absl_view.h"

namespace muster::coordinator {
namespace {

// The time allowed for the transfer of a report, in addition to the time to read the stacks.
constexpr Duration kAnswerSlack = std::chrono::milliseconds(500);
// The time to read two samples, in addition to the interval between them.
constexpr Duration kReading = std::chrono::milliseconds(150);
// The largest number of addresses of one module that are resolved while users wait.
constexpr size_t kAddressesMax = 20'000;

// The maximum number of concurrent requests by users and scripts. It is lower than the number of
// concurrent reads of a worker (worker/shell/evidence/stack_reader.cc), so that the dump of a
// suspicion finds a free reader.
constexpr std::ptrdiff_t kRequestsMax = 3;

bool is_requested(const auto& entry) { return entry.second.request.has_value(); }

// Completes the incident, or returns the user's answer.
std::optional<ReplyStacks> complete(OpenSymbols open, IncidentBook& incidents) {
  if (open.request) return ReplyStacks{*open.request, absl::OkStatus(), std::move(open.answer)};
  if (Incident* incident = incidents.change(open.incident))
    take_blame(*incident, open.input, blame(open.input));
  incidents.settle(open.incident);
  return std::nullopt;
}

}  // namespace

std::optional<DumpTable::Begun> DumpTable::begin(const Job& job, Rank only, const DumpPlan& plan,
                                                 std::optional<RequestToken> request,
                                                 const Fleet& fleet,
                                                 const std::set<WorkerName>& unreachable,
                                                 const CoreOptions& options, Instant now) {
  Dump::Requested by_worker;
  for (const RankPlacement& rank : job.placement) {
    const bool wanted = only.value() < 0 || rank.rank == only;
    const RankState& state = job.ranks[static_cast<size_t>(rank.rank.value())];
    if (wanted && state.life == RankState::Life::kUp) by_worker[rank.worker].push_back(rank.rank);
  }
  Begun begun;
  for (const auto& [name, ranks] : by_worker) {
    const Worker* worker = fleet.find(name);
    if (worker == nullptr || !worker->connected || unreachable.contains(name)) continue;
    begun.messages.push_back(
        {worker->name, worker->incarnation,
         SendDumpStacks{job.id, job.attempt, DumpId(last_.value() + 1), plan.samples,
                        options.samples_apart, plan.deadline, ranks}});
  }
  if (begun.messages.empty()) return std::nullopt;
  last_ = DumpId(last_.value() + 1);
  begun.id = last_;
  // A worker begins a sample after it has completed the previous one, which may use its full time
  // limit.
  const Instant deadline = now +
                           (plan.samples - 1) * std::max(options.samples_apart, plan.deadline) +
                           plan.deadline + kAnswerSlack;
  dumps_.emplace(last_, OpenDump{Dump(job.id, job.attempt, plan.samples, std::move(by_worker)),
                                 deadline, request});
  return begun;
}

OpenDump* DumpTable::find(DumpId id) {
  const auto found = dumps_.find(id);
  return found == dumps_.end() ? nullptr : &found->second;
}

std::vector<DumpId> DumpTable::requested() const {
  std::vector<DumpId> ids;
  for (const auto& entry : dumps_)
    if (is_requested(entry)) ids.push_back(entry.first);
  return ids;
}

absl::StatusOr<std::vector<SendToWorker>> DumpTable::request(
    const StacksRequested& event, const Job& job, const Fleet& fleet,
    const std::set<WorkerName>* unreachable, const CoreOptions& options, Instant now) {
  const std::string name = absl::StrCat("job ", job.id.value());
  if (!is_live(job.state)) {
    return absl::FailedPreconditionError(absl::StrCat(
        name, " is not running (", av(job_state_name(job.state)), "): it has no stacks"));
  }
  if (event.rank.value() < -1 || event.rank.value() >= std::ssize(job.placement)) {
    return absl::InvalidArgumentError(absl::StrCat("rank is ", event.rank.value(), ": ", name,
                                                   " has ranks 0 to ", job.placement.size() - 1));
  }
  const auto waited_for = [](const auto& entry) { return is_requested(entry); };
  const auto open =
      std::ranges::count_if(dumps_, waited_for) + std::ranges::count_if(symbols_, waited_for);
  if (open >= kRequestsMax) {
    return absl::ResourceExhaustedError(
        absl::StrCat(open, " dumps are in progress; try again when they have ended"));
  }
  // The first of several samples requests the program's dumps, and the program can answer until the
  // last one.
  const DumpPlan plan = event.program_dumps ? DumpPlan{2, options.program_dumps_deadline}
                                            : DumpPlan{1, options.sample_deadline};
  std::optional<Begun> begun =
      begin(job, event.rank, plan, event.token, fleet, *unreachable, options, now);
  if (!begun) {
    return absl::FailedPreconditionError(
        absl::StrCat("no worker with a running rank of ", name, " is connected now; try again"));
  }
  return std::move(begun->messages);
}

ActionList DumpTable::answer_if_over(DumpId id, const Fleet& fleet,
                                     const std::set<WorkerName>* unreachable,
                                     const CoreOptions& options, Instant now) {
  if (!is_over(*find(id), fleet, unreachable, now)) return {};
  const OpenDump complete = take(id);
  OpenSymbols open;
  open.request = complete.request;
  open.answer = complete.dump.to_stack_dump();
  JobStackDump answer = open.answer;
  const std::vector<SendToWorker> messages =
      await_symbols(complete.dump, std::move(open), fleet, options, now);
  if (messages.empty())
    return {ReplyStacks{*complete.request, absl::OkStatus(), std::move(answer)}};
  return {messages.begin(), messages.end()};
}

std::vector<SendToWorker> DumpTable::look_up(IncidentBook& incidents, IncidentId incident,
                                             const Dump& dump, BlameInput input, const Fleet& fleet,
                                             const CoreOptions& options, Instant now) {
  std::erase_if(symbols_, [&](const auto& entry) {
    const bool is_earlier = !is_requested(entry) && entry.second.incident == incident;
    if (is_earlier) incidents.settle(incident);
    return is_earlier;
  });
  OpenSymbols open;
  open.incident = incident;
  open.input = std::move(input);
  std::vector<SendToWorker> messages = await_symbols(dump, std::move(open), fleet, options, now);
  if (!messages.empty()) incidents.await(incident);
  return messages;
}

// Requests the symbols of open.stacks() from one worker per module, since all workers have the same
// code. A rank may have ended by then, but the file with its code still exists. If no worker can
// resolve the symbols, returns no messages and starts no lookup.
std::vector<SendToWorker> DumpTable::await_symbols(const Dump& dump, OpenSymbols open,
                                                   const Fleet& fleet, const CoreOptions& options,
                                                   Instant now) {
  std::vector<SendToWorker> messages;
  const StackTree& tree = open.stacks();
  std::map<uint32_t, std::set<uint64_t>> addresses;
  for (const StackFrame& frame : tree.frames()) {
    if (frame.module == kNoModule || addresses[frame.module].size() >= kAddressesMax) continue;
    addresses[frame.module].insert(frame.address);
  }
  last_ = DumpId(last_.value() + 1);
  open.deadline = now + options.symbols_wait;
  for (const auto& [index, places] : addresses) {
    const StackModule& module = tree.modules()[index];
    const Worker* worker = fleet.find(dump.worker_with(module));
    if (worker == nullptr || !worker->connected) continue;
    messages.push_back(
        {worker->name, worker->incarnation,
         SendSymbolize{last_, dump.job(), dump.attempt(), module, {places.begin(), places.end()}}});
    open.modules.insert(module);
  }
  if (!open.modules.empty()) symbols_.emplace(last_, std::move(open));
  return messages;
}

std::optional<ReplyStacks> DumpTable::add(const SymbolsReceived& event, IncidentBook& incidents) {
  const auto found = symbols_.find(event.dump);
  if (found == symbols_.end() || found->second.modules.erase(event.module) == 0)
    return std::nullopt;
  StackTree& tree = found->second.stacks();
  const std::map<uint64_t, FrameSymbol> names(event.symbols.begin(), event.symbols.end());
  for (uint32_t i = 0; i < tree.frames().size(); ++i) {
    const StackFrame& frame = tree.frames()[i];
    if (frame.module == kNoModule || tree.modules()[frame.module] != event.module) continue;
    if (const auto name = names.find(frame.address); name != names.end())
      tree.set_symbol(i, name->second);
  }
  if (!found->second.modules.empty()) return std::nullopt;
  return complete(std::move(symbols_.extract(found).mapped()), incidents);
}

std::vector<ReplyStacks> DumpTable::end_late_lookups(IncidentBook& incidents, Instant now) {
  std::vector<ReplyStacks> replies;
  for (auto it = symbols_.begin(); it != symbols_.end();) {
    if (it->second.deadline > now) {
      ++it;
      continue;
    }
    if (auto reply = complete(std::move(it->second), incidents))
      replies.push_back(*std::move(reply));
    it = symbols_.erase(it);
  }
  return replies;
}

void DumpTable::excuse(Duration time) {
  for (auto& [id, open] : dumps_) open.deadline += time;
  for (auto& [id, open] : symbols_) open.deadline += time;
}

std::optional<Instant> DumpTable::next_deadline() const {
  std::optional<Instant> next;
  const auto consider = [&next](Instant t) { next = next ? std::min(*next, t) : t; };
  for (const auto& [id, open] : dumps_) consider(open.deadline);
  for (const auto& [id, open] : symbols_) consider(open.deadline);
  return next;
}

Duration time_of_dump(const CoreOptions& options) { return options.samples_apart + kReading; }

bool is_over(const OpenDump& open, const Fleet& fleet, const std::set<WorkerName>* unreachable,
             Instant now) {
  if (open.deadline <= now || unreachable == nullptr) return true;
  return std::ranges::none_of(open.dump.waiting(), [&](const WorkerName& name) {
    const Worker* worker = fleet.find(name);
    return worker != nullptr && worker->connected && !unreachable->contains(name);
  });
}

}  // namespace muster::coordinator
