// Unix sockets between the processes of one host, and descriptors passed through them. Internal to comm.
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

// A socket that others of this host, this network namespace and this user may connect to. It has no file: the kernel forgets its
// name with the process, however that ends.
class HostListener {
 public:
  static absl::StatusOr<HostListener> open();

  const std::string& name() const { return name_; }
  const Descriptor& socket() const { return socket_; }  // readable where somebody has connected
  // A connection that waits, if it is this user's; another's is closed. Not valid: there is none. Never blocks.
  Descriptor accept() const;

 private:
  HostListener(std::string name, Descriptor socket)
      : name_(std::move(name)), socket_(std::move(socket)) {}

  std::string name_;
  Descriptor socket_;
};

// DeadlineExceeded where the listener does not get to it in time.
absl::StatusOr<Descriptor> connect_to_listener(const std::string& name, Instant deadline);

// A number and a descriptor, which arrives as one of the receiver's own. Neither call blocks: there is room for a connection's first
// message, and it is received whole when the socket is readable. Unavailable where the other end says anything else, or has closed.
struct HostMessage {
  int32_t number = 0;
  Descriptor descriptor;
};
absl::Status send_message(const Descriptor& socket, int32_t number, int descriptor);
absl::StatusOr<HostMessage> receive_message(const Descriptor& socket);

// Whether the other end is closed, which the kernel does for a process that was killed. The other end sends nothing.
bool is_closed(const Descriptor& socket);

}  // namespace muster::trainer
