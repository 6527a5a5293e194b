#include "cli/client.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <utility>

#include <absl/strings/numbers.h>
#include <absl/strings/str_cat.h>
#include <grpcpp/grpcpp.h>

#include "cli/terminal/terminal.h"
#include "common/time/time.h"
#include "daemon/grpc_deadline.h"
#include "daemon/limits.h"
#include "daemon/valid_texts.h"

namespace muster::cli {
namespace {

// Workers have a deadline for their ranks, and the coordinator has one for the workers; this one
// exceeds both.
constexpr Duration kStacksDeadline = std::chrono::seconds(30);

// Bounds the jobs of all pages together; a coordinator keeps fewer.
constexpr int kJobsMax = 1'000'000;

// A client that stands still prevents further copies until then.
constexpr Duration kBackupDeadline = std::chrono::hours(1);

// The time to name functions and to send a profile, after its samples are taken.
constexpr Duration kProfileDeadline = std::chrono::minutes(2);

// The shortest pause before a refused call is repeated.
constexpr Duration kPauseMin = std::chrono::milliseconds(100);

// Returns the time after which the coordinator requests a repetition of the refused call; nullopt
// if it does not.
std::optional<Duration> retry_hint(const grpc::ClientContext& context, const grpc::Status& status) {
  if (status.error_code() != grpc::StatusCode::RESOURCE_EXHAUSTED) return std::nullopt;
  const auto& metadata = context.GetServerTrailingMetadata();
  const auto found = metadata.find(daemon::kRetryHint);
  int64_t ms = 0;
  if (found == metadata.end() ||
      !absl::SimpleAtoi(absl::string_view(found->second.data(), found->second.size()), &ms))
    return std::nullopt;
  const int64_t bounded =
      std::clamp<int64_t>(ms, 0, kRepeatPauseMax / std::chrono::milliseconds(1));
  return std::max<Duration>(std::chrono::milliseconds(bounded), kPauseMin);
}

}  // namespace

// A running call, registered for stop(). A call that begins after stop() is cancelled immediately.
class Client::Call {
 public:
  explicit Call(Client& client) : client_(client) {
    const std::lock_guard lock(client_.mutex_);
    client_.running_.push_back(&context);
    if (client_.stopped_) context.TryCancel();
  }
  ~Call() {
    const std::lock_guard lock(client_.mutex_);
    std::erase(client_.running_, &context);
  }
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  absl::Status result(const grpc::Status& status) const {
    {
      const std::lock_guard lock(client_.mutex_);
      if (!status.ok() && client_.stopped_) return absl::CancelledError("stopped");
    }
    // A coordinator that stops cancels the calls that are open.
    if (status.error_code() == grpc::StatusCode::CANCELLED)
      return client_.translate({grpc::StatusCode::UNAVAILABLE, "the coordinator ended the call"});
    return client_.translate(status);
  }

  grpc::ClientContext context;

 private:
  Client& client_;
};

template <class Request, class Response>
absl::StatusOr<Response> Client::unary_call(Method<Request, Response> method,
                                            const Request& request, Duration deadline) {
  Request valid = request;
  daemon::make_texts_valid(valid);
  Response response;
  absl::Status status = repeat_while_overloaded([&](Connection& to, Call& call) {
    call.context.set_deadline(daemon::grpc_deadline(monotonic_now() + deadline));
    return (to.muster.get()->*method)(&call.context, valid, &response);
  });
  if (!status.ok()) return status;
  return response;
}

template <class Request, class Response>
absl::StatusOr<Response> Client::repeatable_call(Method<Request, Response> method,
                                                 const Request& request,
                                                 const std::function<void()>& on_repeat) {
  const Instant give_up = monotonic_now() + kLeaderPatience;
  while (true) {
    auto response = unary_call(method, request);
    const bool is_lost =
        absl::IsUnavailable(response.status()) || absl::IsDeadlineExceeded(response.status());
    if (!is_lost || addresses_.size() == 1 || is_stopped() || monotonic_now() >= give_up)
      return response;
    pause_before_reconnection();
    on_repeat();
  }
}

absl::Status Client::repeat_while_overloaded(
    const std::function<grpc::Status(Connection&, Call&)>& run) {
  const Instant give_up = monotonic_now() + kOverloadPatience;
  for (int repeats = 0;; ++repeats) {
    const auto to = connection();
    if (!to.ok()) return to.status();
    Call call(*this);
    const grpc::Status status = run(**to, call);
    // One of several coordinators may have stopped.
    if (status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED) forget(**to);
    const auto hint = retry_hint(call.context, status);
    const absl::Status result = call.result(status);
    if (!hint) return result;
    // Followers of jobs and logs continue after this error.
    if (monotonic_now() >= give_up) return absl::UnavailableError(result.message());
    if (repeats == 0 && !is_overload_noted_.exchange(true))
      note(absl::StrCat(result.message(), "; trying again for up to ",
                        to_seconds(kOverloadPatience), " s"));
    if (!pause(pause_before_repeat(*hint, repeats, draw_fraction())))
      return absl::CancelledError("stopped");
  }
}

bool Client::pause(Duration time) {
  std::unique_lock lock(mutex_);
  return !stop_requested_.wait_for(lock, time, [this] { return stopped_; });
}

absl::StatusOr<v1::Job> Client::submit(const v1::JobSpec& spec, const std::string& request_id) {
  v1::SubmitJobRequest request;
  *request.mutable_spec() = spec;
  request.set_request_id(request_id);
  auto response = unary_call(&v1::Muster::Stub::SubmitJob, request);
  if (!response.ok()) return response.status();
  return std::move(*response->mutable_job());
}

absl::StatusOr<v1::ListJobsResponse> Client::list_jobs(bool active_only, bool all) {
  v1::ListJobsRequest request;
  request.set_active_only(active_only);
  v1::ListJobsResponse jobs;
  do {
    auto page = repeatable_call(&v1::Muster::Stub::ListJobs, request);
    if (!page.ok()) return page.status();
    jobs.MergeFrom(*page);
    jobs.set_more(page->more() && page->jobs_size() > 0);
    if (jobs.more()) request.set_before_job_id(page->jobs().rbegin()->id());
  } while (all && jobs.more() && jobs.jobs_size() < kJobsMax);
  return jobs;
}

absl::StatusOr<v1::Job> Client::get_job(uint64_t id, Ranks ranks) {
  v1::GetJobRequest request;
  request.set_job_id(id);
  auto job = repeatable_call(&v1::Muster::Stub::GetJob, request);
  if (ranks == Ranks::kAll && job.ok())
    if (absl::Status status = add_ranks(*job); !status.ok()) return status;
  return job;
}

absl::Status Client::add_ranks(v1::Job& job) {
  v1::GetJobRequest request;
  request.set_job_id(job.id());
  while (job.placement_size() < job.rank_count()) {
    request.set_first_rank(job.placement_size());
    auto page = repeatable_call(&v1::Muster::Stub::GetJob, request);
    if (!page.ok()) return page.status();
    // The next attempt may have begun, on other nodes. The pages so far are consistent.
    if (page->attempt() != job.attempt() || page->placement_size() == 0) break;
    job.mutable_placement()->MergeFrom(page->placement());
    job.mutable_ranks()->MergeFrom(page->ranks());
  }
  return absl::OkStatus();
}

absl::StatusOr<v1::Job> Client::cancel_job(uint64_t id, bool force) {
  v1::CancelJobRequest request;
  request.set_job_id(id);
  request.set_force(force);
  bool is_repeated = false;
  auto response =
      repeatable_call(&v1::Muster::Stub::CancelJob, request, [&] { is_repeated = true; });
  if (response.ok()) return std::move(*response->mutable_job());
  // The first leader may have cancelled the job, and its answer was lost.
  if (is_repeated && absl::IsFailedPrecondition(response.status())) {
    auto job = get_job(id);
    if (job.ok() && job->state() == v1::CANCELLED) return job;
  }
  return response.status();
}

absl::StatusOr<v1::CheckpointJobResponse> Client::checkpoint_job(uint64_t id) {
  v1::CheckpointJobRequest request;
  request.set_job_id(id);
  return unary_call(&v1::Muster::Stub::CheckpointJob, request);
}

absl::StatusOr<v1::Job> Client::update_job(const v1::UpdateJobRequest& request) {
  auto response = unary_call(&v1::Muster::Stub::UpdateJob, request);
  if (!response.ok()) return response.status();
  return std::move(*response->mutable_job());
}

absl::StatusOr<v1::ListWorkersResponse> Client::list_workers() {
  v1::ListWorkersRequest request;
  v1::ListWorkersResponse workers;
  do {
    auto page = repeatable_call(&v1::Muster::Stub::ListWorkers, request);
    if (!page.ok()) return page.status();
    workers.mutable_workers()->MergeFrom(page->workers());
    workers.set_more(page->more() && page->workers_size() > 0);
    if (workers.more()) request.set_after(page->workers().rbegin()->name());
  } while (workers.more());
  return workers;
}

absl::StatusOr<v1::WorkerInfo> Client::exclude_worker(const std::string& name,
                                                      const std::string& reason, int64_t seconds,
                                                      bool evacuate, int64_t drain_unix_ns,
                                                      bool late) {
  v1::ExcludeWorkerRequest request;
  request.set_worker(name);
  request.set_reason(reason);
  request.set_seconds(seconds);
  request.set_evacuate(evacuate);
  request.set_drain_unix_ns(drain_unix_ns);
  request.set_late(late);
  auto response = unary_call(&v1::Muster::Stub::ExcludeWorker, request);
  if (!response.ok()) return response.status();
  return std::move(*response->mutable_worker());
}

absl::StatusOr<v1::WorkerInfo> Client::admit_worker(const std::string& name) {
  v1::AdmitWorkerRequest request;
  request.set_worker(name);
  auto response = unary_call(&v1::Muster::Stub::AdmitWorker, request);
  if (!response.ok()) return response.status();
  return std::move(*response->mutable_worker());
}

absl::StatusOr<v1::NodeSweep> Client::begin_sweep(const v1::CheckNodesRequest& request) {
  return unary_call(&v1::Muster::Stub::CheckNodes, request);
}

absl::StatusOr<v1::NodeSweep> Client::node_sweep(uint64_t id) {
  v1::GetNodeSweepRequest request;
  request.set_id(id);
  return repeatable_call(&v1::Muster::Stub::GetNodeSweep, request);
}

absl::StatusOr<v1::ListNodeChecksResponse> Client::deep_checks_of(const std::string& worker) {
  v1::ListNodeChecksRequest request;
  request.set_worker(worker);
  return repeatable_call(&v1::Muster::Stub::ListNodeChecks, request);
}

absl::StatusOr<v1::ListSharesResponse> Client::list_shares() {
  return repeatable_call(&v1::Muster::Stub::ListShares, v1::ListSharesRequest());
}

absl::StatusOr<v1::GetJobHistoryResponse> Client::job_history(uint64_t id, uint32_t limit) {
  v1::GetJobHistoryRequest request;
  request.set_job_id(id);
  request.set_limit(limit);
  return repeatable_call(&v1::Muster::Stub::GetJobHistory, request);
}

absl::StatusOr<v1::ListIncidentsResponse> Client::list_incidents(uint64_t job) {
  v1::ListIncidentsRequest request;
  request.set_job_id(job);
  return repeatable_call(&v1::Muster::Stub::ListIncidents, request);
}

absl::StatusOr<v1::Incident> Client::get_incident(uint64_t id) {
  v1::GetIncidentRequest request;
  request.set_incident_id(id);
  return repeatable_call(&v1::Muster::Stub::GetIncident, request);
}

absl::StatusOr<v1::DumpJobStacksResponse> Client::dump_stacks(uint64_t job, int32_t rank,
                                                              bool program_dumps) {
  v1::DumpJobStacksRequest request;
  request.set_job_id(job);
  request.set_rank(rank);
  request.set_program_dumps(program_dumps);
  return unary_call(&v1::Muster::Stub::DumpJobStacks, request, kStacksDeadline);
}

// A stream that is refused at its start has no message, so it can be repeated.
template <class Message>
absl::Status Client::read_all(const std::function<std::unique_ptr<grpc::ClientReader<Message>>(
                                  Connection&, grpc::ClientContext*)>& open,
                              const std::function<bool(const Message&)>& take) {
  return repeat_while_overloaded([&](Connection& to, Call& call) {
    const auto reader = open(to, &call.context);
    bool wanted = true;
    Message message;
    while (wanted && reader->Read(&message)) wanted = take(message);
    if (!wanted) call.context.TryCancel();
    const grpc::Status status = reader->Finish();
    return wanted ? status : grpc::Status::OK;
  });
}

absl::Status Client::watch_job(uint64_t id, const std::function<bool(const v1::Job&)>& take) {
  v1::WatchJobRequest request;
  request.set_job_id(id);
  return read_all<v1::Job>(
      [&](Connection& to, grpc::ClientContext* context) {
        return to.muster->WatchJob(context, request);
      },
      take);
}

absl::Status Client::follow_logs(const v1::FollowLogsRequest& request,
                                 const std::function<bool(const v1::LogChunk&)>& take) {
  return read_all<v1::LogChunk>(
      [&](Connection& to, grpc::ClientContext* context) {
        return to.muster->FollowLogs(context, request);
      },
      take);
}

absl::Status Client::backup_state(const std::function<bool(const v1::FileChunk&)>& take) {
  return read_all<v1::FileChunk>(
      [](Connection& to, grpc::ClientContext* context) {
        context->set_deadline(daemon::grpc_deadline(monotonic_now() + kBackupDeadline));
        return to.admin->BackupState(context, v1::BackupStateRequest());
      },
      take);
}

absl::Status Client::take_profile(const v1::TakeProfileRequest& request,
                                  const std::function<bool(const v1::FileChunk&)>& take) {
  return read_all<v1::FileChunk>(
      [&](Connection& to, grpc::ClientContext* context) {
        const std::chrono::duration<double> time(request.seconds());
        context->set_deadline(daemon::grpc_deadline(
            monotonic_now() + std::chrono::duration_cast<Duration>(time) + kProfileDeadline));
        return to.admin->TakeProfile(context, request);
      },
      take);
}

absl::StatusOr<v1::Coordinator> Client::get_coordinator() {
  v1::Coordinator coordinator;
  absl::Status status = repeat_while_overloaded([&](Connection& to, Call& call) {
    call.context.set_deadline(daemon::grpc_deadline(monotonic_now() + kCallDeadline));
    return to.admin->GetCoordinator(&call.context, v1::GetCoordinatorRequest(), &coordinator);
  });
  if (!status.ok()) return status;
  return coordinator;
}

void Client::stop() {
  const std::lock_guard lock(mutex_);
  stopped_ = true;
  stop_requested_.notify_all();
  for (grpc::ClientContext* context : running_) context->TryCancel();
}

bool Client::is_stopped() const {
  const std::lock_guard lock(mutex_);
  return stopped_;
}

}  // namespace muster::cli
