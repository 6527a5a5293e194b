// Jobs of people with tokens of their own: what others may do with them, and how streams end.
#include <gmock/gmock.h>

#include <fstream>
#include <thread>

#include "tests/unit/coordinator/shell/grpc/trust_fixture.h"

namespace muster::coordinator {
namespace {

using ::testing::HasSubstr;

constexpr const char* kAlice = "alice-0123456789abcdef";
constexpr const char* kBob = "bob-0123456789abcdef";
constexpr const char* kCarol = "carol-0123456789abcdef";
constexpr const char* kPeople =
    "bob-0123456789abcdef user=bob teams=vision\n"
    "carol-0123456789abcdef user=carol teams=speech max_priority=5\n";

class OwnershipTest : public TrustTest {
 protected:
  void SetUp() override {
    TrustTest::SetUp();
    write_file(folder_.file("tokens/submitter"),
               absl::StrCat("alice-0123456789abcdef user=alice teams=vision\n", kPeople));
    options_.ping_every = std::chrono::milliseconds(50);
    start();
  }

  template <class Request, class Response>
  using Method = grpc::Status (v1::Muster::Stub::*)(grpc::ClientContext*, const Request&,
                                                    Response*);
  template <class Request, class Response>
  grpc::Status call(const char* token, Method<Request, Response> method, const Request& request,
                    Response* response = nullptr) {
    grpc::ClientContext context;
    set_deadline(context);
    Response unused;
    const auto stub = v1::Muster::NewStub(channel(with(token)));
    return (*stub.*method)(&context, request, response == nullptr ? &unused : response);
  }
  v1::SubmitJobRequest job_named(const std::string& name) {
    v1::SubmitJobRequest request = submission(name, 1);
    request.set_request_id("request-of-" + name);
    request.mutable_spec()->set_user("mallory");
    request.mutable_spec()->set_owner("mallory");
    return request;
  }
  v1::Job submit_as(const char* token, const v1::SubmitJobRequest& request) {
    v1::SubmitJobResponse response;
    const grpc::Status status = call(token, &v1::Muster::Stub::SubmitJob, request, &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return response.job();
  }
  grpc::Status cancel(const char* token, uint64_t job) {
    v1::CancelJobRequest request;
    request.set_job_id(job);
    return call(token, &v1::Muster::Stub::CancelJob, request);
  }
  grpc::Status read_logs(const char* token, uint64_t job) {
    grpc::ClientContext context;
    set_deadline(context);
    v1::FollowLogsRequest request;
    request.set_job_id(job);
    const auto stub = v1::Muster::NewStub(channel(with(token)));
    const auto reader = stub->FollowLogs(&context, request);
    for (v1::LogChunk chunk; reader->Read(&chunk);) {
    }
    return reader->Finish();
  }
  static void expect_denied(const grpc::Status& status, const char* purpose,
                            const char* allowed = "alice, members of vision and admins") {
    EXPECT_EQ(status.error_code(), grpc::StatusCode::PERMISSION_DENIED) << purpose;
    EXPECT_EQ(status.error_message(),
              absl::StrCat("job 1 belongs to alice: only ", allowed, " may ", purpose,
                           ", and this token is carol's"));
  }
};

TEST_F(OwnershipTest, OthersMayWatchAJobAndDoNoMore) {
  const v1::Job job = submit_as(kAlice, job_named("a"));
  EXPECT_EQ(job.spec().owner(), "alice");
  EXPECT_EQ(job.spec().user(), "alice");
  EXPECT_EQ(job.spec().team(), "vision");

  expect_denied(cancel(kCarol, job.id()), "cancel it");
  v1::CheckpointJobRequest checkpoint;
  checkpoint.set_job_id(job.id());
  expect_denied(call(kCarol, &v1::Muster::Stub::CheckpointJob, checkpoint),
                "request its checkpoint");
  v1::DumpJobStacksRequest stacks;
  stacks.set_job_id(job.id());
  stacks.set_rank(-1);
  expect_denied(call(kCarol, &v1::Muster::Stub::DumpJobStacks, stacks), "request its stacks");
  v1::UpdateJobRequest update;
  update.set_job_id(job.id());
  *update.mutable_spec() = job.spec();
  expect_denied(call(kCarol, &v1::Muster::Stub::UpdateJob, update), "update it",
                "alice and admins");
  expect_denied(read_logs(kCarol, job.id()), "read its output");
  expect_denied(call(kCarol, &v1::Muster::Stub::SubmitJob, job_named("a")), "submit it again");

  v1::GetJobRequest get;
  get.set_job_id(job.id());
  v1::Job seen;
  EXPECT_TRUE(call(kCarol, &v1::Muster::Stub::GetJob, get, &seen).ok());
  EXPECT_EQ(seen.state(), v1::QUEUED) << "the refused requests have changed nothing";

  EXPECT_TRUE(read_logs(kBob, job.id()).ok()) << "a member of the team";
  EXPECT_TRUE(read_logs(kAdminToken, job.id()).ok());
  EXPECT_EQ(submit_as(kAlice, job_named("a")).id(), job.id());
  EXPECT_TRUE(cancel(kBob, job.id()).ok());
}

TEST_F(OwnershipTest, ATokenLimitsTeamsAndPriorities) {
  v1::SubmitJobRequest request = job_named("a");
  request.mutable_spec()->set_team("vision");
  grpc::Status status = call(kCarol, &v1::Muster::Stub::SubmitJob, request);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::PERMISSION_DENIED);
  EXPECT_EQ(status.error_message(),
            "team is vision: the teams of carol's token are speech; choose one of them, or omit "
            "--team");
  request.mutable_spec()->set_team("speech");
  request.mutable_spec()->set_priority(6);
  status = call(kCarol, &v1::Muster::Stub::SubmitJob, request);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::PERMISSION_DENIED);
  EXPECT_THAT(status.error_message(), HasSubstr("priority is 6"));
  request.mutable_spec()->set_priority(5);
  EXPECT_EQ(submit_as(kCarol, request).spec().team(), "speech");
}

TEST_F(OwnershipTest, TheOwnerIsStored) {
  const v1::Job job = submit_as(kAlice, job_named("a"));
  server_.reset();
  start();
  expect_denied(cancel(kCarol, job.id()), "cancel it");
  expect_denied(read_logs(kCarol, job.id()), "read its output");
  EXPECT_TRUE(cancel(kAlice, job.id()).ok());
}

TEST_F(OwnershipTest, TheEvidenceOfAnIncidentIsTheOwners) {
  const auto fleet = v1::Fleet::NewStub(channel(with(kWorkerToken)));
  FakeWorker worker(*fleet);
  worker.send(registration("node0", 1, 1));
  ASSERT_TRUE(worker.next().has_registered());
  const v1::Job job = submit_as(kAlice, job_named("a"));
  while (!worker.next().has_start_ranks()) {
  }
  v1::WorkerMessage message;
  v1::RankExited& exited = *message.mutable_rank_exited();
  exited.set_job_id(job.id());
  exited.set_attempt(1);
  exited.set_exit_code(1);
  worker.send(message);
  v1::ListIncidentsResponse list;
  for (int i = 0; i < 400 && list.incidents_size() == 0; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(25));
    ASSERT_TRUE(call(kCarol, &v1::Muster::Stub::ListIncidents, {}, &list).ok());
  }
  ASSERT_EQ(list.incidents_size(), 1);
  v1::GetIncidentRequest request;
  request.set_incident_id(list.incidents(0).id());
  expect_denied(call(kCarol, &v1::Muster::Stub::GetIncident, request),
                "read the evidence of its incidents");
  EXPECT_TRUE(call(kBob, &v1::Muster::Stub::GetIncident, request).ok());
}

TEST_F(OwnershipTest, StreamsEndWithTheirToken) {
  const v1::Job job = submit_as(kAlice, job_named("a"));
  const auto stub = v1::Muster::NewStub(channel(with(kAlice)));
  grpc::ClientContext watches, follows;
  set_deadline(watches);
  set_deadline(follows);
  v1::WatchJobRequest watch;
  watch.set_job_id(job.id());
  const auto watcher = stub->WatchJob(&watches, watch);
  v1::FollowLogsRequest follow;
  follow.set_job_id(job.id());
  follow.set_follow(true);
  const auto follower = stub->FollowLogs(&follows, follow);
  v1::Job seen;
  ASSERT_TRUE(watcher->Read(&seen));
  const auto fleet = v1::Fleet::NewStub(channel(with(kWorkerToken)));
  FakeWorker worker(*fleet);
  worker.send(registration("node0", 1, 1));
  ASSERT_TRUE(worker.next().has_registered());

  write_file(folder_.file("tokens/submitter"), kPeople);
  while (watcher->Read(&seen)) {
  }
  const grpc::Status watched = watcher->Finish();
  EXPECT_EQ(watched.error_code(), grpc::StatusCode::UNAUTHENTICATED);
  EXPECT_THAT(watched.error_message(), HasSubstr("expired or was removed"));
  v1::LogChunk chunk;
  while (follower->Read(&chunk)) {
  }
  EXPECT_EQ(follower->Finish().error_code(), grpc::StatusCode::UNAUTHENTICATED);

  write_file(folder_.file("tokens/worker"), "another-0123456789abcdef");
  EXPECT_EQ(worker.end().error_code(), grpc::StatusCode::UNAUTHENTICATED);
}

TEST_F(OwnershipTest, AStreamEndsIfTheRightsOfItsTokenChange) {
  const v1::Job job = submit_as(kAlice, job_named("a"));
  const auto stub = v1::Muster::NewStub(channel(with(kBob)));
  grpc::ClientContext context;
  set_deadline(context);
  v1::WatchJobRequest request;
  request.set_job_id(job.id());
  const auto watcher = stub->WatchJob(&context, request);
  v1::Job seen;
  ASSERT_TRUE(watcher->Read(&seen));
  write_file(folder_.file("tokens/submitter"),
             "alice-0123456789abcdef user=alice teams=vision\nbob-0123456789abcdef user=bob\n");
  while (watcher->Read(&seen)) {
  }
  const grpc::Status status = watcher->Finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAUTHENTICATED);
  EXPECT_EQ(status.error_message(), "the rights of the token have changed");
}

TEST_F(OwnershipTest, ARegistrationHasALineInTheAuditLog) {
  {
    const auto fleet = v1::Fleet::NewStub(channel(with(kWorkerToken)));
    FakeWorker worker(*fleet);
    worker.send(registration("node0", 1, 1));
    ASSERT_TRUE(worker.next().has_registered());
  }
  server_.reset();
  std::ifstream file(options_.state_dir + "/audit.jsonl");
  std::string line;
  ASSERT_TRUE(std::getline(file, line));
  EXPECT_THAT(line, HasSubstr("\"method\":\"Connect\",\"target\":\"worker node0\""));
  EXPECT_THAT(line, HasSubstr("\"role\":\"worker\""));
  EXPECT_THAT(line, HasSubstr("\"peer\":\"ipv4:127.0.0.1:"));
}

}  // namespace
}  // namespace muster::coordinator
