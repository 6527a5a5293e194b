#include "coordinator/shell/calls/muster_calls.h"

#include <algorithm>
#include <memory>
#include <set>
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
  explicit Use(const Core& core) : all(core.use_by_worker()), held(core.held_by_worker()) {}

  NodeUses all, held;
};

NodeUse use_of(const NodeUses& uses, const WorkerName& name) {
  const auto found = uses.find(name);
  return found == uses.end() ? NodeUse{} : found->second;
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
  return worker_to_proto(worker->second, known,
                         {.slots = use_of(use.all, name).slots,
                          .slots_held = use_of(use.held, name).slots,
                          .gpus = use_of(use.all, name).gpus},
                         now);
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

absl::Status MusterCalls::submit_job(const v1::SubmitJobRequest& request, Done<v1::Job> done) {
  JobSubmitted event;
  event.request_id = request.request_id();
  event.spec = daemon::job_spec_from_proto(request.spec());
  return loop_.submit(std::move(event), job_reply(std::move(done)));
}

absl::Status MusterCalls::cancel_job(const v1::CancelJobRequest& request, Done<v1::Job> done) {
  JobCancelRequested event;
  event.job = JobId(request.job_id());
  event.force = request.force();
  return loop_.cancel(event, job_reply(std::move(done)));
}

absl::Status MusterCalls::checkpoint_job(const v1::CheckpointJobRequest& request,
                                         Done<v1::CheckpointJobResponse> done) {
  JobCheckpointRequested event;
  event.job = JobId(request.job_id());
  return loop_.checkpoint(
      event, [done = std::move(done)](const absl::Status& status, const Core& core, const Job* job,
                                      Instant now) {
        v1::CheckpointJobResponse response;
        if (job != nullptr && status.ok()) {
          *response.mutable_job() = job_to_proto(core, *job, now);
          response.set_after_step(std::max<int64_t>(job->ranks.front().step, 0));
        }
        done(status, std::move(response));
      });
}

absl::Status MusterCalls::update_job(const v1::UpdateJobRequest& request, Done<v1::Job> done) {
  return loop_.update(update_from_proto(request), job_reply(std::move(done)));
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
                                       Done<v1::ListWorkersResponse> done, size_t limit) {
  const WorkerName after(request.after());
  return loop_.query([=, done = std::move(done)](const Core* core, Instant now) {
    if (core == nullptr) return done(stopped(), {});
    v1::ListWorkersResponse response;
    const Use use(*core);
    std::set<WorkerName> names;
    for (auto it = core->workers().upper_bound(after); it != core->workers().end(); ++it)
      names.insert(names.end(), it->first);
    for (auto it = core->nodes().upper_bound(after); it != core->nodes().end(); ++it)
      if (it->second.excluded || it->second.check_due) names.insert(it->first);
    size_t bytes = 0;
    for (const WorkerName& name : names) {
      v1::WorkerInfo info = info_of(*core, use, name, now);
      bytes += info.ByteSizeLong();
      const bool is_full =
          static_cast<size_t>(response.workers_size()) >= limit || bytes > kListBytesMax;
      if (is_full && response.workers_size() > 0) {
        response.set_more(true);
        break;
      }
      *response.add_workers() = std::move(info);
    }
    done(absl::OkStatus(), std::move(response));
  });
}

absl::Status MusterCalls::get_worker(const std::string& name, Done<v1::WorkerInfo> done) {
  const WorkerName worker(name);
  return loop_.query([worker, done = std::move(done)](const Core* core, Instant now) {
    if (core == nullptr) return done(stopped(), {});
    if (!core->workers().contains(worker) && !core->nodes().contains(worker))
      return done(absl::NotFoundError(absl::StrCat("there is no node ", worker.value())), {});
    done(absl::OkStatus(), info_of(*core, Use(*core), worker, now));
  });
}

// Answers with the worker's state after the request.
CoreLoop::ReplyFn MusterCalls::worker_reply(const WorkerName& name, Done<v1::WorkerInfo> done) {
  return [=, this](const absl::Status& status, const Core&, const Job*, Instant) {
    if (!status.ok()) return done(status, {});
    const absl::Status queried = loop_.query([=](const Core* core, Instant now) {
      if (core == nullptr) return done(stopped(), {});
      done(absl::OkStatus(), info_of(*core, Use(*core), name, now));
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

absl::Status MusterCalls::get_incident(const v1::GetIncidentRequest& request,
                                       Done<v1::Incident> done) {
  const IncidentId id(request.incident_id());
  return loop_.read([id, done = std::move(done)](Storage* storage) {
    if (storage == nullptr) return done(stopped(), {});
    auto incident = storage->incident(id);
    if (!incident.ok()) return done(incident.status(), {});
    done(absl::OkStatus(), *std::move(incident));
  });
}

absl::Status MusterCalls::dump_stacks(const v1::DumpJobStacksRequest& request,
                                      Done<v1::DumpJobStacksResponse> done) {
  StacksRequested event;
  event.job = JobId(request.job_id());
  event.rank = Rank(request.rank());
  event.program_dumps = request.program_dumps();
  return loop_.stacks(
      event, [done = std::move(done)](const absl::Status& status, const JobStackDump* dump) {
        done(status, dump == nullptr ? v1::DumpJobStacksResponse() : dump_to_proto(*dump));
      });
}

}  // namespace muster::coordinator
