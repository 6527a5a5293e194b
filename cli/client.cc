#include "cli/client.h"

#include <chrono>
#include <thread>
#include <utility>

#include <absl/strings/str_cat.h>
#include <grpcpp/grpcpp.h>

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

// Pause between two attempts: a coordinator that is shutting down refuses immediately.
constexpr auto kReconnectPause = std::chrono::milliseconds(200);

std::shared_ptr<grpc::Channel> make_channel(const std::string& address,
                                            const daemon::ClientSecrets& secrets) {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(daemon::kMessageBytesMax);
  // Reconnects quickly to a restarted coordinator.
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
  // Despite its name this also bounds a single attempt; a refused connection fails immediately
  // anyway.
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 5000);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 1000);
  // Coordinators are reached directly, not through a web proxy.
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  return grpc::CreateCustomChannel(address, daemon::channel_credentials(secrets), arguments);
}

// Returns the end of gRPC's message about a lost connection, which has the cause: "… last error:
// UNKNOWN: …: Connection refused".
std::string cause(const std::string& message) {
  const size_t colon = message.rfind(": ");
  return colon == std::string::npos ? message : message.substr(colon + 2);
}

// Returns what to try when the coordinator does not answer.
const char* advice(const std::string& message, const daemon::ClientTrust& trust) {
  if (message.find("certificate") != std::string::npos)
    return "check that --tls-ca has the CA of its certificate, and that the certificate names this "
           "address";
  const bool is_there = message.find("refused") == std::string::npos;
  if (trust.has_tls() && is_there)
    return "check that it serves TLS and accepts the certificate of --tls-cert";
  if (is_there && message.find("Socket closed") != std::string::npos)
    return "if it serves TLS, give --tls-ca";
  return "start muster-coordinator, or name another address with --coordinator";
}

}  // namespace

Client::Client(CoordinatorTarget coordinator) : coordinator_(std::move(coordinator)) {}

absl::StatusOr<std::shared_ptr<Client::Connection>> Client::connection() {
  auto secrets = daemon::read_secrets(coordinator_.trust);
  if (!secrets.ok()) return secrets.status();
  const std::lock_guard lock(mutex_);
  if (connection_ == nullptr || connection_->secrets != *secrets) {
    auto channel = make_channel(coordinator_.address, *secrets);
    auto stub = v1::Muster::NewStub(channel);
    connection_ = std::make_shared<Connection>(*std::move(secrets), channel, std::move(stub));
  }
  return connection_;
}

absl::Status Client::translate(const grpc::Status& status) const {
  if (status.ok()) return absl::OkStatus();
  if (status.error_code() == grpc::StatusCode::UNAVAILABLE) {
    return absl::UnavailableError(absl::StrCat("no coordinator answers at ", coordinator_.address,
                                               " (", cause(status.error_message()), "); ",
                                               advice(status.error_message(), coordinator_.trust)));
  }
  if (status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED) {
    return absl::DeadlineExceededError(
        absl::StrCat("the coordinator at ", coordinator_.address, " did not answer in time"));
  }
  return absl::Status(static_cast<absl::StatusCode>(status.error_code()), status.error_message());
}

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
    return client_.translate(status);
  }

  grpc::ClientContext context;

 private:
  Client& client_;
};

template <class Request, class Response>
absl::StatusOr<Response> Client::unary_call(Method<Request, Response> method,
                                            const Request& request, Duration deadline) {
  const auto to = connection();
  if (!to.ok()) return to.status();
  Call call(*this);
  call.context.set_deadline(daemon::grpc_deadline(monotonic_now() + deadline));
  Request valid = request;
  daemon::make_texts_valid(valid);
  Response response;
  const absl::Status status =
      call.result(((*to)->stub.get()->*method)(&call.context, valid, &response));
  if (!status.ok()) return status;
  return response;
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
    auto page = unary_call(&v1::Muster::Stub::ListJobs, request);
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
  auto job = unary_call(&v1::Muster::Stub::GetJob, request);
  if (ranks == Ranks::kAll && job.ok())
    if (absl::Status status = add_ranks(*job); !status.ok()) return status;
  return job;
}

absl::Status Client::add_ranks(v1::Job& job) {
  v1::GetJobRequest request;
  request.set_job_id(job.id());
  while (job.placement_size() < job.rank_count()) {
    request.set_first_rank(job.placement_size());
    auto page = unary_call(&v1::Muster::Stub::GetJob, request);
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
  auto response = unary_call(&v1::Muster::Stub::CancelJob, request);
  if (!response.ok()) return response.status();
  return std::move(*response->mutable_job());
}

absl::StatusOr<v1::CheckpointJobResponse> Client::checkpoint_job(uint64_t id) {
  v1::CheckpointJobRequest request;
  request.set_job_id(id);
  return unary_call(&v1::Muster::Stub::CheckpointJob, request);
}

absl::StatusOr<v1::ListWorkersResponse> Client::list_workers() {
  v1::ListWorkersRequest request;
  v1::ListWorkersResponse workers;
  do {
    auto page = unary_call(&v1::Muster::Stub::ListWorkers, request);
    if (!page.ok()) return page.status();
    workers.mutable_workers()->MergeFrom(page->workers());
    workers.set_more(page->more() && page->workers_size() > 0);
    if (workers.more()) request.set_after(page->workers().rbegin()->name());
  } while (workers.more());
  return workers;
}

absl::StatusOr<v1::WorkerInfo> Client::exclude_worker(const std::string& name,
                                                      const std::string& reason, int64_t seconds,
                                                      bool evacuate) {
  v1::ExcludeWorkerRequest request;
  request.set_worker(name);
  request.set_reason(reason);
  request.set_seconds(seconds);
  request.set_evacuate(evacuate);
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

absl::StatusOr<v1::ListIncidentsResponse> Client::list_incidents(uint64_t job) {
  v1::ListIncidentsRequest request;
  request.set_job_id(job);
  return unary_call(&v1::Muster::Stub::ListIncidents, request);
}

absl::StatusOr<v1::Incident> Client::get_incident(uint64_t id) {
  v1::GetIncidentRequest request;
  request.set_incident_id(id);
  return unary_call(&v1::Muster::Stub::GetIncident, request);
}

absl::StatusOr<v1::DumpJobStacksResponse> Client::dump_stacks(uint64_t job, int32_t rank,
                                                              bool program_dumps) {
  v1::DumpJobStacksRequest request;
  request.set_job_id(job);
  request.set_rank(rank);
  request.set_program_dumps(program_dumps);
  return unary_call(&v1::Muster::Stub::DumpJobStacks, request, kStacksDeadline);
}

template <class Message, class Reader>
absl::Status Client::read_all(Call& call, Reader& reader,
                              const std::function<bool(const Message&)>& take) {
  bool wanted = true;
  Message message;
  while (wanted && reader.Read(&message)) wanted = take(message);
  if (!wanted) call.context.TryCancel();
  const grpc::Status status = reader.Finish();
  return wanted ? call.result(status) : absl::OkStatus();
}

absl::Status Client::watch_job(uint64_t id, const std::function<bool(const v1::Job&)>& take) {
  const auto to = connection();
  if (!to.ok()) return to.status();
  Call call(*this);
  v1::WatchJobRequest request;
  request.set_job_id(id);
  const auto reader = (*to)->stub->WatchJob(&call.context, request);
  return read_all(call, *reader, take);
}

absl::Status Client::follow_logs(const v1::FollowLogsRequest& request,
                                 const std::function<bool(const v1::LogChunk&)>& take) {
  const auto to = connection();
  if (!to.ok()) return to.status();
  Call call(*this);
  const auto reader = (*to)->stub->FollowLogs(&call.context, request);
  return read_all(call, *reader, take);
}

bool Client::wait_for_connection() {
  const auto to = connection();
  if (to.ok()) {
    return (*to)->channel->WaitForConnected(
        daemon::grpc_deadline(monotonic_now() + std::chrono::seconds(1)));
  }
  std::this_thread::sleep_for(kReconnectPause);  // The credential files may be half renewed.
  return false;
}

void Client::stop() {
  const std::lock_guard lock(mutex_);
  stopped_ = true;
  for (grpc::ClientContext* context : running_) context->TryCancel();
}

bool Client::is_stopped() const {
  const std::lock_guard lock(mutex_);
  return stopped_;
}

absl::StatusOr<v1::Job> submit_with_repeats(
    Client& client, const v1::JobSpec& spec, const std::string& request_id, Duration patience,
    const std::function<void(const absl::Status&)>& on_loss) {
  const Instant give_up = monotonic_now() + patience;
  for (bool is_reported = false;; is_reported = true) {
    auto submitted = client.submit(spec, request_id);
    const bool is_lost =
        absl::IsUnavailable(submitted.status()) || absl::IsDeadlineExceeded(submitted.status());
    if (!is_lost || client.is_stopped() || monotonic_now() >= give_up) return submitted;
    if (!is_reported) on_loss(submitted.status());
    std::this_thread::sleep_for(kReconnectPause);
    while (monotonic_now() < give_up && !client.is_stopped() && !client.wait_for_connection()) {
    }
  }
}

absl::Status with_reconnection(Client& client, const std::function<absl::Status()>& stream,
                               const std::function<void(const absl::Status&)>& on_loss) {
  // A stream that lived this long was healthy and resets the count of losses.
  constexpr auto kGoodStream = std::chrono::seconds(2);
  constexpr int kLossesInARowMax = kReconnectSecondsMax * 5;  // at one pause each
  for (int losses = 0;;) {
    const Instant started = monotonic_now();
    absl::Status status = stream();
    if (!absl::IsUnavailable(status)) return status;
    if (monotonic_now() - started > kGoodStream) losses = 0;
    if (losses++ == 0) on_loss(status);
    for (int waited = 0; !client.wait_for_connection(); ++waited) {
      if (waited == kReconnectSecondsMax || client.is_stopped()) return status;
    }
    if (losses > kLossesInARowMax) return status;
    std::this_thread::sleep_for(kReconnectPause);
  }
}

// Omits translate()'s advice: a restarting coordinator needs none.
std::string loss_text(const absl::Status& loss) {
  const std::string message(loss.message());
  return absl::StrCat(message.substr(0, message.find("; ")), "; trying again for ",
                      kReconnectSecondsMax, " s");
}

}  // namespace muster::cli
