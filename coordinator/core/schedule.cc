// The queue's pass: which waiting jobs are placed, and why the others are not.
#include <algorithm>
#include <map>
#include <string_view>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>

#include "common/absl_view.h"
#include "coordinator/core/core.h"
#include "coordinator/core/placement/placement.h"
#include "coordinator/core/records/sizes.h"

namespace muster::coordinator {
namespace {

// `missing`: there is a worker with free slots and too few free GPUs.
std::string gpus_text(const JobSpec& spec, bool missing) {
  if (spec.gpus_per_rank == kGpusOfSlot && missing)
    return spec.ranks_per_node == 1 ? " and its share of free GPUs"
                                    : " and their share of free GPUs";
  if (spec.gpus_per_rank <= 0) return "";
  const int32_t gpus = spec.gpus_per_rank * spec.ranks_per_node;
  return absl::StrCat(" and ", gpus, gpus == 1 ? " free GPU" : " free GPUs");
}

// `fewest`: so many would do.
std::string need_text(const JobSpec& spec, int32_t fewest, bool gpus_missing) {
  return absl::StrCat(
      spec.nodes, spec.nodes == 1 ? " worker" : " workers",
      fewest < spec.nodes ? absl::StrCat(", or at least ", fewest, ",") : std::string(), " with ",
      spec.ranks_per_node, spec.ranks_per_node == 1 ? " free slot" : " free slots",
      gpus_text(spec, gpus_missing), spec.nodes == 1 ? "" : " each");
}

// Where no worker has as many slots as the job wants of each: how its ranks would fit on those that are there, if they would.
std::string fitting_text(const JobSpec& spec, Wish wish, const std::vector<Host>& hosts) {
  int32_t largest = 0;
  for (const Host& host : hosts) largest = std::max(largest, host.slots);
  if (largest == 0 || largest >= spec.ranks_per_node) return "";
  const int32_t ranks = spec.nodes * spec.ranks_per_node;
  std::string shape;
  for (int32_t each = largest; each > 0 && shape.empty(); --each) {
    wish.ranks_per_node = each;
    const auto fits = [&](const Host& host) { return wish.would_have_room(host); };
    if (ranks % each == 0 && std::ranges::count_if(hosts, fits) >= ranks / each)
      shape = absl::StrCat(": --nodes ", ranks / each, " --ranks-per-node ", each);
  }
  return absl::StrCat(" (the largest has ", largest, largest == 1 ? " slot" : " slots", shape, ")");
}

// Of connected workers on which nothing is placed any more, and why.
std::string passed_over_text(const std::vector<std::string>& workers, const char* why) {
  constexpr size_t kNamedMax = 3;  // a reason is one line
  if (workers.empty()) return "";
  const size_t named = std::min(workers.size(), kNamedMax);
  const std::string names =
      absl::StrJoin(workers.begin(), workers.begin() + static_cast<std::ptrdiff_t>(named), ", ");
  const size_t more = workers.size() - named;
  return absl::StrCat(" (", names, more > 0 ? absl::StrCat(" and ", more, " more") : "",
                      workers.size() == 1 ? " is " : " are ", why, ")");
}

}  // namespace

// `awaited`: that its other nodes are kept for; empty: none.
std::string Core::kept_text(const Job& job, const WorkerName& awaited) const {
  if (awaited.value().empty() || job.held.empty()) return "";
  return absl::StrCat(
      "; ", job.held.size() == 1 ? "one node is" : absl::StrCat(job.held.size(), " nodes are"),
      " kept for it, for up to ", to_seconds(options_.keep_nodes),
      " s after its last attempt, while ", awaited.value(), " is away");
}

// Of a job that waits for GPUs of its own, where some of `hosts` know why they have none. No numbers of workers, with which the job's reason
// would change whenever one comes or goes.
std::string Core::without_gpus_text(const JobSpec& spec, const std::vector<Host>& hosts) const {
  constexpr size_t kReasonsMax = 2;  // a reason is one line
  if (spec.gpus_per_rank <= 0) return "";
  std::map<std::string_view, std::vector<std::string_view>> workers_of;
  for (const Host& host : hosts)
    if (const std::string& why = workers_.at(host.name).no_gpus_because; !why.empty())
      workers_of[why].push_back(host.name.value());
  // What few have is what somebody can mend; the others may be a pool that has none.
  std::vector<std::string_view> reasons;
  for (const auto& [why, names] : workers_of) reasons.push_back(why);
  std::ranges::stable_sort(reasons, {}, [&](auto why) { return workers_of.at(why).size(); });
  if (reasons.size() > kReasonsMax) reasons.resize(kReasonsMax);
  std::string text;
  for (const std::string_view why : reasons) {
    const auto& names = workers_of.at(why);
    absl::StrAppend(&text, "; ", av(names.front()), names.size() == 1 ? " has" : " and others have",
                    " no GPUs: ", av(why));
  }
  return text;
}

// Of all of its ranks there; no GPUs of a worker that is not known.
NodeUse Core::use_of(const JobSpec& spec, const WorkerName& name) const {
  const auto worker = workers_.find(name);
  if (worker == workers_.end()) return {spec.ranks_per_node, 0};
  const auto gpus = static_cast<int32_t>(std::ssize(worker->second.gpus));
  return {spec.ranks_per_node,
          spec.ranks_per_node * gpus_of_rank(spec.gpus_per_rank, gpus, worker->second.slots)};
}

Host Core::host_of(const Worker& worker, const NodeUse& use) {
  const auto gpus = static_cast<int32_t>(std::ssize(worker.gpus));
  return {.name = worker.name,
          .incarnation = worker.incarnation,
          .slots = worker.slots,
          .slots_free = worker.slots - use.slots,
          .switches = worker.switches,
          .gpus = gpus,
          .gpus_free = gpus - use.gpus};
}

NodeUses Core::use_by_worker() const {
  NodeUses uses = use_of_ranks();
  for (const auto& [name, held] : held_by_worker()) uses[name] += held;
  return uses;
}

NodeUses Core::held_by_worker() const {
  NodeUses held;
  for (const auto& [id, job] : jobs_)
    for (const WorkerName& name : job.held) held[name] += use_of(job.spec, name);
  return held;
}

// Strays among them.
NodeUses Core::use_of_ranks() const {
  NodeUses uses;
  for (const auto& [id, launch] : launches_) {
    const Job& job = jobs_.at(id);
    for (const RankPlacement& rank : job.placement) {
      // Counted with the first of its node.
      if (rank.local_rank == 0) uses[rank.worker] += use_of(job.spec, rank.worker);
    }
  }
  // Both are in the order of names: each place is behind the one before.
  auto at = uses.begin();
  for (const auto& [name, worker] : workers_) {
    at = uses.try_emplace(at, name);
    const auto gpus = static_cast<int32_t>(std::ssize(worker.gpus));
    for (const RankKey& stray : worker.strays) {
      const auto job = jobs_.find(stray.job);
      // One of another store's may have all GPUs.
      at->second += {1, job == jobs_.end()
                            ? gpus
                            : gpus_of_rank(job->second.spec.gpus_per_rank, gpus, worker.slots)};
    }
    ++at;
  }
  return uses;
}

void Core::schedule() {
  schedule_needed_ = false;
  if (!anybody_wants_workers()) return;
  const NodeUses uses = use_of_ranks();
  const NodeUses held = held_by_worker();
  std::vector<Host> hosts;
  std::vector<Host> left_out;
  std::vector<std::string> leaving;
  std::vector<std::string> outdated;  // of another version: they run what they have
  for (const auto& [name, worker] : workers_) {
    if (!worker.connected || worker.given_up) continue;
    if (worker.leaving) {
      leaving.push_back(name.value());
    } else if (!takes_ranks(worker)) {
      outdated.push_back(name.value());
    } else {
      Host host = host_of(worker, uses.at(name));
      host.held = held.contains(name);
      (nodes_.is_sound(name) && worker.stuck.empty() ? hosts : left_out).push_back(std::move(host));
    }
  }
  for (std::vector<Host>* some : {&hosts, &left_out}) {
    std::sort(some->begin(), some->end(), comes_before);
  }

  bool turn_taken = false;  // by a job that waits for others to end
  for (const JobQueue::Entry& entry : in_turn()) {
    Job& job = jobs_.at(entry.job);
    if (job.state != JobState::kQueued) {
      keep_more_nodes(job, turn_taken, hosts);
      continue;
    }
    if (entry.not_before > now_) {
      keep_own_nodes(job, hosts);
      continue;
    }
    std::string reason;
    std::string remark;  // about nodes that are left out
    if (turn_taken) {
      keep_free(job, {}, hosts);
      reason = "waits for the jobs ahead of it in the queue";
    } else {
      const int32_t fewest = fewest_nodes(job);
      const bool soon = waits_for_all(job, entry);
      const bool whole = fewest == job.spec.nodes || soon;
      Placement placement = find_place(job, whole, hosts, left_out, remark);
      if (placement.fit == Fit::kNow) {
        std::map<WorkerName, int32_t> taken;
        for (const RankPlacement& rank : placement.ranks) ++taken[rank.worker];
        for (std::vector<Host>* some : {&hosts, &left_out}) {
          for (Host& host : *some) {
            if (const auto ranks = taken.find(host.name); ranks != taken.end()) {
              host.slots_free -= ranks->second;
              host.gpus_free -=
                  ranks->second * gpus_of_rank(job.spec.gpus_per_rank, host.gpus, host.slots);
            }
          }
        }
        start(job, std::move(placement.ranks));
        if (!remark.empty()) note(job, job.reason + remark);
        keep_more_nodes(job, turn_taken, hosts);
        continue;
      }
      const WorkerName awaited = node_to_wait_for(job, entry);
      if (soon || !awaited.value().empty()) {
        keep_own_nodes(job, hosts);
      } else {
        keep_free(job, {}, hosts);
      }
      turn_taken = placement.fit == Fit::kLater;
      const Wish wish = wish_of(job);
      const bool gpus_missing = std::ranges::any_of(hosts, [&](const Host& host) {
        return host.slots_free >= job.spec.ranks_per_node && !wish.has_room(host);
      });
      reason = absl::StrCat(
          "waits for ", need_text(job.spec, fewest, gpus_missing),
          turn_taken        ? ": they are busy"
          : leaving.empty() ? ": fewer are connected"
                            : ": fewer are connected and stay",
          fitting_text(job.spec, wish, hosts), passed_over_text(leaving, "leaving"),
          passed_over_text(outdated, "of another version and only ends what it runs"), remark,
          turn_taken ? "" : without_gpus_text(job.spec, hosts), kept_text(job, awaited));
    }
    if (reason != job.reason) note(job, std::move(reason));
  }
}

void Core::start(Job& job, std::vector<RankPlacement> placement) {
  queue_.remove(job.id, job.spec.priority);
  job.held.clear();
  job.attempt = Attempt(job.attempt.value() + 1);
  job.state = JobState::kStarting;
  job.placement = std::move(placement);
  job.exits.clear();
  job.stop_grace = Duration::zero();
  job.not_before_unix_ns = 0;
  job.ranks.assign(job.placement.size(), RankState{});
  job.started_unix_ns = unix_ns_;
  job.rendezvous_address = workers_.at(job.placement.front().worker).rendezvous_address;
  job.program_port = job.spec.is_program() ? free_program_port(job) : 0;
  Launch& launch = launches_[job.id];
  launch = Launch{};
  launch.started = now_;
  launch.start_deadline = now_ + options_.start_budget;
  begin_watching(job);
  account(job, JobTurn::kStarted);
  note(job, start_text(job));
  const WorkerName* previous = nullptr;
  for (const RankPlacement& rank : job.placement) {
    if (previous == nullptr || rank.worker != *previous) send_start(job, workers_.at(rank.worker));
    previous = &rank.worker;
  }
}

// Another one than the attempt before had, which may not have let go of it yet, and than others on that node have. 0 where its
// worker keeps none, or all are taken: its rank 0 then cannot be started there, and says so.
int32_t Core::free_program_port(const Job& job) const {
  const WorkerName& home = job.placement.front().worker;
  const PortRange ports = workers_.at(home).program_ports;
  std::set<int32_t> taken;
  for (const auto& [id, launch] : launches_) {
    const Job& other = jobs_.at(id);
    if (!other.placement.empty() && other.placement.front().worker == home)
      taken.insert(other.program_port);
  }
  const uint64_t begin = job.id.value() + job.attempt.value();
  for (int32_t i = 0; i < ports.count; ++i) {
    const auto at = static_cast<int32_t>((begin + static_cast<uint64_t>(i)) %
                                         static_cast<uint64_t>(ports.count));
    if (!taken.contains(ports.first + at)) return ports.first + at;
  }
  return 0;
}

void Core::send_start(const Job& job, const Worker& worker) {
  SendStartRanks message{job.id,
                         job.attempt,
                         spec_of_size(job.spec, nodes_now(job)),
                         {},
                         job.rendezvous_address,
                         job.program_port,
                         job.faults.empty() ? -1 : job.faults.back().checkpoint_step};
  for (const RankPlacement& rank : job.placement) {
    if (rank.worker == worker.name) message.ranks.push_back(rank);
  }
  send(worker, std::move(message));
}

}  // namespace muster::coordinator
