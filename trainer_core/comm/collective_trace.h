// Publishes a process group's collectives on its rank's progress page, counts what they send and
// how long they take, and gives every failure its context.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include <absl/status/status.h>

#include "common/progress_page.h"
#include "common/time.h"
#include "trainer_core/comm/comm.h"

namespace muster::trainer {

// Describes a collective on the progress page and in error messages.
struct Collective {
  CollectiveKind kind;
  std::string_view name;
  uint64_t bytes;  // this rank's input or output
  DType dtype;
};

// Traces one group on one rank. `page` may be null and must outlive the trace. Called on the thread
// that calls the collectives, except: start() and complete() may be called on one other thread,
// sent() and busy() on any.
//
// The page shows at most kProgressGroupsMax groups, in the order of their first collective.
// Collectives of later groups are not shown.
class CollectiveTrace {
 public:
  // `members` and `id` are the page's fields of the same names.
  CollectiveTrace(ProgressWriter* page, std::string group, uint32_t members, uint32_t id)
      : page_(page), group_(std::move(group)), members_(members), id_(id) {}

  const std::string& group() const { return group_; }

  // Runs `body` (which returns absl::Status) between the two records. A failed collective stays
  // open on the page: that is where the rank was.
  template <class Body>
  absl::Status run(const Collective& collective, Body&& body) {
    const Instant began = monotonic_now();
    const uint64_t seq = begin(collective, began, Starts::kNow);
    const absl::Status status = std::forward<Body>(body)();
    if (!status.ok()) return explain(status, collective, seq);
    complete(seq, monotonic_now() - began);
    return status;
  }

  // Asynchronous form of run(), for collectives that complete after the call returns, in the order
  // of calls. enqueue() returns the sequence number; start() marks the beginning of the transfer,
  // complete() its end and duration.
  uint64_t enqueue(const Collective& collective) {
    return begin(collective, monotonic_now(), Starts::kLater);
  }
  void start(uint64_t seq);
  void complete(uint64_t seq, Duration took);
  absl::Status explain(const absl::Status& status, const Collective& collective,
                       uint64_t seq) const;

  // Called by the body of the current collective, or for the collective that was enqueued last.
  void add_sent(uint64_t bytes, bool across_nodes);
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
  size_t running_ = 0;  // the kind of the collective that was called last
  std::array<Counters, kKinds> sent_;
  std::atomic<int64_t> busy_ns_{0};  // in collectives that are complete
};

}  // namespace muster::trainer
