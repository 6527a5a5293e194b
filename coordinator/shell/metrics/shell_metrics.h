// Metrics of the coordinator itself: its core loop, storage and disk, RPCs, streams and process.
// They do not depend on the core's state, so there is a page of them also while the loop is late.
//
// Thread-safe, except the functions of the loop, which only its thread may call. Streams own the
// object jointly, because gRPC destroys the last of them after the server. An event costs 40 ns; a
// scrape is the only other thread that takes its locks.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include <absl/status/status.h>
#include <prometheus/counter.h>
#include <prometheus/family.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>

#include "common/job/ids.h"
#include "common/time/time.h"
#include "coordinator/core/event.h"
#include "coordinator/shell/metrics/process_metrics.h"

namespace muster::coordinator {

// The state of the core loop at a scrape.
struct LoopLoad {
  // events that wait or are handled
  size_t queued = 0;
  // zero: the loop waits for events
  Duration oldest_event_age{};
  // false while the loop is stuck, or waits for space for the state
  bool decides = false;
  // reads are refused
  bool overloaded = false;
};

enum class Registration { kNew, kReconnected, kRefused };

class ShellMetrics {
 public:
  ShellMetrics();

  // The core loop's thread calls these functions. `lag`: the time from the event's arrival.
  void count_event(const Event& event, Duration lag);
  void count_transaction(Duration time);
  void count_failed_transaction(const absl::Status& status);
  void count_registration(Registration registration);

  // `method`: a constant ("GetJob"), because each value is a series.
  void count_rpc(std::string_view method, const absl::Status& status);
  void time_rpc(std::string_view method, Duration time);
  prometheus::Gauge& open_streams(std::string_view method);
  // Counts a read that was refused because the loop is late.
  void count_shed(std::string_view method);

  // Counts a line of the audit log that could not be written.
  void count_lost_audit() { lost_audit_.Increment(); }

  // Shows whether the file of --queue-policy is valid, or none is given.
  void show_policy(bool is_valid) { policy_valid_.Set(is_valid ? 1 : 0); }

  // Shows the size and the free space of the disk of `state_dir`, as of this call and of later
  // calls of read_disk(). Both may block on the file system.
  void show_disk(const std::string& state_dir);
  void read_disk();
  // Shows that this coordinator holds the state, as its run `epoch`.
  void begin_epoch(Epoch epoch);

  // Returns the page in Prometheus' text format.
  std::string render(const LoopLoad& load);

 private:
  using Counters = prometheus::Family<prometheus::Counter>;
  using Histograms = prometheus::Family<prometheus::Histogram>;

  prometheus::Registry registry_;
  prometheus::Histogram& lag_;
  prometheus::Gauge& oldest_event_age_;
  prometheus::Gauge& queue_length_;
  std::array<prometheus::Counter*, std::variant_size_v<Event>> events_{};  // in the registry
  prometheus::Histogram& transactions_;
  Counters& failed_transactions_;
  Counters& registrations_;
  Counters& rpcs_;
  Histograms& rpc_seconds_;
  prometheus::Family<prometheus::Gauge>& streams_;
  prometheus::Family<prometheus::Gauge>& disk_bytes_;
  prometheus::Family<prometheus::Gauge>& disk_free_;
  prometheus::Family<prometheus::Gauge>& epoch_;
  prometheus::Gauge& leader_;
  prometheus::Gauge& overloaded_;
  Counters& shed_;
  prometheus::Gauge& policy_valid_;
  prometheus::Counter& lost_audit_;

  std::mutex mutex_;
  ProcessMetrics process_;  // guarded by mutex_
  std::string state_dir_;   // guarded by mutex_; empty: no disk is shown
};

// One open stream, counted from the construction of this object to its destruction.
class StreamCount {
 public:
  StreamCount(std::shared_ptr<ShellMetrics> metrics, std::string_view method)
      : metrics_(std::move(metrics)), method_(method) {
    metrics_->open_streams(method_).Increment();
  }
  ~StreamCount() { metrics_->open_streams(method_).Decrement(); }
  StreamCount(const StreamCount&) = delete;
  StreamCount& operator=(const StreamCount&) = delete;

  // Counts the stream's end. Call it once.
  void count_end(const absl::Status& status) const { metrics_->count_rpc(method_, status); }

 private:
  const std::shared_ptr<ShellMetrics> metrics_;
  const std::string_view method_;
};

}  // namespace muster::coordinator
