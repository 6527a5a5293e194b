// A client of the rendezvous store of the worker (common/job/rendezvous_wire.h).
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <string_view>

#include <absl/status/statusor.h>

namespace muster::trainer {

// A connection to the store, used by one thread at a time. Every call takes a bounded time. After
// any error except DeadlineExceeded the connection is unusable.
class RendezvousClient {
 public:
  // Connects to `address`, host:port. Retries until `timeout`, because the store may start later
  // than its clients. Returns Unavailable with the address.
  static absl::StatusOr<std::unique_ptr<RendezvousClient>> connect(
      const std::string& address, std::chrono::milliseconds timeout);
  ~RendezvousClient();
  RendezvousClient(const RendezvousClient&) = delete;
  RendezvousClient& operator=(const RendezvousClient&) = delete;

  // Stores the value of a key.
  absl::Status set(std::string_view key, std::string_view value);
  // Returns the value of a key. Blocks until the key is set; returns DeadlineExceeded after `wait`.
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
