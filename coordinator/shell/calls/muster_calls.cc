#include "coordinator/shell/calls/muster_calls.h"

#include <algorithm>
#include <memory>
#include <utility>

#include <absl/strings/ascii.h>
#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>

#include "coordinator/shell/messages/attempt_messages.h"
#include "coordinator/shell/messages/incident_messages.h"
#include "coordinator/shell/messages/job_and_worker_messages.h"
#include "coordinator/shell/messages/node_messages.h"
#include "coordinator/shell/messages/revision_messages.h"
#include "daemon/job_spec_messages.h"

namespace muster::coordinator {
namespace {

constexpr size_t kIncidentsListed = 100;  // default number of incidents in a list
constexpr size_t kAttemptsListed = 100;   // default number of attempts in a list
// The bound of a list's size, well below the limit of clients (gRPC's default is 4 MiB).
constexpr size_t kListBytesMax = 3 << 20;

absl::Status stopped() { return absl::UnavailableError("the coordinator is stopping"); }

struct Use {
  NodeUse all, held;
};

// The use of all nodes, for lists.
class UseTable {
 public:
  explicit UseTable(const Core& core) : all_(core.use_by_worker()), held_(core.held_by_worker()) {}

  Use of(const WorkerName& name) const { return {find(all_, name), find(held_, name)}; }

 private:
  static NodeUse find(const NodeUses& uses, const WorkerName& name) {
    const auto found = uses.find(name);
    return found == uses.end() ? NodeUse{} : found->second;
  }

  const NodeUses all_, held_;
};

Use use_of(const Core& core, const WorkerName& name) {
  return {core.use_of(name), core.held_of(name)};
}

// Calls `visit` with the names of nodes after `after`, in their order, until it returns false:
// registered workers, and absent ones that are excluded or must pass a check.
template <class Visit>
void for_each_node(const Core& core, const WorkerName& after, const Visit& visit) {
  auto worker = core.workers().upper_bound(after);
  auto record = core.nodes().upper_bound(after);
  while (true) {
    while (record != core.nodes().end() && !record->second.excluded && !record->second.check_due)
      ++record;
    const bool has_worker = worker != core.workers().end();
    const bool has_record = record != core.nodes().end();
    if (!has_worker && !has_record) return;
    const bool is_worker = has_worker && (!has_record || worker->first <= record->first);
    const bool is_record = has_record && (!has_worker || record->first <= worker->first);
    if (!visit(is_worker ? worker->first : record->first)) return;
    if (is_worker) ++worker;
    if (is_record) ++record;
  }
}

// Describes a worker that is registered, known only by its node record, or unknown.
v1::WorkerInfo info_of(const Core& core, const Use& use, const WorkerName& name, Instant now) {
  const auto node = core.nodes().find(name);
  const NodeRecord* known = node == core.nodes().end() ? nullptr : &node->second;
  const auto worker = core.workers().find(name);
  if (worker == core.workers().end()) {
    NodeRecord nothing;
    nothing.worker = name;
    return absent_worker_to_proto(known == nullptr ? nothing : *known);
  }
  return worker_to_proto(
      worker->second, known,
      {.slots = use.all.slots, .slots_held = use.held.slots, .gpus = use.all.gpus}, now);
}

// `lower`: text in lower case.
bool has_text(const std::string& text, const std::string& lower) {
  return absl::StrContains(absl::AsciiStrToLower(text), lower);
}

bool is_selected(const Job& job, const JobFilter& filter) {
  if (filter.state && job.state != *filter.state) return false;
  if (filter.search.empty()) return true;
  const std::string lower = absl::AsciiStrToLower(filter.search);
  return has_text(job.spec.name, lower) || has_text(job.spec.user, lower) ||
         has_text(job.reason, lower);
}

CoreLoop::ReplyFn job_reply(MusterCalls::Done<v1::Job> done) {
  return [done = std::move(done)](const absl::Status& status, const Core& core, const Job* job,
                                  Instant now) {
    done(status, job == nullptr ? v1::Job() : job_to_proto(core, *job, now));
  };
}

}  // namespace

absl::Status MusterCalls::no_job(JobId id) {
  return absl::NotFoundError(absl::StrCat("there is no job ", id.value()));
}

absl::Status MusterCalls::submit_job(const Caller& caller, const v1::SubmitJobRequest& request,
                                     Done<v1::Job> done) {
  JobSubmitted event;
  event.caller = caller;
  event.request_id = request.request_id();
  event.spec = daemon::job_spec_from_proto(request.spec());
  return loop_.submit(std::move(event), job_reply(std::move(done)));
}

absl::Status MusterCalls::cancel_job(const Caller& caller, const v1::CancelJobRequest& request,
                                     Done<v1::Job> done) {
  JobCancelRequested event;
  event.caller = caller;
  event.job = JobId(request.job_id());
  event.force = request.force();
  return loop_.cancel(std::move(event), job_reply(std::move(done)));
}

absl::Status MusterCalls::checkpoint_job(const Caller& caller,
                                         const v1::CheckpointJobRequest& request,
                                         Done<v1::CheckpointJobResponse> done) {
  JobCheckpointRequested event;
  event.caller = caller;
  event.job = JobId(request.job_id());
  return loop_.checkpoint(
      std::move(event), [done = std::move(done)](const absl::Status& status, const Core& core,
                                                 const Job* job, Instant now) {
        v1::CheckpointJobResponse response;
        if (job != nullptr && status.ok()) {
          *response.mutable_job() = job_to_proto(core, *job, now);
          response.set_after_step(std::max<int64_t>(job->ranks.front().step, 0));
        }
        done(status, std::move(response));
      });
}

absl::Status MusterCalls::update_job(const Caller& caller, const v1::UpdateJobRequest& request,
                                     Done<v1::Job> done) {
  JobUpdateRequested event = update_from_proto(request);
  event.caller = caller;
  return loop_.update(std::move(event), job_reply(std::move(done)));
}

absl::Status MusterCalls::get_job(const v1::GetJobRequest& request, Done<v1::Job> done,
                                  size_t ranks_max) {
  const JobId id(request.job_id());
  const auto first_rank = static_cast<size_t>(std::max(request.first_rank(), 0));
  return loop_.query([=, done = std::move(done)](const Core* core, Instant now) {
    if (core == nullptr) return done(stopped(), {});
    const auto job = core->jobs().find(id);
    if (job == core->jobs().end()) return done(no_job(id), {});
    done(absl::OkStatus(), job_to_proto(*core, job->second, now, first_rank, ranks_max));
  });
}

absl::Status MusterCalls::list_jobs(const v1::ListJobsRequest& request,
                                    Done<v1::ListJobsResponse> done, JobFilter filter) {
  const bool active_only = request.active_only();
  const uint64_t before = request.before_job_id() == 0 ? UINT64_MAX : request.before_job_id();
  return loop_.query(
      [=, done = std::move(done), filter = std::move(filter)](const Core* core, Instant now) {
        if (core == nullptr) return done(stopped(), {});
        v1::ListJobsResponse response;
        const int limit = std::clamp(filter.limit, 1, kJobsListedMax);
        size_t bytes = 0;
        auto it = std::make_reverse_iterator(core->jobs().lower_bound(JobId(before)));
        for (; it != core->jobs().rend(); ++it) {
          if (active_only && is_terminal(it->second.state)) continue;
          if (!is_selected(it->second, filter)) continue;
          v1::Job job = job_summary_to_proto(*core, it->second, now);
          bytes += job.ByteSizeLong();
          const bool is_full = response.jobs_size() >= limit || bytes > kListBytesMax;
          if (is_full && response.jobs_size() > 0) {
            response.set_more(true);
            break;
          }
          *response.add_jobs() = std::move(job);
        }
        done(absl::OkStatus(), std::move(response));
      });
}

absl::Status MusterCalls::job_history(const v1::GetJobHistoryRequest& request,
                                      Done<v1::GetJobHistoryResponse> done) {
  const JobId id(request.job_id());
  const uint32_t before = request.before_attempt() == 0 ? UINT32_MAX : request.before_attempt();
  const size_t limit =
      std::min<size_t>(request.limit() == 0 ? kAttemptsListed : request.limit(), kAttemptsKeptMax);
  const auto response = std::make_shared<v1::GetJobHistoryResponse>();
  // Runs second: adds the attempts that have ended.
  const auto add_ended = [=](Storage* storage) {
    if (storage == nullptr) return done(stopped(), {});
    auto ended = storage->attempts(id, Attempt(before), limit + 1);
    if (!ended.ok()) return done(ended.status(), {});
    // The current attempt may have ended since it was added.
    if (!ended->empty() && response->attempts_size() > 0 &&
        ended->front().attempt() == response->attempts(0).attempt())
      response->clear_attempts();
    size_t bytes = 0;
    for (v1::JobAttempt& attempt : *ended) {
      bytes += attempt.ByteSizeLong();
      if (response->attempts_size() == static_cast<int>(limit) || bytes > kListBytesMax) {
        response->set_more(true);
        break;
      }
      *response->add_attempts() = std::move(attempt);
    }
    done(absl::OkStatus(), std::move(*response));
  };
  return loop_.query([=, this](const Core* core, Instant) {
    if (core == nullptr) return done(stopped(), {});
    const auto job = core->jobs().find(id);
    if (job == core->jobs().end()) return done(no_job(id), {});
    const std::optional<AttemptRecord> current = core->attempt_of(job->second);
    if (current && current->attempt.value() < before)
      *response->add_attempts() = attempt_to_proto(*current);
    if (const absl::Status status = loop_.read(add_ended); !status.ok()) done(status, {});
  });
}

absl::Status MusterCalls::list_workers(const v1::ListWorkersRequest& request,
                                       Done<v1::ListWorkersResponse> done) {
  const WorkerName after(request.after());
  return loop_.query([=, done = std::move(done)](const Core* core, Instant now) {
    if (core == nullptr) return done(stopped(), {});
    v1::ListWorkersResponse response;
    const UseTable uses(*core);
    size_t bytes = 0;
    for_each_node(*core, after, [&](const WorkerName& name) {
      v1::WorkerInfo info = info_of(*core, uses.of(name), name, now);
      bytes += info.ByteSizeLong();
      if (bytes > kListBytesMax && response.workers_size() > 0) {
        response.set_more(true);
        return false;
      }
      *response.add_workers() = std::move(info);
      return true;
    });
    done(absl::OkStatus(), std::move(response));
  });
}

std::vector<v1::WorkerInfo> MusterCalls::all_workers(const Core& core, Instant now) {
  std::vector<v1::WorkerInfo> workers;
  const UseTable uses(core);
  for_each_node(core, WorkerName(), [&](const WorkerName& name) {
    workers.push_back(info_of(core, uses.of(name), name, now));
    return true;
  });
  return workers;
}

absl::Status MusterCalls::get_worker(const std::string& name, Done<v1::WorkerInfo> done) {
  const WorkerName worker(name);
  return loop_.query([worker, done = std::move(done)](const Core* core, Instant now) {
    if (core == nullptr) return done(stopped(), {});
    if (!core->workers().contains(worker) && !core->nodes().contains(worker))
      return done(absl::NotFoundError(absl::StrCat("there is no node ", worker.value())), {});
    done(absl::OkStatus(), info_of(*core, use_of(*core, worker), worker, now));
  });
}

// Answers with the worker's state after the request.
CoreLoop::ReplyFn MusterCalls::worker_reply(const WorkerName& name, Done<v1::WorkerInfo> done) {
  return [=, this](const absl::Status& status, const Core&, const Job*, Instant) {
    if (!status.ok()) return done(status, {});
    const absl::Status queried = loop_.query([=](const Core* core, Instant now) {
      if (core == nullptr) return done(stopped(), {});
      done(absl::OkStatus(), info_of(*core, use_of(*core, name), name, now));
    });
    if (!queried.ok()) done(queried, {});
  };
}

absl::Status MusterCalls::exclude_worker(const v1::ExcludeWorkerRequest& request,
                                         Done<v1::WorkerInfo> done) {
  NodeExcludeRequested event = exclusion_from_proto(request);
  const WorkerName name = event.worker;
  return loop_.exclude_node(std::move(event), worker_reply(name, std::move(done)));
}

absl::Status MusterCalls::admit_worker(const v1::AdmitWorkerRequest& request,
                                       Done<v1::WorkerInfo> done) {
  NodeAdmitRequested event;
  event.worker = WorkerName(request.worker());
  const WorkerName name = event.worker;
  return loop_.admit_node(std::move(event), worker_reply(name, std::move(done)));
}

absl::Status MusterCalls::list_incidents(const v1::ListIncidentsRequest& request,
                                         Done<v1::ListIncidentsResponse> done) {
  const JobId job(request.job_id());
  const size_t limit = request.limit() == 0 ? kIncidentsListed : request.limit();
  return loop_.read([=, done = std::move(done)](Storage* storage) {
    if (storage == nullptr) return done(stopped(), {});
    auto incidents = storage->incidents(job, std::min(limit, kIncidentsKeptMax));
    if (!incidents.ok()) return done(incidents.status(), {});
    v1::ListIncidentsResponse response;
    size_t bytes = 0;
    for (v1::Incident& incident : *incidents) {
      bytes += incident.ByteSizeLong();
      if (bytes > kListBytesMax) break;
      *response.add_incidents() = std::move(incident);
    }
    done(absl::OkStatus(), std::move(response));
  });
}

absl::Status MusterCalls::get_incident(const Caller& caller, const v1::GetIncidentRequest& request,
                                       Done<v1::Incident> done) {
  const IncidentId id(request.incident_id());
  return loop_.read([id, caller, done = std::move(done)](Storage* storage) {
    if (storage == nullptr) return done(stopped(), {});
    auto incident = storage->incident(id);
    if (!incident.ok()) return done(incident.status(), {});
    const absl::Status status =
        check_access(caller, {incident->owner(), incident->team()}, JobId(incident->job_id()),
                     "read the evidence of its incidents");
    if (!status.ok()) return done(status, {});
    done(absl::OkStatus(), *std::move(incident));
  });
}

absl::Status MusterCalls::dump_stacks(const Caller& caller, const v1::DumpJobStacksRequest& request,
                                      Done<v1::DumpJobStacksResponse> done) {
  StacksRequested event;
  event.caller = caller;
  event.job = JobId(request.job_id());
  event.rank = Rank(request.rank());
  event.program_dumps = request.program_dumps();
  return loop_.stacks(std::move(event), [done = std::move(done)](const absl::Status& status,
                                                                 const JobStackDump* dump) {
    done(status, dump == nullptr ? v1::DumpJobStacksResponse() : dump_to_proto(*dump));
  });
}

}  // namespace muster::coordinator
