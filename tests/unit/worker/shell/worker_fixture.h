// A fixture with the real muster-worker, shell scripts as ranks, and a coordinator that the test
// controls.
#pragma once

#include <signal.h>
#include <sys/wait.h>

#include <optional>
#include <set>
#include <string>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/write.hpp>
#include <nlohmann/json.hpp>

#include "tests/paths.h"
#include "tests/unit/worker/shell/fake_coordinator.h"
#include "tests/unit/worker/shell/shell_fixture.h"
#include "worker/shell/ranks/spawn.h"

namespace muster::worker {

class WorkerTest : public ShellTest {
 protected:
  void TearDown() override {
    if (pid_ > 0) {
      kill(pid_, SIGKILL);
      waitpid(pid_, nullptr, 0);
    }
    coordinator.stop();
  }

  // Starts muster-worker; its ranks execute `trainer`.
  void start_worker(const std::string& trainer, const std::vector<std::string>& more = {},
                    rlim_t open_files = 0) {
    SpawnRequest request;
    request.arguments = {bin_dir() + "/muster-worker",
                         "--coordinator",
                         absl::StrCat("127.0.0.1:", coordinator.port()),
                         "--name",
                         "node0",
                         "--slots",
                         "4",
                         "--work-dir",
                         folder / "work",
                         "--port-file",
                         folder / "ports",
                         "--sys-root",
                         folder / "sys",
                         "--trainer",
                         trainer};
    request.arguments.insert(request.arguments.end(), more.begin(), more.end());
    request.environment = {"PATH=/usr/bin:/bin"};
    request.directory = folder;
    request.log_path = folder / "worker.log";
    request.open_files = open_files;
    const auto pid = spawn(request);
    ASSERT_TRUE(pid.ok()) << pid.status();
    pid_ = *pid;
  }

  int wait_for_worker() {
    int status = -1;
    EXPECT_TRUE(eventually([&] { return waitpid(pid_, &status, WNOHANG) == pid_; }))
        << worker_log();
    pid_ = 0;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }

  // Waits for the heartbeat with which `count` ranks were reported. Ranks start one after another,
  // so a heartbeat may lie between them; each is reported once until something changes.
  std::optional<v1::WorkerMessage> next_with_ranks(size_t count) {
    std::set<int32_t> reported;
    return coordinator.next([&](const v1::WorkerMessage& message) {
      for (const v1::RankProgress& rank : message.heartbeat().ranks()) reported.insert(rank.rank());
      return reported.size() == count;
    });
  }

  void begin(const std::string& trainer) {
    coordinator.start();
    start_worker(trainer);
    ASSERT_TRUE(coordinator.next_register()) << worker_log();
  }

  void start_ranks(uint32_t attempt, int32_t ranks, uint64_t job = 1) {
    v1::CoordinatorMessage message;
    v1::StartRanks* start = message.mutable_start_ranks();
    start->set_job_id(job);
    start->set_attempt(attempt);
    start->set_rendezvous_address("127.0.0.1:1");
    start->mutable_spec()->set_name("test");
    start->mutable_spec()->set_nodes(1);
    start->mutable_spec()->set_ranks_per_node(ranks);
    start->mutable_spec()->set_train_config_json("{}");
    for (int32_t r = 0; r < ranks; ++r) {
      start->add_ranks()->set_rank(r);
      start->mutable_ranks(r)->set_local_rank(r);
    }
    coordinator.send(std::move(message));
  }

  void stop_ranks(uint32_t attempt, int64_t grace_ms) {
    v1::CoordinatorMessage message;
    message.mutable_stop_ranks()->set_job_id(1);
    message.mutable_stop_ranks()->set_attempt(attempt);
    message.mutable_stop_ranks()->set_grace_ms(grace_ms);
    coordinator.send(std::move(message));
  }

  std::string get(const std::string& page) {
    const auto ports = nlohmann::json::parse(read_file(folder / "ports"));
    boost::asio::io_context context;
    boost::asio::ip::tcp::socket socket(context);
    socket.connect({boost::asio::ip::address_v4::loopback(), ports["http_port"].get<uint16_t>()});
    boost::asio::write(socket, boost::asio::buffer("GET " + page + " HTTP/1.1\r\n\r\n"));
    std::string text;
    boost::system::error_code end;
    boost::asio::read(socket, boost::asio::dynamic_buffer(text), end);
    return text;
  }

  std::string worker_log() const { return read_file(folder / "worker.log"); }

  FakeCoordinator coordinator;
  pid_t pid_ = 0;
};

}  // namespace muster::worker
