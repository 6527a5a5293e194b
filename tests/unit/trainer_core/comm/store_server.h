// A rendezvous store for tests, on a free loopback port. It has a thread per connection; the
// destructor joins all of them.
#pragma once

#include <condition_variable>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace muster::trainer {

class StoreServer {
 public:
  StoreServer();
  ~StoreServer();

  std::string address() const { return "127.0.0.1:" + std::to_string(port_); }

 private:
  void accept_loop();
  void serve(int fd);
  std::pair<bool, std::string> answer(bool set, const std::string& key, const std::string& value);

  int listener_ = -1;
  int port_ = 0;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, std::string> values_;
  std::vector<int> connections_;
  bool stopping_ = false;
  std::vector<std::thread> servers_;
  std::thread acceptor_;
};

}  // namespace muster::trainer
