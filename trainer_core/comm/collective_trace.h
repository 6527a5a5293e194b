// Publishes a process group's collectives on its rank's progress page, and gives every failure its
// context.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include <absl/status/status.h>

#include "common/progress_page.h"

namespace muster::trainer {

// "all-reduce" for kAllReduce.
std::string_view collective_name(CollectiveKind kind);

// One group on one rank. The page may be null; it outlives the trace. Used by the thread that calls
// the collectives.
class CollectiveTrace {
 public:
  CollectiveTrace(ProgressWriter* page, std::string group);

  // Runs `body` (which returns absl::Status) between the two records. A failed collective stays
  // open on the page: that is where the rank was.
  template <class Body>
  absl::Status run(CollectiveKind kind, std::string_view name, uint64_t bytes, Body&& body) {
    const uint64_t seq = begin(kind, name, bytes);
    const absl::Status status = std::forward<Body>(body)();
    if (!status.ok()) return explain(status, kind, name);
    complete(seq);
    return status;
  }

 private:
  uint64_t begin(CollectiveKind kind, std::string_view name, uint64_t bytes);
  void complete(uint64_t seq);
  absl::Status explain(const absl::Status& status, CollectiveKind kind,
                       std::string_view name) const;

  ProgressWriter* page_;
  std::string group_;
  int page_group_ = -1;
  uint64_t count_ = 0;
};

}  // namespace muster::trainer
