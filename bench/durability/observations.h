// The observations of callers and workers, independent of the coordinator's runs. Collects
// violations of the coordinator's durability.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "muster/v1/muster.pb.h"

namespace muster::bench {

struct LaunchedRank {
  uint64_t job = 0;
  uint32_t attempt = 0;
  int32_t rank = 0;
  auto operator<=>(const LaunchedRank&) const = default;
};

// Thread-safe.
class Observations {
 public:
  // A rank was started on a worker, and ended there by itself: `well` with code 0.
  void started(const LaunchedRank& rank, const std::string& worker);
  void ended(const LaunchedRank& rank, bool well);
  // A running rank was stopped by an order.
  void stopped(const LaunchedRank& rank);
  // A submission was confirmed. Requires that each confirmation of a request names the same job.
  void confirmed(const std::string& request_id, uint64_t job);
  void request_cancel(uint64_t job);
  // The coordinator's answer about a confirmed job. Returns whether the job has ended.
  bool observed(const v1::Job& job);
  // The coordinator has no record of a confirmed job whose end no caller has observed.
  void missed(uint64_t job);
  // A stream's epoch, which increases with each run of the coordinator.
  void epoch(uint64_t epoch);
  void violate(std::string text);
  // Counts an event of the load, for the results.
  void count(const std::string& what);

  std::vector<std::string> violations();
  // Returns the counts as one JSON object.
  std::string report();

 private:
  void violate_locked(std::string text);

  std::mutex mutex_;
  struct JobObservations {
    std::map<LaunchedRank, std::string> started;  // by worker
    std::set<LaunchedRank> running;
    std::set<LaunchedRank> well;  // ended with code 0
    uint32_t newest_attempt = 0;
    std::set<uint32_t> faulty;  // attempts with a rank that died by itself
    bool cancelled = false;
    int state = 0;  // terminal state that a caller has observed; 0: none
  };
  std::map<uint64_t, JobObservations> jobs_;
  std::map<std::string, uint64_t> job_of_request_;
  std::map<uint64_t, std::string> request_of_job_;
  uint64_t newest_epoch_ = 0;
  std::map<std::string, int64_t> counts_;
  std::vector<std::string> violations_;
};

}  // namespace muster::bench
