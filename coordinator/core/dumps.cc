// Dumps of stacks on their way, for the ladder and for people, and the names of what is in them.
#include <algorithm>
#include <utility>

#include <absl/strings/str_cat.h>

#include "common/absl_view.h"
#include "coordinator/core/core.h"

namespace muster::coordinator {
namespace {

// People and scripts that look at once. Fewer than a worker reads at once (worker/shell/stack_reader.cc), so that a suspicion's own dump
// finds a reader that is free.
constexpr size_t kRequestsMax = 3;
// What an answer takes to travel, beyond the time to read.
constexpr Duration kAnswerSlack = std::chrono::milliseconds(500);
// Of one module, whose names are looked up while people wait.
constexpr size_t kAddressesMax = 20'000;

}  // namespace

void Core::on(const StacksRequested& event) {
  const auto refuse = [&](absl::Status status) {
    actions_.push_back(ReplyStacks{event.token, std::move(status), {}});
  };
  const auto active = active_job(event.job);
  if (!active.ok()) return refuse(active.status());
  const Job& job = **active;
  const std::string name = absl::StrCat("job ", job.id.value());
  if (!is_live(job.state)) {
    return refuse(absl::FailedPreconditionError(absl::StrCat(
        name, " is not running (", av(job_state_name(job.state)), "): it has no stacks")));
  }
  if (event.rank.value() < -1 || event.rank.value() >= std::ssize(job.placement)) {
    return refuse(absl::InvalidArgumentError(absl::StrCat(
        "rank is ", event.rank.value(), ": ", name, " has ranks 0 to ", job.placement.size() - 1)));
  }
  const auto is_asked_for = [](const auto& entry) { return entry.second.request.has_value(); };
  const auto asking = std::count_if(dumps_.begin(), dumps_.end(), is_asked_for) +
                      std::count_if(symbols_.begin(), symbols_.end(), is_asked_for);
  if (static_cast<size_t>(asking) >= kRequestsMax) {
    return refuse(absl::ResourceExhaustedError(
        absl::StrCat(asking, " dumps are on their way; ask again when they are there")));
  }
  // Programs are asked with the first of several samples, and have until the last one to answer.
  const Looks looks = event.program_dumps ? Looks{2, options_.program_dumps_deadline}
                                          : Looks{1, options_.sample_deadline};
  if (begin_dump(job, event.rank, looks, event.token)) return;
  refuse(absl::FailedPreconditionError(
      absl::StrCat("no worker with a running rank of ", name, " is connected now; ask again")));
}

// Nothing when nobody can be asked.
std::optional<DumpId> Core::begin_dump(const Job& job, Rank only, const Looks& looks,
                                       std::optional<RequestToken> request) {
  const Launch& launch = launches_.at(job.id);
  Dump::Asked asked;
  for (const RankPlacement& rank : job.placement) {
    const bool wanted = only.value() < 0 || rank.rank == only;
    const RankState& state = job.ranks[static_cast<size_t>(rank.rank.value())];
    if (wanted && state.life == RankState::Life::kUp) asked[rank.worker].push_back(rank.rank);
  }
  const auto reachable = [&](const WorkerName& name) {
    const auto worker = workers_.find(name);
    return worker != workers_.end() && worker->second.connected &&
           !launch.unreachable.contains(name);
  };
  const bool anybody = std::any_of(asked.begin(), asked.end(),
                                   [&](const auto& entry) { return reachable(entry.first); });
  if (!anybody) return std::nullopt;
  last_dump_ = DumpId(last_dump_.value() + 1);
  // A worker begins a sample when the one before is there, which may take its whole time.
  const Instant deadline = now_ +
                           (looks.samples - 1) * std::max(options_.samples_apart, looks.deadline) +
                           looks.deadline + kAnswerSlack;
  for (const auto& [name, ranks] : asked) {
    if (!reachable(name)) continue;
    send(workers_.at(name), SendDumpStacks{job.id, job.attempt, last_dump_, looks.samples,
                                           options_.samples_apart, looks.deadline, ranks});
  }
  dumps_.emplace(last_dump_, OpenDump{Dump(job.id, job.attempt, looks.samples, std::move(asked)),
                                      deadline, request});
  return last_dump_;
}

// All has come, or what has not will not come in time.
bool Core::is_over(const OpenDump& open) const {
  const auto launch = launches_.find(open.dump.job());
  if (open.deadline <= now_ || launch == launches_.end()) return true;
  return std::none_of(open.dump.waiting().begin(), open.dump.waiting().end(),
                      [&](const WorkerName& name) {
                        const auto worker = workers_.find(name);
                        return worker != workers_.end() && worker->second.connected &&
                               !launch->second.unreachable.contains(name);
                      });
}

void Core::on(const StackReportReceived& event) {
  Worker* worker = current_worker(event.worker, event.incarnation);
  if (worker == nullptr) return;
  worker->last_heard = now_;
  const auto open = dumps_.find(event.dump);
  if (open == dumps_.end() || !open->second.dump.add(event)) return;
  if (open->second.request) {
    if (is_over(open->second)) answer_request(dumps_.extract(open).mapped());
    return;
  }
  watch_evidence(event);
  climb(jobs_.at(open->second.dump.job()));
}

void Core::answer_request(const OpenDump& open) {
  StackDump answer = open.dump.to_people();
  OpenSymbols named;
  named.request = open.request;
  named.answer = answer;
  if (ask_for_symbols(open.dump, std::move(named))) return;
  actions_.push_back(ReplyStacks{*open.request, absl::OkStatus(), std::move(answer)});
}

// One worker for each module: all of them have the same code. The rank may be gone by the time it looks; the file is not. Names of an
// incident's earlier stacks are not waited for any more. False: nobody can be asked.
bool Core::ask_for_symbols(const Dump& dump, OpenSymbols open) {
  std::erase_if(symbols_, [&](const auto& entry) {
    const bool earlier =
        !open.request && !entry.second.request && entry.second.incident == open.incident;
    if (earlier) incidents_.settle(open.incident);
    return earlier;
  });
  const StackTree& tree = open.stacks();
  std::map<uint32_t, std::set<uint64_t>> addresses;
  for (const StackFrame& frame : tree.frames()) {
    if (frame.module == kNoModule || addresses[frame.module].size() >= kAddressesMax) continue;
    addresses[frame.module].insert(frame.address);
  }
  last_dump_ = DumpId(last_dump_.value() + 1);
  open.deadline = now_ + options_.symbols_wait;
  for (const auto& [index, places] : addresses) {
    const StackModule& module = tree.modules()[index];
    const auto worker = workers_.find(dump.worker_with(module));
    if (worker == workers_.end() || !worker->second.connected) continue;
    send(worker->second,
         SendSymbolize{
             last_dump_, dump.job(), dump.attempt(), module, {places.begin(), places.end()}});
    open.modules.insert(module);
  }
  if (open.modules.empty()) return false;
  if (!open.request) incidents_.await(open.incident);
  symbols_.emplace(last_dump_, std::move(open));
  return true;
}

void Core::on(const SymbolsReceived& event) {
  Worker* worker = current_worker(event.worker, event.incarnation);
  if (worker == nullptr) return;
  worker->last_heard = now_;
  const auto found = symbols_.find(event.dump);
  if (found == symbols_.end() || found->second.modules.erase(event.module) == 0) return;
  StackTree& tree = found->second.stacks();
  const std::map<uint64_t, FrameSymbol> names(event.symbols.begin(), event.symbols.end());
  for (uint32_t i = 0; i < tree.frames().size(); ++i) {
    const StackFrame& frame = tree.frames()[i];
    if (frame.module == kNoModule || tree.modules()[frame.module] != event.module) continue;
    if (const auto name = names.find(frame.address); name != names.end())
      tree.set_symbol(i, name->second);
  }
  if (found->second.modules.empty()) end_symbols(event.dump);
}

// With what has come: the same verdict, and places that people can read.
void Core::end_symbols(DumpId id) {
  const auto found = symbols_.find(id);
  const OpenSymbols open = std::move(found->second);
  symbols_.erase(found);
  if (open.request) {
    actions_.push_back(ReplyStacks{*open.request, absl::OkStatus(), open.answer});
    return;
  }
  if (Incident* incident = incidents_.change(open.incident))
    take_blame(*incident, open.input, blame(open.input));
  incidents_.settle(open.incident);
}

void Core::check_dumps() {
  std::vector<DumpId> over;
  for (const auto& [id, open] : dumps_) {
    if (open.request && is_over(open)) over.push_back(id);
  }
  for (const DumpId id : over) answer_request(dumps_.extract(id).mapped());
  std::vector<DumpId> late;
  for (const auto& [id, open] : symbols_) {
    if (open.deadline <= now_) late.push_back(id);
  }
  for (const DumpId id : late) end_symbols(id);
}

}  // namespace muster::coordinator
