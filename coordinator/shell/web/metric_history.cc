#include "coordinator/shell/web/metric_history.h"

#include <algorithm>

namespace muster::coordinator {

bool MetricHistory::add(const MetricPoint& point) {
  const bool is_known = !recent_.empty() && recent_.back().attempt == point.attempt &&
                        recent_.back().step == point.step;
  if (is_known || point.step < 0) return false;
  recent_.push_back(point);
  if (recent_.size() <= kRecentPoints) return true;
  if (dropped_++ % stride_ == 0) old_.push_back(recent_.front());
  recent_.pop_front();
  if (old_.size() < kOldPoints) return true;
  for (size_t i = 0; 2 * i < old_.size(); ++i) old_[i] = old_[2 * i];
  old_.resize(old_.size() / 2);
  stride_ *= 2;
  return true;
}

std::vector<MetricPoint> MetricHistory::since(int64_t unix_ns) const {
  std::vector<MetricPoint> points;
  const auto add_later = [&](const auto& from) {
    std::copy_if(from.begin(), from.end(), std::back_inserter(points),
                 [&](const MetricPoint& point) { return point.unix_ns > unix_ns; });
  };
  add_later(old_);
  add_later(recent_);
  return points;
}

}  // namespace muster::coordinator
