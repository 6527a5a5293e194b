#include "tests/unit/trainer_core/comm/store_server.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>

#include "common/job/rendezvous_wire.h"

namespace muster::trainer {
namespace {

bool read_all(int fd, char* out, size_t bytes) {
  while (bytes > 0) {
    const ssize_t got = recv(fd, out, bytes, 0);
    if (got <= 0) return false;
    out += got;
    bytes -= static_cast<size_t>(got);
  }
  return true;
}

}  // namespace

StoreServer::StoreServer() {
  listener_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof(address);
  if (bind(listener_, reinterpret_cast<sockaddr*>(&address), length) == 0 &&
      listen(listener_, 64) == 0) {
    getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &length);
    port_ = ntohs(address.sin_port);
  }
  acceptor_ = std::thread([this] { accept_loop(); });
}

StoreServer::~StoreServer() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    shutdown(listener_, SHUT_RDWR);
    for (const int fd : connections_) shutdown(fd, SHUT_RDWR);
    changed_.notify_all();
  }
  acceptor_.join();
  for (std::thread& server : servers_) server.join();
  close(listener_);
}

void StoreServer::accept_loop() {
  while (true) {
    const int fd = accept(listener_, nullptr, nullptr);
    if (fd < 0) return;
    const std::lock_guard lock(mutex_);
    connections_.push_back(fd);
    servers_.emplace_back([this, fd] { serve(fd); });
  }
}

void StoreServer::serve(int fd) {
  std::array<char, rendezvous::kRequestHeaderBytes> head{};
  while (read_all(fd, head.data(), head.size())) {
    const auto header = rendezvous::decode_request_header(head);
    if (!header.ok()) break;
    std::string key(header->key_bytes, '\0');
    std::string value(header->value_bytes, '\0');
    if (!read_all(fd, key.data(), key.size()) || !read_all(fd, value.data(), value.size())) break;
    const auto [ok, text] = answer(header->op == rendezvous::Op::kSet, key, value);
    const std::string frame = rendezvous::encode_response(ok, text);
    if (send(fd, frame.data(), frame.size(), MSG_NOSIGNAL) != static_cast<ssize_t>(frame.size()))
      break;
  }
  const std::lock_guard lock(mutex_);
  std::erase(connections_, fd);
  close(fd);
}

std::pair<bool, std::string> StoreServer::answer(bool set, const std::string& key,
                                                 const std::string& value) {
  std::unique_lock lock(mutex_);
  if (set) {
    values_[key] = value;
    changed_.notify_all();
    return {true, ""};
  }
  const auto wait = std::chrono::milliseconds(std::stoll(value));
  changed_.wait_for(lock, wait, [&] { return values_.contains(key) || stopping_; });
  const auto found = values_.find(key);
  if (found == values_.end()) return {false, "no " + key + " within " + value + " ms"};
  return {true, found->second};
}

}  // namespace muster::trainer
