// Sends log records to an OpenTelemetry collector by OTLP/HTTP as JSON
// (opentelemetry.io/docs/specs/otlp). Never blocks the caller: records wait in a bounded queue for
// the sender's thread. It tries each request a few times; then it drops the request and counts its
// records.
//
// Supports plain HTTP only: a collector on this machine or in the cluster's network must forward
// the records.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <absl/status/statusor.h>
#include <nlohmann/json.hpp>

#include "common/time/time.h"

namespace muster::worker {

// The address of a collector.
struct OtlpTarget {
  std::string host;
  std::string port;
  std::string path;                            // "/v1/logs"
  std::map<std::string, std::string> headers;  // HTTP headers of each request
};

// Parses `endpoint` (a collector's base URL, "http://127.0.0.1:4318") and `headers`
// (OTEL_EXPORTER_OTLP_HEADERS, "name=value,…", percent-encoded values). Returns InvalidArgument
// with the reason.
absl::StatusOr<OtlpTarget> otlp_target(const std::string& endpoint, const std::string& headers);

// Returns the body of a request with these records. Each record is a flat object with "message",
// "severity" and "unix_ns"; its other members become attributes.
nlohmann::json otlp_body(const std::vector<nlohmann::json>& records, const std::string& worker);

// Limits for delivery.
struct OtlpOptions {
  int tries_max = 4;
  // pause before the first retry; doubles with each retry
  Duration first_pause = std::chrono::seconds(1);
  Duration try_budget = std::chrono::seconds(10);
  size_t queue_bytes_max = 16 << 20;
};

// A queue of records and the thread that sends them.
class OtlpLogs {
 public:
  OtlpLogs(OtlpTarget target, std::string worker, OtlpOptions options = {});
  // Drops unsent records. Blocks until the current try ends, at most for `try_budget`.
  ~OtlpLogs();
  OtlpLogs(const OtlpLogs&) = delete;
  OtlpLogs& operator=(const OtlpLogs&) = delete;

  // Queues records; drops records that exceed the queue's bound. Thread-safe; never blocks.
  void send(const std::vector<nlohmann::json>& records);
  // Returns the number of records dropped since the start.
  uint64_t dropped() const { return dropped_; }

 private:
  struct Request {
    std::string body;
    size_t records = 0;
  };

  void run(const std::stop_token& stop);
  bool deliver(const std::string& body, const std::stop_token& stop);

  const OtlpTarget target_;
  const std::string worker_;
  const OtlpOptions options_;
  std::atomic<uint64_t> dropped_{0};
  bool problem_logged_ = false;  // used by the thread only

  std::mutex mutex_;  // guards the members below
  std::condition_variable_any wake_;
  std::deque<Request> queue_;
  size_t queue_bytes_ = 0;
  // last member: the thread ends before the members that it uses are destroyed
  std::jthread thread_;
};

}  // namespace muster::worker
