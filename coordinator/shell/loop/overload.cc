#include "coordinator/shell/loop/overload.h"

#include <absl/strings/str_cat.h>
#include <spdlog/spdlog.h>

namespace muster::coordinator {

bool Overload::observe(Duration lag, Instant now) {
  const std::lock_guard lock(mutex_);
  if (lag >= limit_) late_at_ = now;
  if (!is_overloaded_ && lag >= limit_) {
    is_overloaded_ = true;
    spdlog::warn(
        "the coordinator is overloaded: it handles events {} s late, and refuses to list jobs, "
        "workers, incidents and logs",
        to_seconds(lag));
  } else if (is_overloaded_ && now - late_at_ >= calm_) {
    is_overloaded_ = false;
    spdlog::info("the coordinator is no longer overloaded");
  }
  return is_overloaded_;
}

absl::Status Overload::refusal() const {
  return absl::ResourceExhaustedError(absl::StrCat(
      "the coordinator is overloaded: it handles events more than ", to_seconds(limit_),
      " s late, and shows nothing until it has caught up; "
      "workers, submissions and cancellations are served; try again in ",
      to_seconds(calm_), " s"));
}

}  // namespace muster::coordinator
