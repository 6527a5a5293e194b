// Parts of tests of periodic stack traces.
#pragma once

#include <atomic>
#include <cstdint>
#include <fstream>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <absl/strings/str_cat.h>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <nlohmann/json.hpp>

namespace muster::worker {

inline std::vector<std::string> lines_of(const std::string& path) {
  std::vector<std::string> lines;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  return lines;
}

// A collector that answers each request with the next of `codes`, then repeats the last one.
class Collector {
 public:
  explicit Collector(std::vector<unsigned> codes)
      : codes_(std::move(codes)),
        acceptor_(context_, {boost::asio::ip::address_v4::loopback(), 0}) {
    port_ = acceptor_.local_endpoint().port();
    thread_ = std::thread([this] { serve(); });
  }
  ~Collector() {
    stop_ = true;
    boost::asio::io_context context;
    boost::asio::ip::tcp::socket wake(context);
    boost::system::error_code ignored;
    wake.connect({boost::asio::ip::address_v4::loopback(), port_}, ignored);
    thread_.join();
  }
  Collector(const Collector&) = delete;
  Collector& operator=(const Collector&) = delete;

  std::string endpoint() const { return absl::StrCat("http://127.0.0.1:", port_); }
  std::vector<nlohmann::json> bodies() const {
    const std::lock_guard lock(mutex_);
    return bodies_;
  }

 private:
  void serve() {
    namespace http = boost::beast::http;
    for (size_t n = 0; !stop_; ++n) {
      boost::asio::ip::tcp::socket socket(context_);
      boost::system::error_code error;
      acceptor_.accept(socket, error);
      if (error || stop_) return;
      boost::beast::flat_buffer buffer;
      http::request<http::string_body> request;
      http::read(socket, buffer, request, error);
      if (error) continue;
      {
        const std::lock_guard lock(mutex_);
        bodies_.push_back(nlohmann::json::parse(request.body(), nullptr, false));
      }
      http::response<http::string_body> response;
      response.version(11);
      response.result(codes_[std::min(n, codes_.size() - 1)]);
      response.prepare_payload();
      http::write(socket, response, error);
    }
  }

  const std::vector<unsigned> codes_;
  boost::asio::io_context context_;
  boost::asio::ip::tcp::acceptor acceptor_;
  uint16_t port_ = 0;
  std::atomic<bool> stop_{false};
  mutable std::mutex mutex_;
  std::vector<nlohmann::json> bodies_;
  std::thread thread_;
};

template <class F>
bool eventually(F&& holds) {
  for (int i = 0; i < 3'000; ++i) {
    if (holds()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return false;
}

}  // namespace muster::worker
