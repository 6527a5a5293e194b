// Streams between workers and the coordinator. Each direction delivers messages in order after a
// delay, and sometimes delivers a message twice; stack reports are sometimes late. A stream can
// break at any time: messages in flight are lost, and each end detects the break independently. No
// message passes between a partitioned worker and the coordinator. If there are no other faults, a
// stream stays silent after a partition for up to the partition's length, as TCP repeats packets
// ever more seldom; a new one does not.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <utility>

#include "common/time/time.h"
#include "tests/simulation/scheduler.h"

namespace muster::simulation {

using StreamId = uint64_t;
constexpr StreamId kNoStream = 0;

class FakeNetwork {
 public:
  struct End {
    std::function<void(StreamId)> on_broken;
  };

  FakeNetwork(Scheduler& scheduler, Random& random) : scheduler_(scheduler), random_(random) {}

  StreamId open(int host, End worker, End coordinator);
  bool is_partitioned(int host) const;
  void partition(int host, Duration time);
  // Returns whether a message to the coordinator has waited for `time` because of a partition.
  bool is_unanswered(StreamId id, Duration time) const;
  void end_partitions();
  // Cuts the link between two hosts: their ranks cannot reach each other, and the coordinator can
  // reach both.
  void cut_link(int a, int b, Duration time);
  bool has_cut_links() const { return !links_.empty(); }
  bool is_link_cut(int a, int b) const { return time_of_cut(a, b).has_value(); }
  // Returns for how long the link has been cut; nullopt if it is not.
  std::optional<Duration> time_of_cut(int a, int b) const;
  // Returns the longest time for which the link was cut so far.
  Duration longest_cut(int a, int b) const;
  void stop_faults() { faultless_ = true; }

  // Send a message, which is delivered unless the stream breaks first. `may_lag`: later messages
  // may overtake this message.
  void to_coordinator(StreamId id, bool may_lag, std::function<void()> deliver);
  void to_worker(StreamId id, std::function<void()> deliver);

  // Returns whether messages to the coordinator are on their way. Messages of a partitioned host
  // are not, and neither are those that wait until TCP repeats them: they have not left the host.
  bool has_undelivered(StreamId id) const;

  // Close one end: this end receives no further message, and the other end is notified.
  void worker_closes(StreamId id);
  void coordinator_closes(StreamId id, std::function<void()> notify_worker);
  // Breaks the stream: both ends are notified, at separate times.
  void cut(StreamId id);
  void cut_one_of(int host);

 private:
  struct Stream {
    int host = 0;
    End worker, coordinator;
    bool worker_open = true, coordinator_open = true, intact = true;
    Instant last_to_coordinator{}, last_to_worker{};
    int undelivered = 0;                 // messages to the coordinator
    std::optional<Instant> waits_since;  // the first one that a partition delays
    Instant silent_until{};              // the end of TCP's wait after a partition
  };

  Stream* find(StreamId id);
  Instant arrival(const Stream& stream, Instant not_before);
  void notice(StreamId id, bool worker_side, Duration delay);

  Scheduler& scheduler_;
  Random& random_;
  bool faultless_ = false;
  StreamId next_ = 1;
  std::map<StreamId, Stream> streams_;
  std::map<int, Instant> partitioned_until_;
  struct LinkCut {
    Instant since{}, until{};
    Duration longest{};  // the longest earlier cut
  };
  std::map<std::pair<int, int>, LinkCut> links_;
};

}  // namespace muster::simulation
