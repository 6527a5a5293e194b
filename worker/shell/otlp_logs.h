// Log records to an OpenTelemetry collector, by OTLP/HTTP as JSON (opentelemetry.io/docs/specs/otlp). Never keeps anybody waiting: records
// wait in a bounded queue for a thread of their own, which asks a few times and then drops them and counts.
//
// Plain HTTP alone: a collector on this machine or in this network passes them on.
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
  std::map<std::string, std::string> headers;  // of each request
};

// `endpoint`: a collector's base, "http://127.0.0.1:4318". `headers`: OTEL_EXPORTER_OTLP_HEADERS, "name=value,…", values percent-encoded.
// InvalidArgument says what is wrong with them.
absl::StatusOr<OtlpTarget> otlp_target(const std::string& endpoint, const std::string& headers);

// A request's body. Each of `records` is a flat object with "message", "severity" and "unix_ns"; the rest become attributes.
nlohmann::json otlp_body(const std::vector<nlohmann::json>& records, const std::string& worker);

struct OtlpOptions {
  int tries_max = 4;
  Duration first_pause = std::chrono::seconds(1);  // doubles with each try
  Duration try_budget = std::chrono::seconds(10);
  size_t queue_bytes_max = 16 << 20;
};

class OtlpLogs {
 public:
  OtlpLogs(OtlpTarget target, std::string worker, OtlpOptions options = {});
  // Gives up what is not sent yet, within a try's budget.
  ~OtlpLogs();
  OtlpLogs(const OtlpLogs&) = delete;
  OtlpLogs& operator=(const OtlpLogs&) = delete;

  // Any thread; never waits. Records for which there is no room are dropped.
  void send(const std::vector<nlohmann::json>& records);
  // Records that were given up since the start.
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
  bool trouble_told_ = false;  // of the thread

  std::mutex mutex_;  // guards what follows
  std::condition_variable_any wake_;
  std::deque<Request> queue_;
  size_t queue_bytes_ = 0;
  std::jthread thread_;  // last: it ends before what it uses
};

}  // namespace muster::worker
