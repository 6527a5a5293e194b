// Unix sockets through which processes of one host exchange file descriptors. Internal to comm.
#pragma once

#include <sys/types.h>

#include <string>
#include <utility>

#include <absl/status/statusor.h>

#include "common/time/time.h"

namespace muster::trainer {

// An owned file descriptor, closed by the destructor.
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

// Listens for connections from processes of the same host, network namespace and user. Its name is
// in Linux's abstract namespace: there is no file, and the kernel releases the name when the
// process ends for any reason.
class HostListener {
 public:
  // Listens under a new name.
  static absl::StatusOr<HostListener> open();

  const std::string& name() const { return name_; }
  const Descriptor& socket() const { return socket_; }  // becomes readable when a client connects
  // Accepts a pending connection of the same user, and closes connections of other users. Returns
  // an invalid descriptor if no connection is pending. Never blocks.
  Descriptor accept() const;

 private:
  HostListener(std::string name, Descriptor socket)
      : name_(std::move(name)), socket_(std::move(socket)) {}

  std::string name_;
  Descriptor socket_;
};

// Connects to the listener `name`. Returns DeadlineExceeded if it does not accept in time.
absl::StatusOr<Descriptor> connect_to_listener(const std::string& name, Instant deadline);

// A message: a number and a file descriptor. The receiver owns a duplicate of the sender's
// descriptor.
struct HostMessage {
  int32_t number = 0;
  Descriptor descriptor;
};
// Send and receive the first message of a connection. Neither call blocks: a connection always has
// room for one message, and the message is complete once the socket is readable. Return Unavailable
// if the other end has sent anything else or is closed.
absl::Status send_message(const Descriptor& socket, int32_t number, int descriptor);
absl::StatusOr<HostMessage> receive_message(const Descriptor& socket);

// Returns whether the other end is closed. The kernel closes the sockets of a process that is
// killed. Requires that the other end sends nothing.
bool is_closed(const Descriptor& socket);

}  // namespace muster::trainer
