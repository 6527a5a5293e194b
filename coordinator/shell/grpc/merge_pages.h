// Heartbeats of one stream that the core loop has not taken yet, as one heartbeat.
#pragma once

#include <cstddef>
#include <vector>

#include "coordinator/core/event.h"

namespace muster::coordinator {

// Adds the pages of a later heartbeat to those of earlier ones. A heartbeat lists only ranks whose
// values have changed, and pages are cumulative, so the newest page of each rank replaces earlier
// ones. Drops pages of further ranks when `pages` has `size_max` elements.
void merge_pages(std::vector<RankProgress>& pages, const std::vector<RankProgress>& later,
                 size_t size_max);

}  // namespace muster::coordinator
