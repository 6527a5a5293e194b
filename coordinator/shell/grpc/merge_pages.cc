#include "coordinator/shell/grpc/merge_pages.h"

#include <algorithm>

namespace muster::coordinator {

void merge_pages(std::vector<RankProgress>& pages, const std::vector<RankProgress>& later,
                 size_t size_max) {
  for (const RankProgress& page : later) {
    const auto known = std::ranges::find_if(pages, [&](const RankProgress& other) {
      return other.job == page.job && other.attempt == page.attempt && other.rank == page.rank;
    });
    if (known != pages.end()) {
      *known = page;
    } else if (pages.size() < size_max) {
      pages.push_back(page);
    }
  }
}

}  // namespace muster::coordinator
