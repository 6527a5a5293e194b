#include "coordinator/core/placement/hosts.h"

#include <algorithm>
#include <set>
#include <string_view>

#include "coordinator/core/records/sizes.h"
#include "coordinator/core/recovery/avoidance.h"
#include "coordinator/core/recovery/slow_nodes.h"

namespace muster::coordinator {
namespace {

// Calls `visit` with each node of the job, at the node's first rank.
template <class Visit>
void for_each_node_of(const Job& job, const Visit& visit) {
  const auto step = static_cast<size_t>(job.spec.ranks_per_node);
  for (size_t i = 0; i < job.placement.size(); i += step) visit(job.placement[i].worker);
}

NodeUse use_of_orphans(const JobTable& jobs, const Worker& worker) {
  NodeUse use;
  const auto gpus = static_cast<int32_t>(std::ssize(worker.gpus));
  for (const RankId& orphan : worker.orphans) {
    const Job* job = jobs.find(orphan.job);
    // An orphan of another store may occupy all GPUs.
    use += {1, job == nullptr ? gpus : gpus_of_rank(job->spec.gpus_per_rank, gpus, worker.slots)};
  }
  return use;
}

}  // namespace

NodeUse use_of(const JobSpec& spec, const Worker* worker) {
  if (worker == nullptr) return {spec.ranks_per_node, 0};
  const auto gpus = static_cast<int32_t>(std::ssize(worker->gpus));
  return {spec.ranks_per_node,
          spec.ranks_per_node * gpus_of_rank(spec.gpus_per_rank, gpus, worker->slots)};
}

Host host_of(const Worker& worker, const NodeUse& use) {
  const auto gpus = static_cast<int32_t>(std::ssize(worker.gpus));
  return {.name = worker.name,
          .incarnation = worker.incarnation,
          .slots = worker.slots,
          .slots_free = worker.slots - use.slots,
          .switches = worker.place.switches,
          .gpus = gpus,
          .gpus_free = gpus - use.gpus,
          .domain = worker.place.domain,
          .labels = &worker.labels};
}

NodeUses uses_of_ranks(const JobTable& jobs, const std::vector<JobId>& live, const Fleet& fleet) {
  NodeUses uses;
  for (const JobId id : live) {
    const Job& job = jobs.at(id);
    for_each_node_of(
        job, [&](const WorkerName& name) { uses[name] += use_of(job.spec, fleet.find(name)); });
  }
  // Both maps are sorted by name, so each position follows the previous one.
  auto at = uses.begin();
  for (const auto& [name, worker] : fleet.all()) {
    at = uses.try_emplace(at, name);
    at->second += use_of_orphans(jobs, worker);
    ++at;
  }
  return uses;
}

NodeUse rank_use_on(const JobTable& jobs, const std::vector<JobId>& live, const Fleet& fleet,
                    const WorkerName& name) {
  NodeUse use;
  const Worker* worker = fleet.find(name);
  for (const JobId id : live) {
    const Job& job = jobs.at(id);
    for_each_node_of(job, [&](const WorkerName& node) {
      if (node == name) use += use_of(job.spec, worker);
    });
  }
  if (worker != nullptr) use += use_of_orphans(jobs, *worker);
  return use;
}

NodeUses uses_held(const JobTable& jobs, const Fleet& fleet) {
  NodeUses held;
  for (const auto& [id, job] : jobs.all())
    for (const WorkerName& name : job.held) held[name] += use_of(job.spec, fleet.find(name));
  return held;
}

NodeUse held_use_on(const JobTable& jobs, const Fleet& fleet, const WorkerName& name) {
  NodeUse held;
  for (const auto& [id, job] : jobs.all())
    for (const WorkerName& node : job.held)
      if (node == name) held += use_of(job.spec, fleet.find(name));
  return held;
}

PlacementRequest request_of(const Job& job, int64_t unix_ns) {
  std::set<WorkerName> avoided = nodes_to_avoid(job, unix_ns);
  avoided.merge(slow_nodes_to_avoid(job, unix_ns));
  return {job.spec.ranks_per_node,
          job.placement.empty() ? job.previous_nodes : nodes_of(job.placement),
          job.held,
          std::move(avoided),
          job.spec.gpus_per_rank,
          job.spec.segment_nodes,
          {},
          {},
          job.spec.node_selector,
          job.spec.tolerations};
}

PlacementRequest request_with_places(const Job& job, const Fleet& fleet, int64_t unix_ns) {
  PlacementRequest request = request_of(job, unix_ns);
  for (const WorkerName& name : request.previous) {
    if (const NodePlace* place = fleet.place_of(name); place != nullptr)
      request.places.emplace(name, *place);
  }
  std::set<std::string_view> suspects;
  for (const WorkerName& name : nodes_without_link(job, unix_ns)) {
    request.places.erase(name);
    const NodePlace* place = fleet.place_of(name);
    if (place != nullptr && !place->switches.empty()) suspects.insert(place->switches);
  }
  if (suspects.empty()) return request;
  for (const auto& [name, worker] : fleet.all())
    if (suspects.contains(worker.place.switches)) request.suspect.insert(name);
  return request;
}

bool awaits_admission(const NodeBook& nodes, const WorkerName& name) {
  const NodeRecord* record = nodes.find(name);
  return record != nullptr && record->excluded && rule_of(record->suspicion).until_admitted;
}

bool may_be_last_resort(const NodeBook& nodes, const Worker& worker, Instant now) {
  const NodeRecord* node = nodes.find(worker.name);
  if (node == nullptr || !node->excluded || !rule_of(node->suspicion).is_soft) return false;
  const std::optional<Instant>& passed = worker.check.passed;
  return !rule_of(node->suspicion).requires_check || (passed && *passed + kCheckValid > now);
}

int32_t nodes_possible(const Job& job, const Fleet& fleet, const NodeBook& nodes, int64_t unix_ns) {
  const PlacementRequest request = request_of(job, unix_ns);
  return static_cast<int32_t>(std::ranges::count_if(fleet.all(), [&](const auto& entry) {
    return fleet.takes_ranks(entry.second) && !awaits_admission(nodes, entry.first) &&
           request.would_have_room(host_of(entry.second, {}));
  }));
}

namespace {

// Returns the free, sound nodes without ranks of the job on which a node of it has room.
std::vector<const Worker*> replacements_of(const Job& job, const RanksByWorker& ranks,
                                           const JobTable& jobs, const std::vector<JobId>& live,
                                           const Fleet& fleet, const NodeBook& nodes,
                                           const CoreTime& time) {
  NodeUses uses = uses_of_ranks(jobs, live, fleet);
  for (const auto& [name, held] : uses_held(jobs, fleet)) uses[name] += held;
  for (const WorkerName& own : job.held) uses[own] -= use_of(job.spec, fleet.find(own));
  const PlacementRequest request = request_of(job, time.unix_ns);
  std::vector<const Worker*> free;
  for (const auto& [name, worker] : fleet.all()) {
    if (fleet.takes_ranks(worker) && fleet.is_responsive(worker, time.now) &&
        nodes.is_sound(name) && !ranks.contains(name) &&
        request.has_room(host_of(worker, uses[name])))
      free.push_back(&worker);
  }
  return free;
}

}  // namespace

bool has_replacement_nodes(const Job& job, size_t missing, const RanksByWorker& ranks,
                           const JobTable& jobs, const std::vector<JobId>& live, const Fleet& fleet,
                           const NodeBook& nodes, const CoreTime& time) {
  if (job.spec.restarts_max == 0) return false;
  return std::ssize(replacements_of(job, ranks, jobs, live, fleet, nodes, time)) >=
         static_cast<std::ptrdiff_t>(missing);
}

bool has_better_nodes(const Job& job, const std::vector<SlowNode>& slow, const RanksByWorker& ranks,
                      const JobTable& jobs, const std::vector<JobId>& live, const Fleet& fleet,
                      const NodeBook& nodes, const CoreTime& time) {
  std::set<WorkerName> avoided;
  for (const JobId id : live) avoided.merge(slow_nodes_to_avoid(jobs.at(id), time.unix_ns));
  std::set<std::string> domains;
  for (const SlowNode& node : slow)
    if (const NodePlace* place = fleet.place_of(node.worker); place != nullptr)
      domains.insert(place->domain);
  const auto free = std::ranges::count_if(
      replacements_of(job, ranks, jobs, live, fleet, nodes, time), [&](const Worker* worker) {
        return !avoided.contains(worker->name) && !nodes.drains().contains(worker->name) &&
               (job.spec.segment_nodes == 0 || domains.contains(worker->place.domain));
      });
  return free >= std::ssize(slow);
}

int32_t free_program_port(const Job& job, const JobTable& jobs, const std::vector<JobId>& live,
                          const Worker& home) {
  const PortRange ports = home.program_ports;
  std::set<int32_t> taken;
  for (const JobId id : live) {
    const Job& other = jobs.at(id);
    if (!other.placement.empty() && other.placement.front().worker == home.name)
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

}  // namespace muster::coordinator
