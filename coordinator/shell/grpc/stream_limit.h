// Limits the number of open WatchJob and FollowLogs calls: each occupies memory until its caller
// ends it. Thread-safe.
#pragma once

#include <atomic>
#include <memory>

#include <absl/status/status.h>
#include <absl/strings/str_cat.h>

namespace muster::coordinator {

// A job's config may have 1 MiB, and a stream whose caller does not read stores two copies of the
// job. The streams together take 1 GiB in the worst case, and some MiB with usual configs.
constexpr int kStreamsMax = 512;

// One open stream, which is counted until the last copy of its ticket is destroyed.
using StreamTicket = std::shared_ptr<void>;

class StreamLimit {
 public:
  // Returns a ticket for a new stream; null if the limit is reached.
  StreamTicket take() {
    // The count outlives this object: gRPC destroys the last streams after the service.
    std::shared_ptr<std::atomic<int>> open = open_;
    if (++*open > kStreamsMax) {
      --*open;
      return nullptr;
    }
    return {open.get(), [open](void*) { --*open; }};
  }

  // Returns the error for a stream beyond the limit.
  static absl::Status refusal() {
    return absl::ResourceExhaustedError(
        absl::StrCat(kStreamsMax,
                     " calls of WatchJob and FollowLogs are open, which is the limit: "
                     "end some, or try again later"));
  }

 private:
  std::shared_ptr<std::atomic<int>> open_ = std::make_shared<std::atomic<int>>(0);
};

}  // namespace muster::coordinator
