#include "trainer_core/comm/collective_trace.h"

#include <absl/strings/str_cat.h>

#include "common/absl_view.h"
#include "common/time.h"

namespace muster::trainer {

uint64_t CollectiveTrace::begin(const Collective& collective, Instant now) {
  ++count_;
  running_ = static_cast<size_t>(collective.kind);
  if (page_ == nullptr) return count_;
  if (count_ == 1) page_group_ = page_->add_group(group_, members_, id_);
  return page_->begin_collective(page_group_, collective.kind, collective.name, collective.bytes,
                                 static_cast<uint32_t>(collective.dtype), now);
}

void CollectiveTrace::complete(uint64_t seq, Instant began) {
  const Instant now = monotonic_now();
  busy_ns_.fetch_add((now - began).count(), std::memory_order_relaxed);
  if (page_group_ >= 0) page_->complete_collective(page_group_, seq, now);
}

void CollectiveTrace::add_sent(uint64_t bytes, bool across_nodes) {
  sent_[running_].total.fetch_add(bytes, std::memory_order_relaxed);
  if (across_nodes) sent_[running_].across_nodes.fetch_add(bytes, std::memory_order_relaxed);
}

SentBytes CollectiveTrace::sent(CollectiveKind kind) const {
  const Counters& counters = sent_[static_cast<size_t>(kind)];
  return {counters.total.load(std::memory_order_relaxed),
          counters.across_nodes.load(std::memory_order_relaxed)};
}

absl::Status CollectiveTrace::explain(const absl::Status& status,
                                      const Collective& collective) const {
  return absl::Status(
      status.code(),
      absl::StrCat(av(collective_name(collective.kind)), " \"", av(collective.name), "\" (number ",
                   count_, " of group \"", group_, "\") failed: ", status.message()));
}

}  // namespace muster::trainer
