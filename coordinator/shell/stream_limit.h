// Limits the number of open WatchJob and FollowLogs calls: each holds memory as long as its caller
// likes. Thread-safe.
#pragma once

#include <atomic>
#include <memory>

#include <absl/status/status.h>
#include <absl/strings/str_cat.h>

namespace muster::coordinator {

// A job's config may have 1 MiB, and a stream whose caller does not read holds two jobs: 1 GiB in
// the worst case, some MiB with usual configs.
constexpr int kStreamsMax = 512;

// One open stream, counted until the ticket's last copy is destroyed; null: the limit is reached.
using StreamTicket = std::shared_ptr<void>;

class StreamLimit {
 public:
  StreamTicket take() {
    // The count outlives this object: gRPC destroys the last streams after the service.
    std::shared_ptr<std::atomic<int>> open = open_;
    if (++*open > kStreamsMax) {
      --*open;
      return nullptr;
    }
    return {open.get(), [open](void*) { --*open; }};
  }

  static absl::Status refusal() {
    return absl::ResourceExhaustedError(
        absl::StrCat(kStreamsMax,
                     " calls of WatchJob and FollowLogs are open, which is the most: "
                     "end some, or ask again later"));
  }

 private:
  std::shared_ptr<std::atomic<int>> open_ = std::make_shared<std::atomic<int>>(0);
};

}  // namespace muster::coordinator
