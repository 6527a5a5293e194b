// A client of the coordinator for the commands: plain calls with deadlines; errors are sentences.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <absl/status/statusor.h>

#include "cli/coordinator_target.h"
#include "common/time.h"
#include "daemon/client_credentials.h"
#include "muster/v1/muster.grpc.pb.h"

namespace muster::cli {

// A coordinator answers in milliseconds; the deadline allows for a machine under heavy load.
constexpr Duration kCallDeadline = std::chrono::seconds(5);

// Thread-safe. Calls block, and end early when stop() is called.
class Client {
 public:
  // Neither connects nor reads files: the first call does both. Certificates and tokens that have
  // changed are read again by the next call.
  explicit Client(CoordinatorTarget coordinator);

  absl::StatusOr<v1::Job> submit(const v1::JobSpec& spec, const std::string& request_id);
  // Returns the newest jobs first. Without `all` it returns one page, whose response states whether
  // there are more.
  absl::StatusOr<v1::ListJobsResponse> list_jobs(bool active_only, bool all);
  absl::StatusOr<v1::Job> get_job(uint64_t id);
  absl::StatusOr<v1::Job> cancel_job(uint64_t id, bool force);
  absl::StatusOr<v1::CheckpointJobResponse> checkpoint_job(uint64_t id);
  absl::StatusOr<v1::ListWorkersResponse> list_workers();
  // Returns the worker as it is after the call. `seconds`: how long it stays excluded; 0: until it
  // is admitted. `evacuate`: its jobs save a checkpoint and continue on other workers.
  absl::StatusOr<v1::WorkerInfo> exclude_worker(const std::string& name, const std::string& reason,
                                                int64_t seconds, bool evacuate);
  absl::StatusOr<v1::WorkerInfo> admit_worker(const std::string& name);
  // Returns the incidents of one job; 0: of all jobs.
  absl::StatusOr<v1::ListIncidentsResponse> list_incidents(uint64_t job);
  absl::StatusOr<v1::Incident> get_incident(uint64_t id);
  // Returns the stacks of one rank; -1: of all ranks. Takes seconds when ranks do not respond.
  absl::StatusOr<v1::DumpJobStacksResponse> dump_stacks(uint64_t job, int32_t rank,
                                                        bool program_dumps);

  // Streams. Call `take` for each message on the calling thread; a false return value ends the
  // stream. Return ok when the server or `take` ended it.
  absl::Status watch_job(uint64_t id, const std::function<bool(const v1::Job&)>& take);
  absl::Status follow_logs(const v1::FollowLogsRequest& request,
                           const std::function<bool(const v1::LogChunk&)>& take);

  // Waits for at most a second until the coordinator can be reached. Returns false otherwise.
  bool wait_for_connection();
  // Ends running calls with Cancelled, and later ones as soon as they begin.
  void stop();
  bool is_stopped() const;

 private:
  class Call;
  // A channel and the secrets that it was made with.
  struct Connection {
    daemon::ClientSecrets secrets;
    std::shared_ptr<grpc::Channel> channel;
    std::unique_ptr<v1::Muster::Stub> stub;
  };
  template <class Request, class Response>
  using Method = grpc::Status (v1::Muster::Stub::*)(grpc::ClientContext*, const Request&,
                                                    Response*);

  // The error names the invalid file or flag.
  absl::StatusOr<std::shared_ptr<Connection>> connection();
  absl::Status translate(const grpc::Status& status) const;
  template <class Request, class Response>
  absl::StatusOr<Response> unary_call(Method<Request, Response> method, const Request& request,
                                      Duration deadline = kCallDeadline);
  template <class Message, class Reader>
  static absl::Status read_all(Call& call, Reader& reader,
                               const std::function<bool(const Message&)>& take);

  const CoordinatorTarget coordinator_;

  mutable std::mutex mutex_;
  std::shared_ptr<Connection> connection_;
  bool stopped_ = false;
  std::vector<grpc::ClientContext*> running_;
};

// How long a submission is repeated: a restart takes seconds, and a wrong address should fail soon.
constexpr auto kSubmitPatience = std::chrono::seconds(10);

// Submits a job. Repeats the call with the same id for up to `patience` while the coordinator is
// unreachable or does not answer. An answer may get lost after the job was accepted: the id keeps a
// repeat from creating a second job. Calls `on_loss` once, before the first repeat.
absl::StatusOr<v1::Job> submit_with_repeats(
    Client& client, const v1::JobSpec& spec, const std::string& request_id, Duration patience,
    const std::function<void(const absl::Status&)>& on_loss);

// A reconnecting stream gives up after the coordinator was unreachable for this long: a restart
// takes seconds.
constexpr int kReconnectSecondsMax = 60;

// Runs `stream` again each time it ends with UNAVAILABLE and the coordinator returns in time. Calls
// `on_loss` once per loss.
absl::Status with_reconnection(Client& client, const std::function<absl::Status()>& stream,
                               const std::function<void(const absl::Status&)>& on_loss);

// The message about a lost connection: the coordinator may be restarting, or the address may be
// wrong.
std::string loss_text(const absl::Status& loss);

}  // namespace muster::cli
