#include "cli/client.h"

#include <chrono>
#include <thread>
#include <utility>

#include <absl/strings/str_cat.h>
#include <grpcpp/grpcpp.h>

#include "common/time.h"
#include "daemon/grpc_deadline.h"
#include "daemon/limits.h"

namespace muster::cli {
namespace {

// Workers have a deadline for their ranks, and the coordinator one for the workers; this is beyond both.
constexpr Duration kStacksDeadline = std::chrono::seconds(30);

// Between two tries: a coordinator that is leaving refuses at once.
constexpr auto kReconnectPause = std::chrono::milliseconds(200);

std::shared_ptr<grpc::Channel> make_channel(const std::string& address) {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(daemon::kMessageBytesMax);
  // A coordinator that restarts is found again at once.
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
  // Despite its name also how long one attempt may take; a refused connection fails at once anyway.
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 5000);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 1000);
  // Coordinators are reached directly, not through a web proxy.
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  return grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments);
}

// gRPC's account of a lost connection ends with what matters: "… last error: UNKNOWN: …: Connection refused".
std::string cause(const std::string& message) {
  const size_t colon = message.rfind(": ");
  return colon == std::string::npos ? message : message.substr(colon + 2);
}

}  // namespace

Client::Client(std::string address)
    : address_(std::move(address)),
      channel_(make_channel(address_)),
      stub_(v1::Muster::NewStub(channel_)) {}

absl::Status Client::translate(const grpc::Status& status) const {
  if (status.ok()) return absl::OkStatus();
  if (status.error_code() == grpc::StatusCode::UNAVAILABLE) {
    return absl::UnavailableError(
        absl::StrCat("no coordinator answers at ", address_, " (", cause(status.error_message()),
                     "); start muster-coordinator, or name another address with --coordinator"));
  }
  if (status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED) {
    return absl::DeadlineExceededError(
        absl::StrCat("the coordinator at ", address_, " did not answer in time"));
  }
  return absl::Status(static_cast<absl::StatusCode>(status.error_code()), status.error_message());
}

// A call that is running: stop() finds it. One that is cancelled before it begins ends as soon as it does.
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
absl::StatusOr<Response> Client::ask(Method<Request, Response> method, const Request& request,
                                     Duration deadline) {
  Call call(*this);
  call.context.set_deadline(daemon::grpc_deadline(monotonic_now() + deadline));
  Response response;
  const absl::Status status =
      call.result((stub_.get()->*method)(&call.context, request, &response));
  if (!status.ok()) return status;
  return response;
}

absl::StatusOr<v1::Job> Client::submit(const v1::JobSpec& spec, const std::string& request_id) {
  v1::SubmitJobRequest request;
  *request.mutable_spec() = spec;
  request.set_request_id(request_id);
  auto response = ask(&v1::Muster::Stub::SubmitJob, request);
  if (!response.ok()) return response.status();
  return std::move(*response->mutable_job());
}

absl::StatusOr<v1::ListJobsResponse> Client::list_jobs(bool active_only) {
  v1::ListJobsRequest request;
  request.set_active_only(active_only);
  return ask(&v1::Muster::Stub::ListJobs, request);
}

absl::StatusOr<v1::Job> Client::get_job(uint64_t id) {
  v1::GetJobRequest request;
  request.set_job_id(id);
  return ask(&v1::Muster::Stub::GetJob, request);
}

absl::StatusOr<v1::Job> Client::cancel_job(uint64_t id, bool force) {
  v1::CancelJobRequest request;
  request.set_job_id(id);
  request.set_force(force);
  auto response = ask(&v1::Muster::Stub::CancelJob, request);
  if (!response.ok()) return response.status();
  return std::move(*response->mutable_job());
}

absl::StatusOr<v1::CheckpointJobResponse> Client::checkpoint_job(uint64_t id) {
  v1::CheckpointJobRequest request;
  request.set_job_id(id);
  return ask(&v1::Muster::Stub::CheckpointJob, request);
}

absl::StatusOr<v1::ListWorkersResponse> Client::list_workers() {
  return ask(&v1::Muster::Stub::ListWorkers, v1::ListWorkersRequest());
}

absl::StatusOr<v1::ListIncidentsResponse> Client::list_incidents(uint64_t job) {
  v1::ListIncidentsRequest request;
  request.set_job_id(job);
  return ask(&v1::Muster::Stub::ListIncidents, request);
}

absl::StatusOr<v1::Incident> Client::get_incident(uint64_t id) {
  v1::GetIncidentRequest request;
  request.set_incident_id(id);
  return ask(&v1::Muster::Stub::GetIncident, request);
}

absl::StatusOr<v1::DumpJobStacksResponse> Client::dump_stacks(uint64_t job, int32_t rank) {
  v1::DumpJobStacksRequest request;
  request.set_job_id(job);
  request.set_rank(rank);
  return ask(&v1::Muster::Stub::DumpJobStacks, request, kStacksDeadline);
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
  Call call(*this);
  v1::WatchJobRequest request;
  request.set_job_id(id);
  const auto reader = stub_->WatchJob(&call.context, request);
  return read_all(call, *reader, take);
}

absl::Status Client::follow_logs(const v1::FollowLogsRequest& request,
                                 const std::function<bool(const v1::LogChunk&)>& take) {
  Call call(*this);
  const auto reader = stub_->FollowLogs(&call.context, request);
  return read_all(call, *reader, take);
}

bool Client::wait_for_connection() {
  return channel_->WaitForConnected(
      daemon::grpc_deadline(monotonic_now() + std::chrono::seconds(1)));
}

void Client::stop() {
  const std::lock_guard lock(mutex_);
  stopped_ = true;
  for (grpc::ClientContext* context : running_) context->TryCancel();
}

absl::StatusOr<v1::Job> submit_with_repeats(
    Client& client, const v1::JobSpec& spec, const std::string& request_id, Duration patience,
    const std::function<void(const absl::Status&)>& on_loss) {
  const Instant give_up = monotonic_now() + patience;
  for (bool was_told = false;; was_told = true) {
    auto submitted = client.submit(spec, request_id);
    const bool is_lost =
        absl::IsUnavailable(submitted.status()) || absl::IsDeadlineExceeded(submitted.status());
    if (!is_lost || monotonic_now() >= give_up) return submitted;
    if (!was_told) on_loss(submitted.status());
    std::this_thread::sleep_for(kReconnectPause);
    while (monotonic_now() < give_up && !client.wait_for_connection()) {
    }
  }
}

absl::Status with_reconnection(Client& client, const std::function<absl::Status()>& stream,
                               const std::function<void(const absl::Status&)>& on_loss) {
  // A stream that lived this long was a good one: the count of losses begins again.
  constexpr auto kGoodStream = std::chrono::seconds(2);
  constexpr int kLossesInARowMax = kReconnectSecondsMax * 5;  // at one pause each
  for (int losses = 0;;) {
    const Instant started = monotonic_now();
    absl::Status status = stream();
    if (!absl::IsUnavailable(status)) return status;
    if (monotonic_now() - started > kGoodStream) losses = 0;
    if (losses++ == 0) on_loss(status);
    for (int waited = 0; !client.wait_for_connection(); ++waited) {
      if (waited == kReconnectSecondsMax) return status;
    }
    if (losses > kLossesInARowMax) return status;
    std::this_thread::sleep_for(kReconnectPause);
  }
}

}  // namespace muster::cli
