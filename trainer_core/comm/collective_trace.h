// Publishes a process group's collectives on its rank's progress page, counts what they send and how long they take, and gives
// every failure its context.
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

// What the page and an error say of a collective.
struct Collective {
  CollectiveKind kind;
  std::string_view name;
  uint64_t bytes;  // of the data that this rank brings or gets
  DType dtype;
};

// One group on one rank. The page may be null; it outlives the trace. Used by the thread that calls the collectives; start() and complete()
// by one more, sent() and busy() by any.
//
// A page has kProgressGroupsMax places: the groups that communicate first have them, and collectives of later ones are not shown.
class CollectiveTrace {
 public:
  // `members` and `id` as the page has them.
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

  // The same in parts, for collectives that are done later than they are called, in the order of calls: the number of the next one, and
  // when it begins to move data, and how long it took.
  uint64_t enqueue(const Collective& collective) {
    return begin(collective, monotonic_now(), Starts::kLater);
  }
  void start(uint64_t seq);
  void complete(uint64_t seq, Duration took);
  absl::Status explain(const absl::Status& status, const Collective& collective,
                       uint64_t seq) const;

  // Called by the body of the collective that runs, or for the one that was enqueued last.
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
