#include "bench/durability/client.h"

#include <chrono>

#include <absl/strings/str_cat.h>

namespace muster::bench {
namespace {

using std::chrono::milliseconds;

constexpr auto kDeadline = std::chrono::seconds(2);
constexpr auto kPause = milliseconds(15);
constexpr size_t kOpenMax = 12;
constexpr uint64_t kCancelOneIn = 100;
constexpr int kReconnectMs = 20;
// More than the deaths of any job's ranks, so that no job fails.
constexpr int32_t kRestartsMax = 1'000;

void limit(grpc::ClientContext& context) {
  context.set_deadline(std::chrono::system_clock::now() + kDeadline);
}

}  // namespace

Client::Client(const std::string& coordinator, int index, int32_t nodes_max, int32_t ranks_max,
               uint64_t seed, Observations& observations)
    : index_(index),
      nodes_max_(nodes_max),
      ranks_max_(ranks_max),
      observations_(observations),
      random_(seed) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, kReconnectMs);
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, kReconnectMs);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 2 * kReconnectMs);
  stub_ = v1::Muster::NewStub(
      grpc::CreateCustomChannel(coordinator, grpc::InsecureChannelCredentials(), arguments));
  thread_ = std::thread([this] { run(); });
}

Client::~Client() {
  stopping_ = true;
  thread_.join();
}

void Client::run() {
  while (!stopping_) {
    if (!finishing_ && open_.size() < kOpenMax) submit();
    if (!open_.empty()) {
      const size_t some = random_() % open_.size();
      if (random_() % kCancelOneIn == 0) cancel(open_[some]);
      if (follow(open_[some])) open_.erase(open_.begin() + static_cast<ptrdiff_t>(some));
    }
    finished_ = finishing_ && open_.empty();
    std::this_thread::sleep_for(kPause);
  }
}

void Client::submit() {
  const std::string id = absl::StrCat("client-", index_, "-", next_++);
  v1::SubmitJobRequest request;
  request.set_request_id(id);
  v1::JobSpec& spec = *request.mutable_spec();
  spec.set_name(id);
  spec.set_nodes(1 + static_cast<int32_t>(random_() % static_cast<uint64_t>(nodes_max_)));
  spec.set_ranks_per_node(1 + static_cast<int32_t>(random_() % static_cast<uint64_t>(ranks_max_)));
  spec.set_priority(static_cast<int32_t>(random_() % 3));
  spec.set_restarts_max(kRestartsMax);
  spec.set_output_directory(absl::StrCat("/out/", id));
  spec.set_working_directory("/");
  spec.add_command("true");
  bool is_confirmed = false;
  // Some callers lose the answer and repeat the request.
  for (bool again = random_() % 5 == 0; !stopping_ && (!is_confirmed || again);) {
    if (is_confirmed) again = false;
    v1::SubmitJobResponse response;
    grpc::ClientContext context;
    limit(context);
    const grpc::Status status = stub_->SubmitJob(&context, request, &response);
    observations_.count("submissions_sent");
    if (status.ok()) {
      observations_.confirmed(id, response.job().id());
      if (!is_confirmed) open_.push_back(response.job().id());
      is_confirmed = true;
    } else if (status.error_code() == grpc::StatusCode::UNAVAILABLE ||
               status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED ||
               status.error_code() == grpc::StatusCode::CANCELLED) {
      std::this_thread::sleep_for(kPause);
    } else {
      observations_.violate(absl::StrCat("a submission was refused: ", status.error_message()));
      return;
    }
  }
}

void Client::cancel(uint64_t job) {
  v1::CancelJobRequest request;
  request.set_job_id(job);
  request.set_force(random_() % 2 == 0);
  v1::CancelJobResponse response;
  grpc::ClientContext context;
  limit(context);
  // The request may have been carried out without an answer.
  observations_.request_cancel(job);
  if (stub_->CancelJob(&context, request, &response).ok()) observations_.count("cancels_confirmed");
}

bool Client::follow(uint64_t job) {
  v1::GetJobRequest request;
  request.set_job_id(job);
  v1::Job answer;
  grpc::ClientContext context;
  limit(context);
  const grpc::Status status = stub_->GetJob(&context, request, &answer);
  if (status.ok()) return observations_.observed(answer);
  if (status.error_code() != grpc::StatusCode::NOT_FOUND) return false;
  observations_.missed(job);
  return true;
}

}  // namespace muster::bench
