// Publishes the collectives of a process group on the rank's progress page, counts the bytes that
// they send and the time that they take, and adds context to every failure.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include <absl/status/status.h>

#include "common/progress/progress_page.h"
#include "common/time/time.h"
#include "trainer_core/comm/comm.h"

namespace muster::trainer {

// The description of a collective for the progress page and error messages.
struct Collective {
  CollectiveKind kind;
  std::string_view name;
  uint64_t bytes;  // bytes of this rank's input or output
  DType dtype;
};

// The trace of one group on one rank. Called on the thread that calls the collectives, with these
// exceptions: start() and complete() may be called on one other thread, sent() and busy() on any
// thread.
//
// The page shows at most kProgressGroupsMax groups, in the order of their first collectives.
// Collectives of further groups are not shown.
class CollectiveTrace {
 public:
  // `page` may be null and must outlive the trace. `members` and `id` are the fields of these names
  // on the page.
  CollectiveTrace(ProgressWriter* page, std::string group, uint32_t members, uint32_t id)
      : page_(page), group_(std::move(group)), members_(members), id_(id) {}

  const std::string& group() const { return group_; }

  // Publishes the start of the collective, runs `body`, which returns an absl::Status, and
  // publishes its end. A failed collective remains open on the page, to show where the rank has
  // stopped.
  template <class Body>
  absl::Status run(const Collective& collective, Body&& body) {
    const Instant began = monotonic_now();
    const uint64_t seq = begin(collective, began, Starts::kNow);
    const absl::Status status = std::forward<Body>(body)();
    if (!status.ok()) return explain(status, collective, seq);
    complete(seq, monotonic_now() - began);
    return status;
  }

  // enqueue(), start() and complete() are the asynchronous form of run(), for collectives that
  // complete after the call has returned, in the order of the calls. enqueue() returns the sequence
  // number of the collective. start() publishes that the transfer has begun. complete() publishes
  // that it has ended and has taken `took`.
  uint64_t enqueue(const Collective& collective) {
    return begin(collective, monotonic_now(), Starts::kLater);
  }
  // See enqueue().
  void start(uint64_t seq);
  void complete(uint64_t seq, Duration took);
  // Returns `status` with the group, the collective and its sequence number added to the message.
  absl::Status explain(const absl::Status& status, const Collective& collective,
                       uint64_t seq) const;

  // Adds bytes that this rank has sent in the current collective, or in the one that was enqueued
  // last.
  void add_sent(uint64_t bytes, bool across_nodes);
  // Return the bytes sent in collectives of a kind, and the time spent in completed collectives.
  SentBytes sent(CollectiveKind kind) const;
  Duration busy() const { return Duration(busy_ns_.load(std::memory_order_relaxed)); }

 private:
  struct Counters {
    std::atomic<uint64_t> total{0};
    std::atomic<uint64_t> across_nodes{0};
  };
  static constexpr size_t kKinds = static_cast<size_t>(CollectiveKind::kSendRecv) + 1;

  enum class Starts : uint8_t { kNow, kLater };
  uint64_t begin(const Collective& collective, Instant now, Starts starts);

  ProgressWriter* page_;
  std::string group_;
  uint32_t members_;
  uint32_t id_;
  int page_group_ = -1;
  uint64_t count_ = 0;
  size_t running_ = 0;  // the kind of the last collective, as an index
  std::array<Counters, kKinds> sent_;
  std::atomic<int64_t> busy_ns_{0};  // time in completed collectives
};

}  // namespace muster::trainer
