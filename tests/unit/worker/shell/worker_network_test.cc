// The network devices of a real muster-worker, in a made-up sysfs.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include "tests/unit/worker/shell/worker_fixture.h"

namespace muster::worker {
namespace {

using ::testing::HasSubstr;

class WorkerNetworkTest : public WorkerTest {
 protected:
  WorkerNetworkTest() {
    std::filesystem::create_directories(interface() / "device/driver");
    std::filesystem::create_directories(interface() / "statistics");
    set("type", "1");
    set("flags", "0x1003");
    set("operstate", "up");
  }

  std::filesystem::path interface() const { return folder / "sys/class/net/eth0"; }
  void set(const std::string& attribute, const std::string& value) const {
    std::ofstream(interface() / attribute) << value << "\n";
  }

  v1::NodeChecked check() {
    v1::CoordinatorMessage message;
    message.mutable_check_node()->set_check_id(++checks_);
    coordinator.send(message);
    const auto answer =
        coordinator.next([](const v1::WorkerMessage& m) { return m.has_node_checked(); });
    EXPECT_TRUE(answer) << worker_log();
    return answer ? answer->node_checked() : v1::NodeChecked();
  }

 private:
  uint64_t checks_ = 0;
};

TEST_F(WorkerNetworkTest, ALostLinkFailsTheChecksOfTheNode) {
  begin(script("sleep 1000"));
  // The first reading may be later than the first check.
  EXPECT_TRUE(eventually([&] {
    return check().details().find("1 network device") != std::string::npos;
  })) << worker_log();
  EXPECT_EQ(check().sentence().find("network device"), std::string::npos);
  set("operstate", "down");
  EXPECT_TRUE(eventually([&] {
    return check().sentence().find("network device") != std::string::npos;
  })) << worker_log();
  const v1::NodeChecked failed = check();
  EXPECT_FALSE(failed.passed());
  EXPECT_THAT(failed.sentence(),
              HasSubstr("network device eth0 is down (down), and was up before"));
  EXPECT_THAT(worker_log(), HasSubstr("network: eth0 lost its link (down)"));
}

// A pipe without a writer: reading the counter blocks, as a command to a dead device does.
TEST_F(WorkerNetworkTest, ADeviceThatDoesNotAnswerDelaysNoCheckAndNoEnd) {
  const std::string counter = interface() / "statistics/tx_bytes";
  ASSERT_EQ(mkfifo(counter.c_str(), 0600), 0);
  begin(script("exit 3"));
  check();
  start_ranks(1, 1);
  const auto exited = coordinator.next_exit();
  ASSERT_TRUE(exited) << worker_log();
  EXPECT_EQ(exited->exit_code(), 3);
  const int fd = open(counter.c_str(), O_RDWR | O_CLOEXEC);  // releases the reading
  close(fd);
}

}  // namespace
}  // namespace muster::worker
