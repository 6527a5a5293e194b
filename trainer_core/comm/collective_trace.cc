#include "trainer_core/comm/collective_trace.h"

#include <array>

#include <absl/strings/str_cat.h>

#include "common/absl_view.h"
#include "common/time.h"
#include "trainer_core/base/dtype.h"

namespace muster::trainer {
namespace {

constexpr std::array<std::string_view, 9> kNames = {"none",           "all-reduce", "all-gather",
                                                    "reduce-scatter", "all-to-all", "broadcast",
                                                    "send",           "recv",       "barrier"};

}  // namespace

std::string_view collective_name(CollectiveKind kind) {
  const auto index = static_cast<size_t>(kind);
  return index < kNames.size() ? kNames[index] : "unknown";
}

CollectiveTrace::CollectiveTrace(ProgressWriter* page, std::string group)
    : page_(page), group_(std::move(group)) {
  if (page_ != nullptr) page_group_ = page_->add_group(group_);
}

uint64_t CollectiveTrace::begin(CollectiveKind kind, std::string_view name, uint64_t bytes) {
  ++count_;
  if (page_group_ < 0) return count_;
  return page_->begin_collective(page_group_, kind, name, bytes, static_cast<uint32_t>(DType::kF32),
                                 monotonic_now());
}

void CollectiveTrace::complete(uint64_t seq) {
  if (page_group_ >= 0) page_->complete_collective(page_group_, seq, monotonic_now());
}

absl::Status CollectiveTrace::explain(const absl::Status& status, CollectiveKind kind,
                                      std::string_view name) const {
  return absl::Status(
      status.code(), absl::StrCat(av(collective_name(kind)), " \"", av(name), "\" (number ", count_,
                                  " of group \"", group_, "\") failed: ", status.message()));
}

}  // namespace muster::trainer
