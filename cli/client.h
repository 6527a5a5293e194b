// The coordinator as the commands see it: plain calls with deadlines, errors as sentences.
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

// A coordinator answers in milliseconds; this is for a machine under heavy load.
constexpr Duration kCallDeadline = std::chrono::seconds(5);

// Any thread; calls block, and end early when stop() is called.
class Client {
 public:
  // Neither connects nor reads files yet: the first call does. Certificates and tokens that change are read again by the next one.
  explicit Client(CoordinatorTarget coordinator);

  absl::StatusOr<v1::Job> submit(const v1::JobSpec& spec, const std::string& request_id);
  // Newest first. Unless `all`, one page, which tells whether there are more.
  absl::StatusOr<v1::ListJobsResponse> list_jobs(bool active_only, bool all);
  absl::StatusOr<v1::Job> get_job(uint64_t id);
  absl::StatusOr<v1::Job> cancel_job(uint64_t id, bool force);
  absl::StatusOr<v1::CheckpointJobResponse> checkpoint_job(uint64_t id);
  absl::StatusOr<v1::ListWorkersResponse> list_workers();
  // The worker as it is then. `seconds`: 0 for until it is admitted.
  // `evacuate`: what runs there saves and goes on elsewhere.
  absl::StatusOr<v1::WorkerInfo> exclude_worker(const std::string& name, const std::string& reason,
                                                int64_t seconds, bool evacuate);
  absl::StatusOr<v1::WorkerInfo> admit_worker(const std::string& name);
  // Of one job, or (0) of all of them.
  absl::StatusOr<v1::ListIncidentsResponse> list_incidents(uint64_t job);
  absl::StatusOr<v1::Incident> get_incident(uint64_t id);
  // Of one rank, or (-1) of all of them. Takes seconds when ranks do not answer.
  absl::StatusOr<v1::DumpJobStacksResponse> dump_stacks(uint64_t job, int32_t rank,
                                                        bool program_dumps);

  // Streams. `take` is called for each message on the calling thread; false ends the stream. Ok when the server
  // ended it or `take` did.
  absl::Status watch_job(uint64_t id, const std::function<bool(const v1::Job&)>& take);
  absl::Status follow_logs(const v1::FollowLogsRequest& request,
                           const std::function<bool(const v1::LogChunk&)>& take);

  // Waits until the coordinator can be reached; false after a second at most.
  bool wait_for_connection();
  // Ends every call that is running, and new ones at once, with Cancelled.
  void stop();
  bool is_stopped() const;

 private:
  class Call;
  // Made of what the files of the trust hold.
  struct Connection {
    daemon::ClientSecrets secrets;
    std::shared_ptr<grpc::Channel> channel;
    std::unique_ptr<v1::Muster::Stub> stub;
  };
  template <class Request, class Response>
  using Method = grpc::Status (v1::Muster::Stub::*)(grpc::ClientContext*, const Request&,
                                                    Response*);

  // The error says what is wrong with the files, or with the flags.
  absl::StatusOr<std::shared_ptr<Connection>> connection();
  absl::Status translate(const grpc::Status& status) const;
  template <class Request, class Response>
  absl::StatusOr<Response> ask(Method<Request, Response> method, const Request& request,
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

// How long a submission is repeated: a restart takes seconds, and nobody wants to wait long for a wrong address.
constexpr auto kSubmitPatience = std::chrono::seconds(10);

// Submits, and again with the same id while the coordinator is away or does not answer, for `patience`. An answer may
// have been lost after the job was taken: the id is what keeps a repeat from making a second one. `on_loss` is told
// once, before the first repeat.
absl::StatusOr<v1::Job> submit_with_repeats(
    Client& client, const v1::JobSpec& spec, const std::string& request_id, Duration patience,
    const std::function<void(const absl::Status&)>& on_loss);

// A reconnecting stream gives up after the coordinator was away this long: a restart takes seconds.
constexpr int kReconnectSecondsMax = 60;

// Runs `stream` again and again while it ends with UNAVAILABLE and the coordinator comes back in time. `on_loss`
// is told once per loss.
absl::Status with_reconnection(Client& client, const std::function<absl::Status()>& stream,
                               const std::function<void(const absl::Status&)>& on_loss);

// What people are told then: the coordinator may be away, or may never have been where this looks for it.
std::string loss_text(const absl::Status& loss);

}  // namespace muster::cli
