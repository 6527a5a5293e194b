#include "tests/unit/coordinator/shell/etcd/lossy_link.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <list>
#include <string_view>
#include <utility>
#include <vector>

namespace muster::coordinator {
namespace {

constexpr int kPollMs = 20;
// etcd executes a request in less time, usually. If it does not, the request was not executed,
// which is another case that callers must bear.
constexpr auto kExecution = std::chrono::milliseconds(300);

sockaddr_in loopback(int port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

bool send_all(int fd, const char* bytes, ssize_t size) {
  while (size > 0) {
    const ssize_t sent = send(fd, bytes, static_cast<size_t>(size), MSG_NOSIGNAL);
    if (sent <= 0) return false;
    bytes += sent;
    size -= sent;
  }
  return true;
}

}  // namespace

struct LossyLink::Pair {
  int client = -1;
  int server = -1;
  // The held request, and what the client has sent after it.
  std::string held;
  std::string rest;
  bool is_held = false;
  bool is_delivered = false;
};

LossyLink::LossyLink(int to) : to_(to), listener_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  sockaddr_in address = loopback(0);
  socklen_t size = sizeof(address);
  bind(listener_, reinterpret_cast<const sockaddr*>(&address), size);
  getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size);
  port_ = ntohs(address.sin_port);
  listen(listener_, 8);
  thread_ = std::thread([this] { run(); });
}

LossyLink::~LossyLink() {
  ended_ = true;
  thread_.join();
  close(listener_);
}

std::string LossyLink::endpoint() const { return "http://127.0.0.1:" + std::to_string(port_); }

void LossyLink::hold(std::string needle, int occurrence) {
  const std::lock_guard lock(mutex_);
  needle_ = std::move(needle);
  occurrence_ = occurrence;
  state_ = Hold::kArmed;
}

void LossyLink::release() {
  state_ = Hold::kReleased;
  while (state_ != Hold::kAnswered) std::this_thread::sleep_for(std::chrono::milliseconds(kPollMs));
}

// Returns whether the bytes, which a client has sent, are held.
bool LossyLink::hold_back(Pair& pair, const char* bytes, int64_t size) {
  const std::string_view chunk(bytes, static_cast<size_t>(size));
  if (pair.is_held) {
    pair.rest += chunk;
    return true;
  }
  if (state_ != Hold::kArmed) return false;
  const std::lock_guard lock(mutex_);
  if (chunk.find(needle_) == std::string_view::npos || --occurrence_ > 0) return false;
  pair.is_held = true;
  pair.held = chunk;
  state_ = Hold::kHolding;
  return true;
}

// Forwards what a released connection has held; returns false if the connection is to be closed.
bool LossyLink::deliver(Pair& pair) {
  if (pair.is_delivered) return true;
  pair.is_delivered = true;
  return send_all(pair.server, pair.held.data(), std::ssize(pair.held));
}

// Relays what has arrived; returns false if the connection is to be closed.
bool LossyLink::relay(Pair& pair, bool from_client) {
  char buffer[16'384];
  const ssize_t size = recv(from_client ? pair.client : pair.server, buffer, sizeof(buffer), 0);
  if (size <= 0) return false;
  if (!from_client && pair.is_delivered) {
    pair.is_held = pair.is_delivered = false;
    state_ = Hold::kAnswered;
    if (!send_all(pair.server, pair.rest.data(), std::ssize(pair.rest))) return false;
  }
  if (!from_client) {
    std::this_thread::sleep_for(
        std::chrono::duration<double>(static_cast<double>(size) / bytes_per_second_));
    return bytes_left_ <= 0 || send_all(pair.client, buffer, size);
  }
  if (hold_back(pair, buffer, size)) return true;
  const ssize_t part = static_cast<ssize_t>(std::min<int64_t>(size, bytes_left_));
  bytes_left_ -= part;
  if (!send_all(pair.server, buffer, part)) return false;
  if ((lose_after_ -= part) > 0) return true;
  std::this_thread::sleep_for(kExecution);
  lose_after_ = INT64_MAX;
  has_lost_ = true;
  return false;
}

void LossyLink::run() {
  std::list<Pair> pairs;
  while (!ended_) {
    std::vector<pollfd> ready = {{listener_, POLLIN, 0}};
    for (const Pair& pair : pairs) {
      ready.push_back({pair.client, POLLIN, 0});
      ready.push_back({pair.server, POLLIN, 0});
    }
    if (state_ == Hold::kReleased) {
      for (Pair& pair : pairs)
        if (pair.is_held && !deliver(pair)) shutdown(pair.server, SHUT_RDWR);
    }
    if (poll(ready.data(), ready.size(), kPollMs) <= 0) continue;
    size_t index = 1;
    for (auto pair = pairs.begin(); pair != pairs.end(); index += 2) {
      const bool open = (ready[index].revents == 0 || relay(*pair, true)) &&
                        (ready[index + 1].revents == 0 || relay(*pair, false));
      if (!open) {
        close(pair->client);
        close(pair->server);
      }
      pair = open ? std::next(pair) : pairs.erase(pair);
    }
    if (ready[0].revents == 0) continue;
    Pair pair;
    pair.client = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
    pair.server = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const sockaddr_in address = loopback(to_);
    if (bytes_left_ > 0 &&
        connect(pair.server, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0) {
      pairs.push_back(pair);
    } else {
      close(pair.client);
      close(pair.server);
    }
  }
  for (const Pair& pair : pairs) {
    close(pair.client);
    close(pair.server);
  }
}

}  // namespace muster::coordinator
