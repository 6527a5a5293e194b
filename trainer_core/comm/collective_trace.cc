#include "trainer_core/comm/collective_trace.h"

#include <absl/strings/str_cat.h>

#include "common/text/absl_view.h"
#include "common/time/time.h"

namespace muster::trainer {

uint64_t CollectiveTrace::begin(const Collective& collective, Instant now, Starts starts) {
  ++count_;
  running_ = static_cast<size_t>(collective.kind);
  if (page_ == nullptr) return count_;
  if (count_ == 1) page_group_ = page_->add_group(group_, members_, id_);
  const auto dtype = static_cast<uint32_t>(collective.dtype);
  if (starts == Starts::kNow) {
    page_->begin_collective(page_group_, collective.kind, collective.name, collective.bytes, dtype,
                            now);
  } else {
    page_->enqueue_collective(page_group_, collective.kind, collective.name, collective.bytes,
                              dtype, now);
  }
  return count_;  // equal to the number on the page, if the page shows the group
}

void CollectiveTrace::start(uint64_t seq) {
  if (page_group_ >= 0) page_->start_collective(page_group_, seq);
}

void CollectiveTrace::complete(uint64_t seq, Duration took) {
  busy_ns_.fetch_add(took.count(), std::memory_order_relaxed);
  if (page_group_ >= 0) page_->complete_collective(page_group_, seq, monotonic_now());
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

absl::Status CollectiveTrace::explain(const absl::Status& status, const Collective& collective,
                                      uint64_t seq) const {
  return absl::Status(
      status.code(),
      absl::StrCat(av(collective_name(collective.kind)), " \"", av(collective.name), "\" (number ",
                   seq, " of group \"", group_, "\") failed: ", status.message()));
}

}  // namespace muster::trainer
