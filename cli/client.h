// A client of the coordinator for the commands. Calls other than streams have deadlines; error
// messages are sentences for users.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <absl/status/statusor.h>

#include "cli/coordinator_search.h"
#include "cli/coordinator_target.h"
#include "common/time/time.h"
#include "daemon/client_credentials.h"
#include "muster/v1/admin.grpc.pb.h"
#include "muster/v1/muster.grpc.pb.h"

namespace muster::cli {

// Time limit of a call. A coordinator answers within milliseconds; the limit allows for a machine
// under heavy load.
constexpr Duration kCallDeadline = std::chrono::seconds(5);

// Time for which calls are repeated that an overloaded coordinator refuses.
constexpr Duration kOverloadPatience = std::chrono::seconds(60);
// Time for which a call waits until one of several coordinators leads. After the loss of a leader
// another one leads within 5 s.
constexpr Duration kLeaderPatience = std::chrono::seconds(10);
// Bounds the pause before a refused call is repeated.
constexpr Duration kRepeatPauseMax = std::chrono::seconds(10);
// Pause between two attempts: a coordinator that is shutting down refuses immediately.
constexpr auto kReconnectPause = std::chrono::milliseconds(200);

// Calls of the coordinator's API. Thread-safe. A call blocks until its answer, its deadline or
// stop(). A stream has no deadline: it blocks until it ends or until stop(). Calls that an
// overloaded coordinator refuses are repeated; the first one prints a note. If the target
// has several addresses, each call goes to the coordinator that leads.
class Client {
 public:
  // Neither connects nor reads files: the first call does both. Each call reads certificates and
  // tokens again if their files have changed.
  explicit Client(CoordinatorTarget coordinator);

  // Submits a job. A repeated call with the same `request_id` returns the job of the first call.
  absl::StatusOr<v1::Job> submit(const v1::JobSpec& spec, const std::string& request_id);
  // Returns jobs, newest first. Without `all` returns one page; the response states whether there
  // are more jobs.
  absl::StatusOr<v1::ListJobsResponse> list_jobs(bool active_only, bool all);
  // Returns the job with the ranks of its first page, or with all ranks.
  enum class Ranks { kFirstPage, kAll };
  absl::StatusOr<v1::Job> get_job(uint64_t id, Ranks ranks = Ranks::kFirstPage);
  // Adds the ranks beyond the first page to `job`, which a call or a stream has returned.
  absl::Status add_ranks(v1::Job& job);
  absl::StatusOr<v1::Job> cancel_job(uint64_t id, bool force);
  absl::StatusOr<v1::CheckpointJobResponse> checkpoint_job(uint64_t id);
  // Changes the spec of a job; returns the job after the call. May be repeated with the same
  // request_id.
  absl::StatusOr<v1::Job> update_job(const v1::UpdateJobRequest& request);
  // Returns all workers, by name.
  absl::StatusOr<v1::ListWorkersResponse> list_workers();
  // Returns the usage and the quotas of users and teams.
  absl::StatusOr<v1::ListSharesResponse> list_shares();
  // Excludes a worker from new ranks; returns its state after the call. `seconds`: duration of the
  // exclusion; 0: until admit_worker(). `evacuate`: the worker's jobs save a checkpoint and
  // continue on other workers. `drain_unix_ns`: they do so in time for this moment; 0: they do not.
  // `late`: a drain that is far ahead excludes the worker only shortly before it.
  absl::StatusOr<v1::WorkerInfo> exclude_worker(const std::string& name, const std::string& reason,
                                                int64_t seconds, bool evacuate,
                                                int64_t drain_unix_ns = 0, bool late = false);
  absl::StatusOr<v1::WorkerInfo> admit_worker(const std::string& name);
  // Begins deep checks of idle nodes; returns the new sweep.
  absl::StatusOr<v1::NodeSweep> begin_sweep(const v1::CheckNodesRequest& request);
  // Returns the sweep number `id`; 0: the newest.
  absl::StatusOr<v1::NodeSweep> node_sweep(uint64_t id);
  // Returns the results of the worker's deep checks, newest first.
  absl::StatusOr<v1::ListNodeChecksResponse> deep_checks_of(const std::string& worker);
  // Returns the newest `limit` attempts of the job, newest first.
  absl::StatusOr<v1::GetJobHistoryResponse> job_history(uint64_t id, uint32_t limit);
  // Returns the incidents of the job number `job`; 0: of all jobs.
  absl::StatusOr<v1::ListIncidentsResponse> list_incidents(uint64_t job);
  absl::StatusOr<v1::Incident> get_incident(uint64_t id);
  // Returns the stacks of the rank `rank`; -1: of all ranks. Takes seconds if ranks do not respond.
  // `program_dumps`: also request dumps from the ranks' programs.
  absl::StatusOr<v1::DumpJobStacksResponse> dump_stacks(uint64_t job, int32_t rank,
                                                        bool program_dumps);

  // The two functions below receive a stream of messages: they call `take` for each message on the
  // calling thread, and end the stream when `take` returns false. They return OK if the server or
  // `take` ended the stream.
  absl::Status watch_job(uint64_t id, const std::function<bool(const v1::Job&)>& take);
  absl::Status follow_logs(const v1::FollowLogsRequest& request,
                           const std::function<bool(const v1::LogChunk&)>& take);

  // Describes the coordinator's process. Returns Unimplemented if the coordinator is of an earlier
  // version.
  absl::StatusOr<v1::Coordinator> get_coordinator();
  // Receive a copy of the coordinator's state or a profile of its process, as the streams above.
  absl::Status backup_state(const std::function<bool(const v1::FileChunk&)>& take);
  absl::Status take_profile(const v1::TakeProfileRequest& request,
                            const std::function<bool(const v1::FileChunk&)>& take);

  // Returns the address of the coordinator that the next call goes to; of several, the one that
  // leads.
  absl::StatusOr<std::string> address();
  // Waits until the coordinator can be reached, for at most a second. Returns false if it cannot.
  bool wait_for_connection();
  // Waits before a lost connection is tried again, for one to two times kReconnectPause, so that
  // the callers of a restarted coordinator do not all return at once. stop() ends the wait.
  void pause_before_reconnection();
  // Makes running and later calls return Cancelled at once.
  void stop();
  bool is_stopped() const;

 private:
  class Call;
  // A channel, and the secrets with which it was created.
  struct Connection {
    std::string address;
    daemon::ClientSecrets secrets;
    std::shared_ptr<grpc::Channel> channel;
    std::unique_ptr<v1::Muster::Stub> muster;
    std::unique_ptr<v1::Admin::Stub> admin;
  };
  template <class Request, class Response>
  using Method = grpc::Status (v1::Muster::Stub::*)(grpc::ClientContext*, const Request&,
                                                    Response*);

  // Returns the current connection. Returns an error that names the invalid file or flag if there
  // can be none. Of several coordinators, waits for at most `patience` until one leads.
  absl::StatusOr<std::shared_ptr<Connection>> connection(Duration patience = kLeaderPatience);
  // Returns the connection to the only address, which may be a name of several coordinators.
  std::shared_ptr<Connection> only_connection(const daemon::ClientSecrets& secrets);
  // Requires mutex_.
  std::shared_ptr<Connection> use(const daemon::ClientSecrets& secrets,
                                  const CoordinatorSearch::Found& found);
  absl::StatusOr<CoordinatorSearch::Found> find_leader(const daemon::ClientSecrets& secrets,
                                                       Duration patience);
  // The next call searches the coordinator again if there are several.
  void forget(const Connection& connection);
  absl::Status translate(const grpc::Status& status) const;
  template <class Request, class Response>
  absl::StatusOr<Response> unary_call(Method<Request, Response> method, const Request& request,
                                      Duration deadline = kCallDeadline);
  // Repeats a call that one of several coordinators has not answered, at the next leader, for at
  // most kLeaderPatience. Requires that a repetition has no further effect.
  // `on_repeat` is called before each repetition.
  template <class Request, class Response>
  absl::StatusOr<Response> repeatable_call(
      Method<Request, Response> method, const Request& request,
      const std::function<void()>& on_repeat = [] {});
  template <class Message>
  absl::Status read_all(const std::function<std::unique_ptr<grpc::ClientReader<Message>>(
                            Connection&, grpc::ClientContext*)>& open,
                        const std::function<bool(const Message&)>& take);
  // Runs a call, and runs it again, with growing pauses, while an overloaded coordinator refuses it
  // and requests a repetition, for at most kOverloadPatience.
  absl::Status repeat_while_overloaded(const std::function<grpc::Status(Connection&, Call&)>& run);
  // Waits. Returns false if stop() was called.
  bool pause(Duration time);

  const CoordinatorTarget coordinator_;
  const std::vector<std::string> addresses_;

  mutable std::mutex mutex_;
  std::shared_ptr<Connection> connection_;
  bool stopped_ = false;
  std::condition_variable stop_requested_;
  std::vector<grpc::ClientContext*> running_;
  std::atomic<bool> is_overload_noted_{false};
  std::atomic<bool> is_search_noted_{false};
};

// Returns the pause before the repetition number `repeats` (from 0) of a call that an overloaded
// coordinator has refused with the request to wait for `hint`: at least that time, growing and, by
// `draw` (from 0 to 1), different for each caller. Otherwise all callers would return at once.
Duration pause_before_repeat(Duration hint, int repeats, double draw);
// Returns a random number from 0 to 1.
double draw_fraction();

// Time for which a submission is repeated: a restart of the coordinator takes seconds, and a wrong
// address should fail soon.
constexpr auto kSubmitPatience = std::chrono::seconds(10);

// Submits a job. While the coordinator is unreachable or does not answer, repeats the call with the
// same request_id, for at most `patience`. An answer may get lost after the coordinator has
// accepted the job: because of the equal request_id, the repeated call does not create a second
// job. Calls `on_loss` once, before the first repetition.
absl::StatusOr<v1::Job> submit_with_repeats(
    Client& client, const v1::JobSpec& spec, const std::string& request_id, Duration patience,
    const std::function<void(const absl::Status&)>& on_loss);

// Time for which with_reconnection() waits for an unreachable coordinator. A restart takes seconds.
constexpr int kReconnectSecondsMax = 60;

// Runs `stream`, and runs it again each time it ends with Unavailable and the coordinator returns
// within kReconnectSecondsMax. Calls `on_loss` once per lost connection. Returns the last status of
// `stream`.
absl::Status with_reconnection(Client& client, const std::function<absl::Status()>& stream,
                               const std::function<void(const absl::Status&)>& on_loss);

// Returns the message about a lost connection, with the two possible reasons: the coordinator
// restarts, or its address is wrong.
std::string loss_text(const absl::Status& loss);

}  // namespace muster::cli
