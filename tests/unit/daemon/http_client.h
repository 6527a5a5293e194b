// A client that sends any bytes to a server in this process.
#pragma once

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <filesystem>
#include <string>

#include <boost/asio/buffer.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/write.hpp>
#include <gtest/gtest.h>

namespace muster::daemon {

using boost::asio::ip::tcp;

class Client {
 public:
  explicit Client(int port) {
    socket_.connect({boost::asio::ip::address_v4::loopback(), static_cast<uint16_t>(port)});
  }

  void send(const std::string& text) {
    boost::system::error_code ignored;  // the server may have answered and closed already
    boost::asio::write(socket_, boost::asio::buffer(text), ignored);
  }

  // Returns everything until the server closes.
  std::string receive() {
    std::string text;
    boost::system::error_code error;
    boost::asio::read(socket_, boost::asio::dynamic_buffer(text), error);
    return text;
  }
  // Returns up to `bytes` bytes, or less at the end.
  std::string receive(size_t bytes) {
    std::string text;
    boost::system::error_code error;
    boost::asio::read(socket_, boost::asio::dynamic_buffer(text, bytes), error);
    return text;
  }
  // Returns the option of the server's end of the connection, which is in this process; -1 if there
  // is none.
  int option_of_server(int level, int name) {
    const auto own = socket_.local_endpoint();
    for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
      const int fd = std::stoi(entry.path().filename());
      sockaddr_in peer{};
      socklen_t bytes = sizeof(peer);
      if (getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &bytes) != 0) continue;
      if (peer.sin_family != AF_INET || ntohs(peer.sin_port) != own.port()) continue;
      int value = -1;
      bytes = sizeof(value);
      EXPECT_EQ(getsockopt(fd, level, name, &value, &bytes), 0);
      return value;
    }
    return -1;
  }

 private:
  boost::asio::io_context context_;
  tcp::socket socket_{context_};
};

}  // namespace muster::daemon
