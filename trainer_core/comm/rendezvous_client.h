// A client of the worker's rendezvous store (common/rendezvous_wire.h).
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <string_view>

#include <absl/status/statusor.h>

namespace muster::trainer {

// One connection, used by one thread at a time. Every call is bounded. After any error except
// DeadlineExceeded the connection is unusable.
class RendezvousClient {
 public:
  // `address` is host:port. Retries until `timeout`, because the store may start a moment later.
  // Unavailable names the address.
  static absl::StatusOr<std::unique_ptr<RendezvousClient>> connect(
      const std::string& address, std::chrono::milliseconds timeout);
  ~RendezvousClient();
  RendezvousClient(const RendezvousClient&) = delete;
  RendezvousClient& operator=(const RendezvousClient&) = delete;

  absl::Status set(std::string_view key, std::string_view value);
  // Returns DeadlineExceeded if the key is not set in time.
  absl::StatusOr<std::string> get(std::string_view key, std::chrono::milliseconds wait);

 private:
  RendezvousClient(std::string address, int fd) : address_(std::move(address)), fd_(fd) {}

  absl::StatusOr<std::string> exchange(std::string_view frame, std::chrono::milliseconds wait,
                                       bool* accepted);
  absl::Status write_all(std::string_view bytes);
  absl::Status read_all(char* out, size_t bytes, std::chrono::milliseconds wait);

  std::string address_;
  int fd_;  // owned
};

}  // namespace muster::trainer
