#include <fcntl.h>
#include <gmock/gmock.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <memory>

#include <gtest/gtest.h>

#include "common/progress/progress_page.h"
#include "tests/unit/worker/shell/evidence/end_reader_fixture.h"

namespace muster::worker {
namespace {

using testing::ElementsAre;
using testing::SizeIs;

// An InfiniBand port in a folder like sysfs, which is up at first, and its watch.
class EndReaderNetworkTest : public EndReaderTest {
 protected:
  EndReaderNetworkTest() {
    std::filesystem::create_directories(port() / "counters");
    std::filesystem::create_directories(port().parent_path().parent_path() / "device/driver");
    write_file(port() / "link_layer", "InfiniBand\n");
    write_file(port() / "state", "4: ACTIVE\n");
    write_file(port() / "counters/link_downed", "0\n");
    network = std::make_unique<NetworkWatch>(
        NetworkWatchOptions{.selection = {.sys_root = folder.path(), .patterns = {}},
                            .interval = std::chrono::hours(1),
                            .on_event = nullptr});
    EXPECT_EQ(network->measure(std::chrono::seconds(20)).devices.size(), 1);
  }

  std::filesystem::path port() const { return folder.file("class/infiniband/mlx5_0/ports/1"); }

  std::unique_ptr<NetworkWatch> network;
};

TEST_F(EndReaderNetworkTest, ALostLinkOfTheNodeExplainsALostPeer) {
  const auto rank_that_reports = [&](const std::string& detail, int signal = 0) {
    EndedRank rank = ended(signal);
    rank.event.exit_code = signal == 0 ? 1 : -1;
    rank.event.detail = detail;
    rank.of_program = true;
    return rank;
  };
  write_file(port() / "state", "1: DOWN\n");
  network->measure(std::chrono::seconds(20));
  const auto events = read(
      {.kernel_log = "/dev/null", .network = network.get(), .deadline = std::chrono::seconds(20)},
      {rank_that_reports("RuntimeError: Connection closed by peer"),
       rank_that_reports("KeyError: 'x'"), rank_that_reports("", SIGSEGV),
       rank_that_reports("MyError: bad batch (job/train.py:31 step)"),
       rank_that_reports("step 41 loss 2.3")});
  ASSERT_THAT(events, SizeIs(5));
  EXPECT_EQ(events[0].detail, "RuntimeError: Connection closed by peer");
  EXPECT_THAT(
      events[0].lost_link,
      testing::HasSubstr("the node's network device mlx5_0 port 1 has been without a link"));
  EXPECT_TRUE(events[0].link_is_down);
  for (size_t i = 1; i < events.size(); ++i) {
    EXPECT_EQ(events[i].lost_link, "") << events[i].detail << ": it reports no lost peer";
    EXPECT_FALSE(events[i].link_is_down);
  }
  EXPECT_THAT(events[2].evidence->kernel_messages,
              ElementsAre(testing::HasSubstr("network: mlx5_0 port 1 lost its link")));
}

TEST_F(EndReaderNetworkTest, ALinkThatWasLostLongBeforeTheLastStepIsNotNeeded) {
  write_file(port() / "state", "1: DOWN\n");
  network->measure(std::chrono::seconds(20));
  const ProgressIdentity identity{
      .job = 1, .attempt = 1, .incarnation = 1, .rank = 0, .local_rank = 0};
  std::filesystem::create_directories(launcher.folders().folder(kKey.launch()));
  const auto page =
      ProgressWriter::create(launcher.folders().page_path(kKey.launch(), 0), identity);
  ASSERT_TRUE(page.ok());
  const EndReaderOptions options{
      .kernel_log = "/dev/null", .network = network.get(), .deadline = std::chrono::seconds(20)};
  const auto lost_link_with_step = [&](Duration after) {
    (*page)->complete_step({.step = 12, .loss = 1.5}, monotonic_now() + after);
    EndedRank rank = ended(0);
    rank.event.exit_code = 1;
    rank.event.detail = "RuntimeError: Connection closed by peer";
    rank.of_program = true;
    loop.restart();
    return read(options, {rank}).at(0).lost_link;
  };
  EXPECT_NE(lost_link_with_step(std::chrono::minutes(1)), "");
  EXPECT_EQ(lost_link_with_step(std::chrono::minutes(3)), "");
}

// A pipe without a writer: reading the counter blocks, as a command to a dead device does.
TEST_F(EndReaderNetworkTest, ADeviceThatDoesNotAnswerCostsNoEvidence) {
  const std::string counter = port() / "counters/link_downed";
  std::filesystem::remove(counter);
  ASSERT_EQ(mkfifo(counter.c_str(), 0600), 0);
  const EndReaderOptions options{
      .kernel_log = "/dev/null", .network = network.get(), .deadline = std::chrono::seconds(10)};
  for (int batch = 0; batch < 3; ++batch) {
    EndedRank rank = ended(0);
    rank.event.exit_code = 1;
    rank.of_program = true;
    loop.restart();
    const auto events = read(options, {rank});
    ASSERT_THAT(events, SizeIs(1));
    ASSERT_NE(events[0].evidence, nullptr) << batch;
    EXPECT_EQ(events[0].detail, "line 49");
  }
  network.reset();                                           // does not wait for the device
  const int fd = open(counter.c_str(), O_RDWR | O_CLOEXEC);  // releases the reading
  close(fd);
}

}  // namespace
}  // namespace muster::worker
