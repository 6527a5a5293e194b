// The coordinator's services over real gRPC on loopback: invalid requests and failures.
#include <gmock/gmock.h>
#include <sys/resource.h>
#include <unistd.h>

#include <deque>
#include <filesystem>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include <grpcpp/health_check_service_interface.h>
#include <gtest/gtest.h>

#include "coordinator/shell/grpc/stream_limit.h"
#include "tests/unit/coordinator/shell/shell_fixture.h"
#include "tests/unit/sanitized.h"

namespace muster::coordinator {
namespace {

using testing::HasSubstr;

TEST_F(ShellTest, RefusesABadSpecAndNamesTheField) {
  const grpc::Status status = submit(submission("a/b", 1));
  EXPECT_EQ(status.error_code(), grpc::INVALID_ARGUMENT);
  EXPECT_THAT(status.error_message(), HasSubstr("spec.name is \"a/b\""));
  EXPECT_EQ(submit(submission("a", 0)).error_code(), grpc::INVALID_ARGUMENT);
  v1::Job job;
  EXPECT_EQ(get(1, &job).error_code(), grpc::NOT_FOUND);
}

TEST_F(ShellTest, RefusesAMessageOverTheLimit) {
  v1::SubmitJobRequest request = submission("a", 1);
  request.mutable_spec()->set_train_config_json(std::string(5 << 20, ' '));
  const grpc::Status status = submit(request);
  EXPECT_EQ(status.error_code(), grpc::RESOURCE_EXHAUSTED);
  EXPECT_THAT(status.error_message(), HasSubstr("larger than max"));
  EXPECT_THAT(status.error_message(), HasSubstr(absl::StrCat("vs. ", 4 << 20)));
  EXPECT_TRUE(submit(submission("a", 1)).ok());
}

TEST_F(ShellTest, GarbageOnThePortIsHarmless) {
  std::mt19937 random(3);
  for (int i = 0; i < 20; ++i) {
    RawConnection connection(server_->grpc_port());
    std::string bytes(4096, '\0');
    for (char& c : bytes) c = static_cast<char>(random());
    if (i % 2 == 0) bytes.insert(0, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
    connection.send(bytes);
  }
  RawConnection silent(server_->grpc_port());
  v1::Job job;
  EXPECT_TRUE(submit(submission("a", 1), &job).ok());
  EXPECT_EQ(job.state(), v1::QUEUED);
}

TEST_F(ShellTest, RequestsTheMissingLogFromAWorker) {
  FakeWorker worker(*fleet_);
  worker.send(registration("node1", 1, 1));
  worker.next();
  ASSERT_TRUE(submit(submission("a", 1)).ok());
  ASSERT_TRUE(worker.next().has_start_ranks());
  worker.log(1, 1, 0, 0, "abc");
  EXPECT_EQ(worker.next().log_ack().offset(), 3U);
  worker.log(1, 1, 0, 6, "ghi");
  EXPECT_EQ(worker.next().log_ack().offset(), 3U);
  worker.log(1, 1, 0, 3, "defghi");
  EXPECT_EQ(worker.next().log_ack().offset(), 9U);
  EXPECT_EQ(log_of(1), "abcdefghi");
}

TEST_F(ShellTest, KeepsSecretsBetweenTheClientAndTheRanks) {
  FakeWorker worker(*fleet_);
  worker.send(registration("node1", 1, 1));
  worker.next();
  v1::SubmitJobRequest request = submission("a", 1);
  (*request.mutable_spec()->mutable_environment())["HF_TOKEN"] = "hunter2";
  v1::Job job;
  ASSERT_TRUE(submit(request, &job).ok());
  EXPECT_EQ(job.spec().environment().at("HF_TOKEN"), "***");
  EXPECT_EQ(worker.next().start_ranks().spec().environment().at("HF_TOKEN"), "hunter2");
  ASSERT_TRUE(get(job.id(), &job).ok());
  EXPECT_EQ(job.spec().environment().at("HF_TOKEN"), "***");
  grpc::ClientContext context;
  set_deadline(context);
  v1::WatchJobRequest watch_request;
  watch_request.set_job_id(job.id());
  const auto watch = muster_->WatchJob(&context, watch_request);
  ASSERT_TRUE(watch->Read(&job));
  EXPECT_EQ(job.spec().environment().at("HF_TOKEN"), "***");
  context.TryCancel();
  watch->Finish();
}

TEST_F(ShellTest, OpenStreamsAreBounded) {
  ASSERT_TRUE(submit(submission("a", 1)).ok());  // waits for a worker, so its watchers wait, too
  v1::WatchJobRequest request;
  request.set_job_id(1);
  v1::FollowLogsRequest logs_request;
  logs_request.set_job_id(1);
  logs_request.set_follow(true);
  std::deque<grpc::ClientContext> contexts;
  std::vector<std::unique_ptr<grpc::ClientReader<v1::Job>>> streams;
  v1::Job job;
  for (int i = 0; i < kStreamsMax; ++i) {
    set_deadline(contexts.emplace_back());
    streams.push_back(muster_->WatchJob(&contexts.back(), request));
    ASSERT_TRUE(streams.back()->Read(&job)) << i;
  }
  {
    grpc::ClientContext watch_context, logs_context;
    set_deadline(watch_context);
    set_deadline(logs_context);
    const auto watch = muster_->WatchJob(&watch_context, request);
    EXPECT_FALSE(watch->Read(&job));
    EXPECT_EQ(watch->Finish().error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
    const auto logs = muster_->FollowLogs(&logs_context, logs_request);
    v1::LogChunk chunk;
    EXPECT_FALSE(logs->Read(&chunk));
    EXPECT_EQ(logs->Finish().error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  }
  contexts.front().TryCancel();
  streams.front()->Finish();
  // The coordinator notices it a little later.
  bool open = false;
  for (int tries = 0; tries < 10'000 && !open; ++tries) {
    grpc::ClientContext context;
    set_deadline(context);
    const auto watch = muster_->WatchJob(&context, request);
    open = watch->Read(&job);
    if (open) context.TryCancel();
    const grpc::StatusCode code = watch->Finish().error_code();
    ASSERT_TRUE(open || code == grpc::StatusCode::RESOURCE_EXHAUSTED) << code;
  }
  EXPECT_TRUE(open);
  for (grpc::ClientContext& context : contexts) context.TryCancel();
  for (const auto& stream : streams) {
    if (stream != streams.front()) stream->Finish();
  }
}

TEST_F(ShellTest, RunsAJobFromSubmissionToItsEnd) {
  v1::Job job;
  ASSERT_TRUE(submit(submission("llama", 2), &job).ok());
  const uint64_t id = job.id();

  grpc::ClientContext watch_context;
  set_deadline(watch_context);
  v1::WatchJobRequest watch_request;
  watch_request.set_job_id(id);
  const auto watch = muster_->WatchJob(&watch_context, watch_request);
  ASSERT_TRUE(watch->Read(&job));
  EXPECT_EQ(job.state(), v1::QUEUED);

  FakeWorker worker(*fleet_);
  worker.send(registration("node1", 1, 2));
  EXPECT_EQ(worker.next().registered().epoch(), 1U);
  const v1::CoordinatorMessage start = worker.next();
  ASSERT_EQ(start.start_ranks().ranks_size(), 2);
  EXPECT_EQ(start.start_ranks().job_id(), id);
  EXPECT_EQ(start.start_ranks().rendezvous_address(), "127.0.0.1:1");
  ASSERT_TRUE(watch->Read(&job));
  EXPECT_EQ(job.state(), v1::STARTING);

  grpc::ClientContext logs_context;
  set_deadline(logs_context);
  v1::FollowLogsRequest logs_request;
  logs_request.set_job_id(id);
  logs_request.set_rank(1);
  logs_request.set_follow(true);
  const auto logs = muster_->FollowLogs(&logs_context, logs_request);

  worker.heartbeat(id, 1, 2, 7);
  ASSERT_TRUE(watch->Read(&job));
  EXPECT_EQ(job.state(), v1::RUNNING);
  EXPECT_EQ(job.ranks(0).step(), 7);
  EXPECT_DOUBLE_EQ(job.ranks(0).mfu(), 0.25);
  EXPECT_EQ(job.ranks(1).phase(), "STEP");

  worker.log(id, 1, 1, 0, "hello ");
  EXPECT_EQ(worker.next().log_ack().offset(), 6U);
  v1::LogChunk chunk;
  ASSERT_TRUE(logs->Read(&chunk));
  EXPECT_EQ(chunk.data(), "hello ");
  worker.log(id, 1, 1, 3, "lo there\n");  // data before a reconnection is repeated
  EXPECT_EQ(worker.next().log_ack().offset(), 12U);
  ASSERT_TRUE(logs->Read(&chunk));
  EXPECT_EQ(chunk.data(), "there\n");
  EXPECT_EQ(chunk.offset(), 6U);

  const std::string metrics = http_get(server_->http_port(), "/metrics");
  EXPECT_THAT(metrics, HasSubstr("muster_job_step{job_id=\"1\",name=\"llama\"} 7"));
  EXPECT_THAT(metrics, HasSubstr("muster_job_tokens_per_second{job_id=\"1\",name=\"llama\"} 2000"));
  EXPECT_THAT(metrics, HasSubstr("muster_job_mfu_ratio{job_id=\"1\",name=\"llama\"} 0.25"));
  EXPECT_THAT(metrics, HasSubstr("muster_job_step_seconds_count{job_id=\"1\",name=\"llama\"} 7"));
  EXPECT_THAT(metrics, HasSubstr("muster_jobs{state=\"running\"} 1"));
  EXPECT_THAT(metrics, HasSubstr("muster_fleet_slots_used{worker=\"node1\"} 2"));
  EXPECT_THAT(metrics,
              HasSubstr("muster_coordinator_rpcs_total{code=\"OK\",method=\"SubmitJob\"} 1"));
  EXPECT_THAT(metrics, HasSubstr("muster_coordinator_rpc_seconds_count{method=\"SubmitJob\"} 1"));
  for (const char* method : {"Connect", "WatchJob", "FollowLogs"})
    EXPECT_THAT(metrics,
                HasSubstr(absl::StrCat("muster_coordinator_streams{method=\"", method, "\"} 1")));
  EXPECT_THAT(metrics, HasSubstr("muster_coordinator_registrations_total{result=\"new\"} 1"));
  EXPECT_THAT(metrics, HasSubstr("muster_coordinator_events_total{event=\"worker_registered\"} 1"));
  EXPECT_THAT(metrics, HasSubstr("muster_coordinator_leader 1"));
  EXPECT_THAT(metrics, HasSubstr("process_resident_memory_bytes "));
  EXPECT_THAT(http_get(server_->http_port(), "/readyz"), HasSubstr("200 OK"));

  grpc::ClientContext list_context;
  set_deadline(list_context);
  v1::ListJobsResponse list;
  ASSERT_TRUE(muster_->ListJobs(&list_context, v1::ListJobsRequest(), &list).ok());
  EXPECT_EQ(list.jobs(0).ranks_size(), 1);
  EXPECT_EQ(list.jobs(0).spec().steps(), 50);
  EXPECT_DOUBLE_EQ(list.jobs(0).tokens_per_second(), 2000) << "the output of both ranks";

  worker.exited(id, 1, 0, 0);
  EXPECT_EQ(worker.next().report_ack().report_id(), 1U);
  worker.exited(id, 1, 1, 0);
  EXPECT_EQ(worker.next().report_ack().report_id(), 2U);
  ASSERT_TRUE(watch->Read(&job));
  EXPECT_EQ(job.state(), v1::SUCCEEDED);
  EXPECT_FALSE(watch->Read(&job));
  EXPECT_TRUE(watch->Finish().ok());
  EXPECT_FALSE(logs->Read(&chunk));
  EXPECT_TRUE(logs->Finish().ok());
}

TEST_F(ShellTest, ComesBackFromItsStateFile) {
  v1::SubmitJobRequest request = submission("llama", 2);
  request.set_request_id("once");
  v1::Job job;
  uint64_t store = 0;
  {
    FakeWorker worker(*fleet_);
    worker.send(registration("node1", 9, 2));
    store = worker.next().registered().store_id();
    ASSERT_TRUE(submit(request, &job).ok());
    EXPECT_TRUE(worker.next().has_start_ranks());
    worker.heartbeat(1, 1, 2, 3);
    worker.log(1, 1, 0, 0, "kept\n");
    EXPECT_TRUE(worker.next().has_log_ack());
    restart();
  }
  ASSERT_TRUE(get(1, &job).ok());
  EXPECT_EQ(job.state(), v1::RUNNING);
  ASSERT_TRUE(submit(request, &job).ok());
  EXPECT_EQ(job.id(), 1U);

  FakeWorker worker(*fleet_);
  v1::WorkerMessage message = registration("node1", 9, 2);
  message.mutable_register_()->set_store_id(store);
  for (int rank = 0; rank < 2; ++rank) {
    v1::RunningRank& running = *message.mutable_register_()->add_running();
    running.set_job_id(1);
    running.set_attempt(1);
    running.set_rank(rank);
    running.set_pid(5);
  }
  worker.send(message);
  EXPECT_EQ(worker.next().registered().epoch(), 2U);
  worker.log(1, 1, 0, 5, "and more\n");
  EXPECT_EQ(worker.next().log_ack().offset(), 14U);
  worker.exited(1, 1, 0, 0);
  worker.next();
  worker.exited(1, 1, 1, 2);
  worker.next();
  ASSERT_TRUE(get(1, &job).ok());
  EXPECT_EQ(job.state(), v1::FAILED);
  EXPECT_EQ(job.exit_code(), 2);

  grpc::ClientContext context;
  set_deadline(context);
  v1::FollowLogsRequest logs_request;
  logs_request.set_job_id(1);
  logs_request.set_attempt(1);
  logs_request.set_offset(3);
  const auto logs = muster_->FollowLogs(&context, logs_request);
  v1::LogChunk chunk;
  ASSERT_TRUE(logs->Read(&chunk));
  EXPECT_EQ(chunk.data(), "t\nand more\n");
  EXPECT_FALSE(logs->Read(&chunk));
  EXPECT_TRUE(logs->Finish().ok());
}

TEST_F(ShellTest, AnotherStoresJobsHaveLogsOfTheirOwn) {
  for (const std::string text : {"of the first store\n", "second\n"}) {
    {
      FakeWorker worker(*fleet_);
      worker.send(registration("node1", 1, 1));
      EXPECT_TRUE(worker.next().has_registered());
      v1::Job job;
      ASSERT_TRUE(submit(submission("a", 1), &job).ok());
      EXPECT_EQ(job.id(), 1U);
      ASSERT_TRUE(worker.next().has_start_ranks());
      worker.log(1, 1, 0, 0, text);
      EXPECT_EQ(worker.next().log_ack().offset(), text.size());
      EXPECT_EQ(log_of(1), text);
    }
    server_.reset();
    for (const char* file : {"muster.db", "muster.db-wal", "muster.db-shm"})
      std::filesystem::remove(folder_.path() + "/state/" + file);
    start();
  }
}

TEST_F(ShellTest, OutputThatCannotBeStoredNowIsRequestedAgain) {
  if (kSanitized) GTEST_SKIP() << "the sanitizer needs descriptors of its own";
  FakeWorker worker(*fleet_);
  worker.send(registration("node1", 1, 1));
  worker.next();
  ASSERT_TRUE(submit(submission("a", 1)).ok());
  ASSERT_TRUE(worker.next().has_start_ranks());
  rlimit old{};
  getrlimit(RLIMIT_NOFILE, &old);
  rlimit low = old;
  low.rlim_cur = 3;  // open descriptors stay open
  setrlimit(RLIMIT_NOFILE, &low);
  worker.log(1, 1, 0, 0, "abc");
  const uint64_t settled = worker.next().log_ack().offset();
  setrlimit(RLIMIT_NOFILE, &old);
  EXPECT_EQ(settled, 0U);
  worker.log(1, 1, 0, 0, "abc");
  EXPECT_EQ(worker.next().log_ack().offset(), 3U);
  EXPECT_EQ(log_of(1), "abc");
}

TEST_F(ShellTest, KeepsItsPortsAndItsStateToItself) {
  ServerOptions options;
  options.listen = "127.0.0.1:0";
  options.http = "127.0.0.1:0";
  options.state_dir = folder_.path() + "/state";
  absl::Status status = Server::start(options).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kAlreadyExists);
  EXPECT_THAT(std::string(status.message()), HasSubstr(absl::StrCat("pid ", getpid())));

  options.state_dir = folder_.path() + "/other";
  options.listen = address_;
  status = Server::start(options).status();
  EXPECT_THAT(std::string(status.message()),
              HasSubstr(absl::StrCat("--listen=", address_, ": port ", server_->grpc_port(),
                                     " is in use")));
  EXPECT_FALSE(std::filesystem::exists(options.state_dir)) << "the ports are opened first";
  options.listen = "127.0.0.1:0";
  options.http = absl::StrCat("127.0.0.1:", server_->http_port());
  status = Server::start(options).status();
  EXPECT_THAT(std::string(status.message()), HasSubstr("--http=" + options.http + ": port"));
  EXPECT_FALSE(std::filesystem::exists(options.state_dir));

  options.listen = "0.0.0.0:0";
  status = Server::start(options).status();
  EXPECT_THAT(std::string(status.message()), HasSubstr("--insecure"));
}

TEST_F(ShellTest, CancelsAndLists) {
  v1::Job job;
  ASSERT_TRUE(submit(submission("a", 1), &job).ok());
  ASSERT_TRUE(submit(submission("b", 1), &job).ok());
  grpc::ClientContext cancel_context;
  set_deadline(cancel_context);
  v1::CancelJobRequest cancel;
  cancel.set_job_id(job.id());
  v1::CancelJobResponse cancelled;
  ASSERT_TRUE(muster_->CancelJob(&cancel_context, cancel, &cancelled).ok());
  EXPECT_EQ(cancelled.job().state(), v1::CANCELLED);
  grpc::ClientContext list_context;
  set_deadline(list_context);
  v1::ListJobsResponse list;
  ASSERT_TRUE(muster_->ListJobs(&list_context, v1::ListJobsRequest(), &list).ok());
  ASSERT_EQ(list.jobs_size(), 2);
  EXPECT_EQ(list.jobs(0).spec().name(), "b");
  EXPECT_FALSE(list.more());
  grpc::ClientContext older_context;
  set_deadline(older_context);
  v1::ListJobsRequest older;
  older.set_before_job_id(list.jobs(0).id());
  ASSERT_TRUE(muster_->ListJobs(&older_context, older, &list).ok());
  ASSERT_EQ(list.jobs_size(), 1);
  EXPECT_EQ(list.jobs(0).spec().name(), "a");
}

}  // namespace
}  // namespace muster::coordinator
