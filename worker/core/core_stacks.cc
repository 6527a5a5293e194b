// Dumps of ranks' stacks: the schedule of samples and their reports.
#include <algorithm>
#include <set>
#include <utility>

#include <absl/strings/str_cat.h>

#include "common/job/limits.h"
#include "worker/core/core.h"

namespace muster::worker {
namespace {

// A coordinator runs one dump per job at a time, plus some that people request.
constexpr size_t kDumpsMax = 16;
constexpr int32_t kSamplesMax = 10;
constexpr Duration kApartMax = std::chrono::minutes(1);
constexpr Duration kDeadlineMin = std::chrono::milliseconds(50);
constexpr Duration kDeadlineMax = std::chrono::minutes(1);
// The shell enforces the deadline; a shell that has not answered long after it never will.
constexpr Duration kAnswerPatience = std::chrono::seconds(30);
// Addresses being resolved or waiting, plus one per module: two dumps of programs with thousands of
// modules.
constexpr size_t kPendingAddressesMax = 4 * kStackTreeNodesMax;

size_t cost_of(size_t addresses) { return addresses + 1; }

}  // namespace

void Core::on(const DumpStacks& event, Instant now, ActionList& out) {
  if (is_stale(event.epoch, "DumpStacks", out)) return;
  std::erase_if(dumps_, [&](const auto& entry) {
    const PendingDump& dump = entry.second;
    return !dump.read_at && dump.requested_at + dump.request.deadline + kAnswerPatience < now;
  });
  const bool sane = event.samples >= 1 && !event.ranks.empty() &&
                    event.ranks.size() <= size_t{kRanksPerNodeMax} && dumps_.size() < kDumpsMax;
  if (!sane || dumps_.contains(event.dump)) {
    out.push_back(Note{true, absl::StrCat("ignoring a DumpStacks for ", event.samples,
                                          " samples of ", event.ranks.size(), " ranks while ",
                                          dumps_.size(), " dumps are on their way")});
    return;
  }
  PendingDump dump;
  dump.request = event;
  dump.request.samples = std::min(event.samples, kSamplesMax);
  dump.request.apart = std::clamp(event.apart, Duration::zero(), kApartMax);
  dump.request.deadline = std::clamp(event.deadline, kDeadlineMin, kDeadlineMax);
  dump.read_at = now;
  dumps_.emplace(event.dump, std::move(dump));
  read_due_samples(now, out);
}

void Core::read_due_samples(Instant now, ActionList& out) {
  std::vector<uint64_t> due;
  for (const auto& [id, dump] : dumps_) {
    if (is_due(dump.read_at, now)) due.push_back(id);
  }
  for (const uint64_t id : due) read_sample(id, now, out);
}

void Core::read_sample(uint64_t id, Instant now, ActionList& out) {
  PendingDump& dump = dumps_.at(id);
  dump.read_at.reset();
  dump.requested_at = now;
  const DumpStacks& request = dump.request;
  ReadStacks read{request.launch, id, dump.sample, request.samples, request.deadline, {}};
  for (const Rank rank : request.ranks) {
    const auto found = ranks_.find({request.launch.job, request.launch.attempt, rank});
    if (found != ranks_.end() && found->second.life == Life::kUp) read.ranks.push_back(rank);
  }
  if (read.ranks.empty()) {
    on(StackResults{request.launch, id, dump.sample, {}, {}, {}}, now, out);
  } else {
    out.push_back(std::move(read));
  }
}

void Core::on(const StackResults& event, Instant now, ActionList& out) {
  const auto found = dumps_.find(event.dump);
  if (found == dumps_.end()) return;
  PendingDump& dump = found->second;
  if (dump.read_at || dump.sample != event.sample || dump.request.launch != event.launch) return;
  SendStackReport report{event.launch, event.dump,  event.sample,
                         event.stacks, event.ranks, event.kernel_messages};
  std::set<int32_t> reported;
  for (const RankEvidence& rank : event.ranks) reported.insert(rank.rank);
  for (const Rank rank : dump.request.ranks) {
    if (!reported.insert(rank.value()).second) continue;
    RankEvidence& absent = report.ranks.emplace_back();
    absent.rank = rank.value();
    absent.page_problem = absent.stack_problem = "it does not run here";
  }
  if (link_ == Link::kRegistered) out.push_back(std::move(report));
  if (++dump.sample >= dump.request.samples) {
    dumps_.erase(found);
  } else {
    dump.read_at = std::max(now, dump.requested_at + dump.request.apart);
  }
}

void Core::on(const Symbolize& event, Instant, ActionList& out) {
  if (is_stale(event.epoch, "Symbolize", out)) return;
  const size_t cost = cost_of(event.addresses.size());
  if (event.addresses.size() > kStackTreeNodesMax ||
      pending_addresses_ + cost > kPendingAddressesMax) {
    out.push_back(Note{true, absl::StrCat("ignoring a Symbolize with ", event.addresses.size(),
                                          " addresses while ", pending_addresses_,
                                          " others are pending: no dumps "
                                          "have as many")});
    return;
  }
  pending_addresses_ += cost;
  out.push_back(ReadSymbols{event.launch, event.dump, event.module, event.addresses});
}

void Core::on(const SymbolResults& event, Instant, ActionList& out) {
  pending_addresses_ -= std::min(pending_addresses_, cost_of(event.symbols.size()));
  if (link_ == Link::kRegistered)
    out.push_back(SendSymbols{event.dump, event.module, event.symbols});
}

}  // namespace muster::worker
