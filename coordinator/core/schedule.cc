// The queue's pass: which waiting jobs are placed, and why the others are not.
#include <algorithm>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>

#include "common/natural_order.h"
#include "coordinator/core/core.h"
#include "coordinator/core/placement.h"

namespace muster::coordinator {
namespace {

std::string need_text(const JobSpec& spec) {
  return absl::StrCat(spec.nodes, spec.nodes == 1 ? " worker with " : " workers with ",
                      spec.ranks_per_node, spec.ranks_per_node == 1 ? " free slot" : " free slots",
                      spec.nodes == 1 ? "" : " each");
}

// Of the connected workers on which nothing is placed any more.
std::string leaving_text(const std::vector<std::string>& workers) {
  constexpr size_t kNamedMax = 3;  // a reason is one line
  if (workers.empty()) return "";
  const size_t named = std::min(workers.size(), kNamedMax);
  const std::string names =
      absl::StrJoin(workers.begin(), workers.begin() + static_cast<std::ptrdiff_t>(named), ", ");
  const size_t more = workers.size() - named;
  return absl::StrCat(" (", names, more > 0 ? absl::StrCat(" and ", more, " more") : "",
                      workers.size() == 1 ? " is" : " are", " leaving)");
}

}  // namespace

std::map<WorkerName, int32_t> Core::slots_used_by_worker() const {
  std::map<WorkerName, int32_t> used;
  for (const auto& [id, launch] : launches_) {
    for (const RankPlacement& rank : jobs_.at(id).placement) ++used[rank.worker];
  }
  for (const auto& [name, worker] : workers_)
    used[name] += static_cast<int32_t>(worker.strays.size());
  return used;
}

void Core::schedule() {
  schedule_needed_ = false;
  if (queue_.size() == 0) return;
  std::map<WorkerName, int32_t> used = slots_used_by_worker();
  std::vector<Host> hosts;
  std::vector<std::string> leaving;
  for (const auto& [name, worker] : workers_) {
    if (!worker.connected || worker.given_up) continue;
    if (worker.leaving) {
      leaving.push_back(name.value());
    } else {
      hosts.push_back({name, worker.incarnation, worker.slots, worker.slots - used[name]});
    }
  }
  std::sort(hosts.begin(), hosts.end(), [](const Host& a, const Host& b) {
    return natural_less(a.name.value(), b.name.value());
  });

  bool turn_taken = false;  // by a job that waits for others to end
  for (const JobQueue::Entry& entry : queue_.in_order()) {
    if (entry.not_before > now_) continue;
    Job& job = jobs_.at(entry.job);
    std::string reason;
    if (turn_taken) {
      reason = "waits for the jobs ahead of it in the queue";
    } else {
      Placement placement = place(job.spec, hosts);
      if (placement.fit == Fit::kNow) {
        for (Host& host : hosts) {
          for (const RankPlacement& rank : placement.ranks)
            host.slots_free -= rank.worker == host.name;
        }
        start(job, std::move(placement.ranks));
        continue;
      }
      turn_taken = placement.fit == Fit::kLater;
      reason = absl::StrCat("waits for ", need_text(job.spec),
                            turn_taken        ? ": they are busy"
                            : leaving.empty() ? ": fewer are connected"
                                              : ": fewer are connected and stay",
                            leaving_text(leaving));
    }
    if (reason != job.reason) note(job, std::move(reason));
  }
}

void Core::start(Job& job, std::vector<RankPlacement> placement) {
  queue_.remove(job.id, job.spec.priority);
  job.attempt = Attempt(job.attempt.value() + 1);
  job.state = JobState::kStarting;
  job.placement = std::move(placement);
  job.exits.clear();
  job.stop_grace = Duration::zero();
  job.ranks.assign(job.placement.size(), RankState{});
  job.started_unix_ns = unix_ns_;
  job.rendezvous_address = workers_.at(job.placement.front().worker).rendezvous_address;
  job.program_port = job.spec.is_program() ? free_program_port(job) : 0;
  Launch& launch = launches_[job.id];
  launch = Launch{};
  launch.start_deadline = now_ + options_.start_budget;
  begin_watching(job);
  note(job,
       absl::StrCat("attempt ", job.attempt.value(), ": starting ", job.spec.world_size(),
                    job.spec.world_size() == 1 ? " rank on " : " ranks on ",
                    job.placement.front().worker.value(),
                    job.spec.nodes > 1 ? absl::StrCat(" … ", job.placement.back().worker.value())
                                       : std::string()));
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
  SendStartRanks message{job.id,          job.attempt, job.spec, {}, job.rendezvous_address,
                         job.program_port};
  for (const RankPlacement& rank : job.placement) {
    if (rank.worker == worker.name) message.ranks.push_back(rank);
  }
  send(worker, std::move(message));
}

}  // namespace muster::coordinator
