// One coordinator over one state folder and one port, which is killed and started again.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "common/time/time.h"

namespace muster::bench {

class Daemon {
 public:
  // `folder`: for the state, the log and the file with the ports.
  Daemon(std::string program, std::string folder)
      : program_(std::move(program)), folder_(std::move(folder)) {}
  ~Daemon();
  Daemon(const Daemon&) = delete;
  Daemon& operator=(const Daemon&) = delete;

  // Starts the coordinator. The first start chooses the ports, which later starts use again.
  // Returns an error text, or "".
  std::string start();
  // Waits until the coordinator is ready, for at most `limit`. Returns whether it is.
  bool wait_until_ready(Duration limit);
  // Sends SIGKILL and reaps the process. Returns an error text if it had ended by itself.
  std::string kill_now();
  // Sends SIGTERM and reaps the process. Returns an error text unless it exits with 0.
  std::string stop();
  std::string address() const;

 private:
  std::string reap(int signal, const std::string& expected);
  std::string end_of_log() const;

  const std::string program_;
  const std::string folder_;
  pid_t pid_ = 0;
  int grpc_port_ = 0;
  int http_port_ = 0;
};

}  // namespace muster::bench
