// A complete coordinator in the test's process, on free loopback ports and with a temporary folder,
// and the stream of a worker that the test controls.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <memory>
#include <string>

#include <absl/strings/str_cat.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include "common/progress/step_times.h"
#include "coordinator/shell/server.h"
#include "muster/v1/muster.grpc.pb.h"
#include "tests/unit/temp_folder.h"

namespace muster::coordinator {

// A raw connection to a loopback port, for bytes that no client would send.
class RawConnection {
 public:
  explicit RawConnection(int port) : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(connect(fd_, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
  }
  ~RawConnection() { close(fd_); }
  RawConnection(const RawConnection&) = delete;
  RawConnection& operator=(const RawConnection&) = delete;

  void send(const std::string& bytes) {
    EXPECT_GE(::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL), -1);
  }
  // Returns what arrives next; "" after the end, or after ten seconds without anything.
  std::string receive() {
    pollfd ready{.fd = fd_, .events = POLLIN, .revents = 0};
    if (poll(&ready, 1, 10'000) != 1) return "";
    std::array<char, 4096> buffer{};
    const ssize_t bytes = recv(fd_, buffer.data(), buffer.size(), 0);
    return {buffer.data(), static_cast<size_t>(std::max<ssize_t>(bytes, 0))};
  }
  std::string receive_all() {
    std::string text;
    std::array<char, 4096> buffer{};
    ssize_t bytes = 0;
    while ((bytes = recv(fd_, buffer.data(), buffer.size(), 0)) > 0) {
      text.append(buffer.data(), static_cast<size_t>(bytes));
    }
    return text;
  }

 private:
  int fd_;
};

inline std::string http_get(int port, const std::string& path) {
  RawConnection connection(port);
  connection.send("GET " + path + " HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
  return connection.receive_all();
}

inline void set_deadline(grpc::ClientContext& context) {
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(20));
}

inline v1::SubmitJobRequest submission(const std::string& name, int ranks) {
  v1::SubmitJobRequest request;
  request.mutable_spec()->set_name(name);
  request.mutable_spec()->set_nodes(1);
  request.mutable_spec()->set_ranks_per_node(ranks);
  request.mutable_spec()->set_output_directory("/out/" + name);
  request.mutable_spec()->set_train_config_json("{}");
  request.mutable_spec()->set_steps(50);
  return request;
}

inline v1::WorkerMessage registration(const std::string& name, uint64_t incarnation, int slots) {
  v1::WorkerMessage message;
  v1::Register& r = *message.mutable_register_();
  r.set_worker(name);
  r.set_incarnation(incarnation);
  r.set_version("test");
  r.set_host("localhost");
  r.set_slots(slots);
  r.set_rendezvous_address("127.0.0.1:1");
  return message;
}

// The stream of a worker. Returns the coordinator's messages one at a time.
class FakeWorker {
 public:
  explicit FakeWorker(v1::Fleet::Stub& stub) {
    set_deadline(context_);
    stream_ = stub.Connect(&context_);
  }
  ~FakeWorker() {
    context_.TryCancel();
    if (!ended_) stream_->Finish();
  }
  FakeWorker(const FakeWorker&) = delete;
  FakeWorker& operator=(const FakeWorker&) = delete;

  bool send(const v1::WorkerMessage& message) { return stream_->Write(message); }

  // Returns the next message, or an empty one if the stream has ended. Skips ends of jobs, which
  // all workers receive.
  v1::CoordinatorMessage next() {
    v1::CoordinatorMessage message;
    do {
      if (!stream_->Read(&message)) message.Clear();
    } while (message.has_job_ended());
    return message;
  }
  grpc::Status end() {
    v1::CoordinatorMessage message;
    while (stream_->Read(&message)) {
    }
    ended_ = true;
    return stream_->Finish();
  }

  void heartbeat(uint64_t job, uint32_t attempt, int ranks, int64_t step) {
    v1::WorkerMessage message;
    for (int rank = 0; rank < ranks; ++rank) {
      v1::RankProgress& progress = *message.mutable_heartbeat()->add_ranks();
      progress.set_job_id(job);
      progress.set_attempt(attempt);
      progress.set_rank(rank);
      progress.set_pid(100 + rank);
      progress.set_phase(5);
      progress.set_step(step);
      progress.set_loss(2.5);
      progress.set_step_seconds(0.25);
      StepTimes times;
      for (int64_t i = 0; i < step; ++i) times.add(0.25);
      progress.mutable_step_times()->mutable_counts()->Add(times.counts.begin(),
                                                           times.counts.end());
      progress.mutable_step_times()->set_seconds(times.seconds);
      progress.set_tokens_per_second(1000);
      progress.set_tflops_per_device(1);
      progress.set_device_peak_tflops(4);
    }
    send(message);
  }
  void log(uint64_t job, uint32_t attempt, int rank, uint64_t offset, const std::string& data) {
    v1::WorkerMessage message;
    v1::LogData& log = *message.mutable_log();
    log.set_job_id(job);
    log.set_attempt(attempt);
    log.set_rank(rank);
    log.set_offset(offset);
    log.set_data(data);
    send(message);
  }
  void exited(uint64_t job, uint32_t attempt, int rank, int exit_code) {
    v1::WorkerMessage message;
    v1::RankExited& exit = *message.mutable_rank_exited();
    exit.set_report_id(static_cast<uint64_t>(rank) + 1);
    exit.set_job_id(job);
    exit.set_attempt(attempt);
    exit.set_rank(rank);
    exit.set_exit_code(exit_code);
    send(message);
  }

 private:
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReaderWriter<v1::WorkerMessage, v1::CoordinatorMessage>> stream_;
  bool ended_ = false;
};

class ShellTest : public testing::Test {
 protected:
  void SetUp() override { start(); }

  void start() {
    ServerOptions options;
    options.listen = "127.0.0.1:0";
    options.http = "127.0.0.1:0";
    options.state_dir = folder_.path() + "/state";
    options.core.version = "test";
    options.registration_budget = registration_budget_;
    options.idle_connection = idle_connection_;
    options.ping_every = ping_every_;
    options.on_fatal = [](const absl::Status& status) { ADD_FAILURE() << status; };
    auto server = Server::start(options);
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    address_ = absl::StrCat("127.0.0.1:", server_->grpc_port());
    channel_ = grpc::CreateChannel(address_, grpc::InsecureChannelCredentials());
    muster_ = v1::Muster::NewStub(channel_);
    fleet_ = v1::Fleet::NewStub(channel_);
  }
  void restart() {
    server_.reset();
    start();
  }

  grpc::Status submit(const v1::SubmitJobRequest& request, v1::Job* job = nullptr) {
    grpc::ClientContext context;
    set_deadline(context);
    v1::SubmitJobResponse response;
    grpc::Status status = muster_->SubmitJob(&context, request, &response);
    if (job != nullptr) *job = response.job();
    return status;
  }
  grpc::Status get(uint64_t id, v1::Job* job) {
    grpc::ClientContext context;
    set_deadline(context);
    v1::GetJobRequest request;
    request.set_job_id(id);
    return muster_->GetJob(&context, request, job);
  }

  // Returns the stored log of rank 0's first attempt.
  std::string log_of(uint64_t id) {
    grpc::ClientContext context;
    set_deadline(context);
    v1::FollowLogsRequest request;
    request.set_job_id(id);
    request.set_attempt(1);
    const auto logs = muster_->FollowLogs(&context, request);
    std::string text;
    for (v1::LogChunk chunk; logs->Read(&chunk);) text += chunk.data();
    EXPECT_TRUE(logs->Finish().ok());
    return text;
  }

  TempFolder folder_;
  Duration registration_budget_ = std::chrono::seconds(10);
  Duration idle_connection_ = std::chrono::seconds(60);
  Duration ping_every_ = std::chrono::seconds(15);
  std::unique_ptr<Server> server_;
  std::string address_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::Muster::Stub> muster_;
  std::unique_ptr<v1::Fleet::Stub> fleet_;
};

}  // namespace muster::coordinator
