// Sends log records to an OpenTelemetry collector by OTLP/HTTP as JSON
// (opentelemetry.io/docs/specs/otlp). Never blocks the caller: records wait in a bounded queue for
// the sender's thread, which retries a few times, then drops and counts them.
//
// Plain HTTP only: a collector on this machine or network forwards the records.
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

#include "common/time.h"

namespace muster::worker {

struct OtlpTarget {
  std::string host;
  std::string port;
  std::string path;                            // "/v1/logs"
  std::map<std::string, std::string> headers;  // for each request
};

// Parses `endpoint` (a collector's base URL, "http://127.0.0.1:4318") and `headers`
// (OTEL_EXPORTER_OTLP_HEADERS, "name=value,…", percent-encoded values). Returns InvalidArgument
// with the reason.
absl::StatusOr<OtlpTarget> otlp_target(const std::string& endpoint, const std::string& headers);

// Returns a request's body. Each record is a flat object with "message", "severity" and "unix_ns";
// its other members become attributes.
nlohmann::json otlp_body(const std::vector<nlohmann::json>& records, const std::string& worker);

struct OtlpOptions {
  int tries_max = 4;
  Duration first_pause = std::chrono::seconds(1);  // doubles with each retry
  Duration try_budget = std::chrono::seconds(10);
  size_t queue_bytes_max = 16 << 20;
};

class OtlpLogs {
 public:
  OtlpLogs(OtlpTarget target, std::string worker, OtlpOptions options = {});
  // Drops unsent records. Blocks for at most `try_budget`.
  ~OtlpLogs();
  OtlpLogs(const OtlpLogs&) = delete;
  OtlpLogs& operator=(const OtlpLogs&) = delete;

  // Queues records. Thread-safe; never blocks. Drops records that exceed the queue's bound.
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
  std::jthread thread_;  // last: ends before the members that it uses
};

}  // namespace muster::worker
