// A coordinator that the test controls: a real gRPC server for one worker at a time.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include <absl/strings/str_cat.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include "muster/v1/muster.grpc.pb.h"
#include "tests/unit/worker/shell/shell_fixture.h"

namespace muster::worker {

class FakeCoordinator : public v1::Fleet::Service {
 public:
  using Stream = grpc::ServerReaderWriter<v1::CoordinatorMessage, v1::WorkerMessage>;

  ~FakeCoordinator() override { stop(); }

  // Starts the server, the first time on a free port, later on the same port.
  void start() {
    grpc::ServerBuilder builder;
    builder.AddListeningPort(absl::StrCat("127.0.0.1:", port_), grpc::InsecureServerCredentials(),
                             &port_);
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
    ASSERT_NE(server_, nullptr);
  }

  void stop() {
    if (!server_) return;
    server_->Shutdown(std::chrono::system_clock::now());
    server_->Wait();
    server_.reset();
  }

  int port() const { return port_; }
  void refuse_with(const std::optional<grpc::Status>& status) { refusal_ = status; }
  void set_epoch(uint64_t epoch) { epoch_ = epoch; }
  void acknowledge_logs(bool yes) { acknowledge_logs_ = yes; }

  grpc::Status Connect(grpc::ServerContext*, Stream* stream) override {
    if (refusal_) return *refusal_;
    v1::WorkerMessage message;
    while (stream->Read(&message)) {
      const std::lock_guard lock(mutex_);
      stream_ = stream;
      if (message.has_register_()) greet();
      if (message.has_log()) take_log(message.log());
      messages_.push_back(message);
      changed_.notify_all();
    }
    const std::lock_guard lock(mutex_);
    if (stream_ == stream) stream_ = nullptr;
    return grpc::Status::OK;
  }

  void send(v1::CoordinatorMessage message) {
    const std::lock_guard lock(mutex_);
    message.set_epoch(epoch_);
    ASSERT_NE(stream_, nullptr);
    stream_->Write(message);
  }

  // Returns the next message that satisfies `wanted`, and drops the messages before it; nullopt if
  // none arrives within kPatience.
  std::optional<v1::WorkerMessage> next(
      const std::function<bool(const v1::WorkerMessage&)>& wanted) {
    std::unique_lock lock(mutex_);
    const auto deadline = std::chrono::steady_clock::now() + kPatience;
    while (true) {
      while (!messages_.empty()) {
        v1::WorkerMessage message = std::move(messages_.front());
        messages_.pop_front();
        if (wanted(message)) return message;
      }
      if (changed_.wait_until(lock, deadline) == std::cv_status::timeout) return std::nullopt;
    }
  }

  std::optional<v1::Register> next_register() {
    const auto message = next([](const v1::WorkerMessage& m) { return m.has_register_(); });
    return message ? std::optional(message->register_()) : std::nullopt;
  }
  std::optional<v1::RankExited> next_exit() {
    const auto message = next([](const v1::WorkerMessage& m) { return m.has_rank_exited(); });
    return message ? std::optional(message->rank_exited()) : std::nullopt;
  }
  void acknowledge(uint64_t report_id) {
    v1::CoordinatorMessage message;
    message.mutable_report_ack()->set_report_id(report_id);
    send(std::move(message));
  }

  std::string log(int32_t rank) {
    const std::lock_guard lock(mutex_);
    return logs_[rank];
  }
  void lose_log(int32_t rank, size_t keep) {
    const std::lock_guard lock(mutex_);
    logs_[rank].resize(keep);
  }

 private:
  void greet() {
    v1::CoordinatorMessage message;
    message.set_epoch(epoch_);
    message.mutable_registered()->set_epoch(epoch_);
    message.mutable_registered()->set_heartbeat_interval_ms(50);
    stream_->Write(message);
  }

  void take_log(const v1::LogData& data) {
    std::string& log = logs_[data.rank()];
    if (data.offset() > log.size()) {
      ADD_FAILURE() << "a gap in the log of rank " << data.rank();
      return;
    }
    log.resize(data.offset());
    log += data.data();
    if (!acknowledge_logs_) return;
    v1::CoordinatorMessage message;
    message.set_epoch(epoch_);
    message.mutable_log_ack()->set_job_id(data.job_id());
    message.mutable_log_ack()->set_attempt(data.attempt());
    message.mutable_log_ack()->set_rank(data.rank());
    message.mutable_log_ack()->set_offset(log.size());
    stream_->Write(message);
  }

  std::unique_ptr<grpc::Server> server_;
  int port_ = 0;
  uint64_t epoch_ = 1;
  bool acknowledge_logs_ = true;
  std::optional<grpc::Status> refusal_;
  std::mutex mutex_;
  std::condition_variable changed_;
  Stream* stream_ = nullptr;
  std::deque<v1::WorkerMessage> messages_;
  std::map<int32_t, std::string> logs_;
};

}  // namespace muster::worker
