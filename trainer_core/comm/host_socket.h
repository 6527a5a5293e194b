// Unix sockets between the processes of one host, and descriptors passed through them. Internal to
// comm.
#pragma once

#include <sys/types.h>

#include <string>
#include <utility>

#include <absl/status/statusor.h>

#include "common/time.h"

namespace muster::trainer {

// An open descriptor, closed with the object.
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Descriptor();

  int get() const { return fd_; }
  bool valid() const { return fd_ >= 0; }

 private:
  int fd_ = -1;
};

// Listens for connections from processes of the same host, network namespace and user. Has no file:
// the kernel drops the name when the process ends, however that happens.
class HostListener {
 public:
  static absl::StatusOr<HostListener> open();

  const std::string& name() const { return name_; }
  const Descriptor& socket() const { return socket_; }  // readable once a client has connected
  // Accepts a pending connection of this user; closes those of other users. Returns an invalid
  // descriptor if none is pending. Never blocks.
  Descriptor accept() const;

 private:
  HostListener(std::string name, Descriptor socket)
      : name_(std::move(name)), socket_(std::move(socket)) {}

  std::string name_;
  Descriptor socket_;
};

// Returns DeadlineExceeded if the listener does not accept in time.
absl::StatusOr<Descriptor> connect_to_listener(const std::string& name, Instant deadline);

// A number and a descriptor, which arrives as the receiver's own. Neither call blocks: a connection
// has room for its first message, which is complete when the socket is readable. Unavailable if the
// other end sends anything else or has closed.
struct HostMessage {
  int32_t number = 0;
  Descriptor descriptor;
};
absl::Status send_message(const Descriptor& socket, int32_t number, int descriptor);
absl::StatusOr<HostMessage> receive_message(const Descriptor& socket);

// Returns whether the other end is closed, which the kernel does for a killed process. Requires
// that the other end sends nothing.
bool is_closed(const Descriptor& socket);

}  // namespace muster::trainer
