// One round of messages between the ranks of a Gloo context: what every collective of the `gloo`
// backend is made of. Internal to comm.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include <absl/status/status.h>
#include <gloo/context.h>
#include <gloo/transport/unbound_buffer.h>

namespace muster::trainer {

struct OutgoingPart {
  int peer;
  const float* data;
  size_t count;  // 0: nothing is sent
};
struct IncomingPart {
  int peer;
  float* data;
  size_t count;
};

// One thread runs rounds; any thread may abort.
class GlooExchange {
 public:
  GlooExchange(std::shared_ptr<gloo::Context> context, std::chrono::milliseconds timeout)
      : context_(std::move(context)), timeout_(timeout) {}

  // Sends and receives all parts; `slot` is the same number on both sides and never used twice. The
  // failure of one part closes every connection, so that the peers learn of it at once instead of
  // at their timeout. Unavailable names the peers whose connection is lost, DeadlineExceeded those
  // that sent nothing.
  absl::Status run(uint64_t slot, const std::vector<OutgoingPart>& out,
                   const std::vector<IncomingPart>& in);
  void abort();

 private:
  using Buffers = std::vector<std::unique_ptr<gloo::transport::UnboundBuffer>>;

  absl::Status post(uint64_t slot, const std::vector<OutgoingPart>& out,
                    const std::vector<IncomingPart>& in);
  absl::Status wait_all(Buffers& sends, Buffers& receives, const std::vector<OutgoingPart>& out,
                        const std::vector<IncomingPart>& in);
  absl::Status explain_failure(Buffers& receives, const std::vector<IncomingPart>& in, size_t first,
                               const char* error);
  void close();

  std::shared_ptr<gloo::Context> context_;
  std::chrono::milliseconds timeout_;
  std::atomic<bool> aborted_{false};
  bool closed_ = false;
  std::mutex mutex_;  // guards the two lists against abort()
  Buffers sends_;
  Buffers receives_;
};

}  // namespace muster::trainer
