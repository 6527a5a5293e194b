// Samples the core's state for the page: keeps the curves of jobs and of the fleet, and sends what
// changed to all viewers as server-sent events.
//
// One thread samples at most once per second, and less often without viewers. Each message is made
// once for all viewers. Messages about the fleet are numbered, and the newest ones are stored, so
// that a viewer who was away for a moment receives what it missed instead of everything.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <absl/status/statusor.h>
#include <nlohmann/json.hpp>

#include "coordinator/shell/loop/core_loop.h"
#include "coordinator/shell/web/fleet_history.h"
#include "coordinator/shell/web/fleet_sample.h"
#include "daemon/http_message.h"

namespace muster::coordinator {

// Each viewer may occupy kUnsentBytesMax.
constexpr size_t kViewersMax = 128;

class EventHub {
 public:
  // Receives the object Fleet of the API, or an error. Called on the hub's thread.
  using FleetFn = std::function<void(const absl::StatusOr<nlohmann::json>& fleet)>;

  // Requires that `loop` outlives the hub.
  EventHub(CoreLoop& loop, Epoch epoch) : loop_(loop), epoch_(epoch) {}
  // Begins to sample. Call it once.
  void start();
  // Requires that the server has ended, and with it all streams.
  ~EventHub();

  // The methods below are thread-safe.

  // Passes on a state of the fleet that is at most a second old.
  void get_fleet(FleetFn done);
  // Returns the points of the job's curves after `unix_ns`, oldest first.
  std::vector<MetricPoint> metrics(JobId job, int64_t unix_ns) const;
  nlohmann::json fleet_history() const;

  // Returns a ticket for a viewer; null if there are kViewersMax.
  std::shared_ptr<void> take_ticket();
  // Begins a viewer's stream. `last_event_id`: that of the viewer's earlier stream; "" for none.
  // `job`: also sends the events of this job; 0: none. The viewer ends with the result.
  std::shared_ptr<daemon::HttpSource> open(std::shared_ptr<daemon::HttpSink> sink,
                                           std::shared_ptr<void> ticket,
                                           const std::string& last_event_id, JobId job);

 private:
  struct Viewer {
    std::shared_ptr<daemon::HttpSink> sink;
    std::string last_event_id;
    JobId job{0};
    bool is_new = true;
  };
  struct Message {
    uint64_t number = 0;
    std::shared_ptr<const std::string> text;
  };

  void run();
  bool is_asked_locked() const;
  bool is_due_locked(Instant now) const;
  Duration pause_locked() const;
  // Returns an error while the loop is late or stops.
  absl::StatusOr<FleetSample> take_sample();
  void store_locked(const FleetSample& sample);
  void publish_fleet_locked(const FleetSample& sample);
  void publish_jobs_locked(const FleetSample& sample);
  void welcome_locked(Viewer& viewer);
  std::shared_ptr<const std::string> snapshot_locked();
  void send_locked(JobId job, const std::shared_ptr<const std::string>& text);
  std::string message_id(uint64_t number) const;
  void remove(uint64_t viewer);

  CoreLoop& loop_;
  const Epoch epoch_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool stopping_ = false;
  std::map<uint64_t, Viewer> viewers_;
  uint64_t next_viewer_ = 1;
  std::vector<FleetFn> waiting_;
  std::map<JobId, MetricHistory> metrics_;
  FleetHistory history_;
  std::shared_ptr<std::atomic<size_t>> tickets_ = std::make_shared<std::atomic<size_t>>(0);

  // The state at the newest sample.
  nlohmann::json fleet_;  // null: there was no sample
  std::map<uint64_t, JobRow> rows_;
  bool has_more_jobs_ = false;
  int64_t ranks_ = 0;
  uint64_t number_ = 0;  // the number of the newest message about the fleet
  std::deque<Message> recent_;
  size_t recent_bytes_ = 0;
  std::shared_ptr<const std::string> snapshot_;  // null: the state has changed since
  std::map<JobId, std::shared_ptr<const std::string>> sent_jobs_;  // the newest of each watched job

  // Used on the hub's thread only.
  Instant sampled_at_{};
  Instant totals_at_{};
  // The least times between two samples, which follow their cost.
  Duration sample_pause_{};
  Duration totals_pause_{};

  std::thread thread_;
};

}  // namespace muster::coordinator
