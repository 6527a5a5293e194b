#include "coordinator/core/hang/dump_table.h"

#include <algorithm>
#include <utility>

namespace muster::coordinator {
namespace {

// Allowance for the transfer of an answer, in addition to the time to read.
constexpr Duration kAnswerSlack = std::chrono::milliseconds(500);
// The largest number of addresses of one module that are looked up while users wait.
constexpr size_t kAddressesMax = 20'000;

bool is_requested(const auto& entry) { return entry.second.request.has_value(); }

}  // namespace

std::optional<DumpTable::Begun> DumpTable::begin(const Job& job, Rank only, const DumpPlan& plan,
                                                 std::optional<RequestToken> request,
                                                 const Fleet& fleet,
                                                 const std::set<WorkerName>& unreachable,
                                                 const CoreOptions& options, Instant now) {
  Dump::Asked asked;
  for (const RankPlacement& rank : job.placement) {
    const bool wanted = only.value() < 0 || rank.rank == only;
    const RankState& state = job.ranks[static_cast<size_t>(rank.rank.value())];
    if (wanted && state.life == RankState::Life::kUp) asked[rank.worker].push_back(rank.rank);
  }
  Begun begun;
  for (const auto& [name, ranks] : asked) {
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
  dumps_.emplace(last_, OpenDump{Dump(job.id, job.attempt, plan.samples, std::move(asked)),
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

size_t DumpTable::requests() const {
  const auto requested = [](const auto& entry) { return is_requested(entry); };
  return static_cast<size_t>(std::ranges::count_if(dumps_, requested) +
                             std::ranges::count_if(symbols_, requested));
}

DumpTable::Lookup DumpTable::await_symbols(const Dump& dump, OpenSymbols open, const Fleet& fleet,
                                           const CoreOptions& options, Instant now) {
  Lookup lookup;
  std::erase_if(symbols_, [&](const auto& entry) {
    const bool earlier =
        !open.request && !entry.second.request && entry.second.incident == open.incident;
    if (earlier) lookup.replaced.push_back(open.incident);
    return earlier;
  });
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
    lookup.messages.push_back(
        {worker->name, worker->incarnation,
         SendSymbolize{last_, dump.job(), dump.attempt(), module, {places.begin(), places.end()}}});
    open.modules.insert(module);
  }
  if (!open.modules.empty()) symbols_.emplace(last_, std::move(open));
  return lookup;
}

std::optional<OpenSymbols> DumpTable::add(const SymbolsReceived& event) {
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
  return std::move(symbols_.extract(found).mapped());
}

std::vector<OpenSymbols> DumpTable::take_late_symbols(Instant now) {
  std::vector<OpenSymbols> late;
  for (auto it = symbols_.begin(); it != symbols_.end();) {
    if (it->second.deadline > now) {
      ++it;
      continue;
    }
    late.push_back(std::move(it->second));
    it = symbols_.erase(it);
  }
  return late;
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

bool is_over(const OpenDump& open, const Fleet& fleet, const std::set<WorkerName>* unreachable,
             Instant now) {
  if (open.deadline <= now || unreachable == nullptr) return true;
  return std::ranges::none_of(open.dump.waiting(), [&](const WorkerName& name) {
    const Worker* worker = fleet.find(name);
    return worker != nullptr && worker->connected && !unreachable->contains(name);
  });
}

}  // namespace muster::coordinator
