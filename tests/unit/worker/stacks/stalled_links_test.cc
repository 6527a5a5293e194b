#include "worker/stacks/stalled_links.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>

#include "tests/unit/temp_folder.h"

namespace muster::worker {
namespace {

constexpr char kHead[] =
    "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout "
    "inode\n";
// From 10.0.0.1 to 10.0.0.2:28001. The kernel has repeated the oldest segment four times.
constexpr char kUnacknowledged[] =
    "   1: 0100000A:9C40 0200000A:6D61 01 00001000:00000000 01:00000120 00000004  1000 0 501 2\n";
// To 10.0.0.3:4711, in the state SYN_SENT, with two repetitions.
constexpr char kConnecting[] =
    "   2: 0100000A:9C41 0300000A:1267 02 00000001:00000000 01:00000200 00000002  1000 0 502 2\n";
// The receive buffer of 10.0.0.4 is full: the kernel probes it, because its process is stopped.
constexpr char kProbing[] =
    "   3: 0100000A:9C42 0400000A:1267 01 00001000:00000000 04:00000200 00000000  1000 7 503 2\n";
// Another connection to 10.0.0.2.
constexpr char kMoreRepetitions[] =
    "   6: 0100000A:9C46 0200000A:6D62 01 00001000:00000000 01:00000120 00000007  1000 0 506 2\n";
// One repetition: the segment may only be lost.
constexpr char kLostOnce[] =
    "   4: 0100000A:9C43 0500000A:1267 01 00001000:00000000 01:00000040 00000001  1000 0 504 2\n";
// To 127.0.0.1.
constexpr char kLocal[] =
    "   5: 0100007F:9C44 0100007F:1267 01 00001000:00000000 01:00000120 00000008  1000 0 505 2\n";
// From fd00::1 to [fd00::2]:4711, and to ::ffff:10.0.0.6.
constexpr char kV6[] =
    "   1: 000000FD000000000000000001000000:9C40 000000FD000000000000000002000000:1267 01 "
    "00000010:00000000 01:00000120 00000003  1000 0 601 2\n"
    "   2: 0000000000000000FFFF00000100000A:9C40 0000000000000000FFFF00000600000A:1267 01 "
    "00000010:00000000 01:00000120 00000003  1000 0 602 2\n";

std::vector<StalledLink> links_of(std::string_view table) {
  std::vector<StalledLink> links;
  for (const UnansweredSocket& socket : parse_unanswered(table)) links.push_back(socket.link);
  return links;
}

TEST(StalledLinks, AreConnectionsWhoseSegmentsAreNotAcknowledged) {
  EXPECT_EQ(
      links_of(std::string(kHead) + kUnacknowledged + kConnecting + kProbing + kLostOnce + kLocal),
      (std::vector<StalledLink>{{"10.0.0.2", 28001, false, 4}, {"10.0.0.3", 4711, true, 2}}));
  EXPECT_EQ(links_of(kV6),
            (std::vector<StalledLink>{{"fd00::2", 4711, false, 3}, {"10.0.0.6", 4711, false, 3}}));
  for (const char* damaged : {"", " 01:", "1: 0100000A:9C40 02:6D61 01 0:0 01:0 4 0 0 5",
                              "1: 0100000A:9C40 0200000A:6D61 01 0:0 01:0 4"})
    EXPECT_TRUE(links_of(damaged).empty()) << damaged;
}

TEST(StalledLinks, AreNoAttemptsToConnectToAHostThatAnswers) {
  // An open connection to 10.0.0.3, as an IPv6 socket shows it: nothing is repeated.
  const std::string open =
      "   1: 0000000000000000FFFF00000100000A:9C40 0000000000000000FFFF00000300000A:1267 01 "
      "00000000:00000000 02:00000120 00000000  1000 0 603 2\n";
  EXPECT_TRUE(links_of(kConnecting + open).empty()) << "the queue of its listener may be full";
  EXPECT_EQ(links_of(std::string(kConnecting) + kUnacknowledged).size(), 2U);
  const std::string repeated =
      "   3: 0100000A:9C42 0300000A:1267 01 00001000:00000000 01:00000200 00000001  1000 7 503 2\n";
  EXPECT_EQ(links_of(kConnecting + repeated).size(), 1U);
}

class LinkReaderTest : public testing::Test {
 protected:
  void add_process(pid_t pid, const std::string& children, const std::vector<int>& inodes) {
    const std::filesystem::path folder = std::filesystem::path(root_) / std::to_string(pid);
    const std::filesystem::path task = folder / "task" / std::to_string(pid);
    for (const std::filesystem::path& path : {task, folder / "fd", folder / "net", folder / "ns"})
      std::filesystem::create_directories(path);
    std::ofstream(task / "children") << children;
    std::ofstream(folder / "net/tcp")
        << kHead << kUnacknowledged << kConnecting << kMoreRepetitions;
    std::filesystem::create_symlink("net:[4026531840]", folder / "ns/net");
    for (const int inode : inodes)
      std::filesystem::create_symlink("socket:[" + std::to_string(inode) + "]",
                                      folder / "fd" / std::to_string(inode));
  }

  TempFolder folder_;
  const std::string root_ = folder_.path();
};

TEST_F(LinkReaderTest, ReturnsTheLinksOfTheRankAndItsChildren) {
  add_process(10, "11 ", {7});
  add_process(11, "", {502, 9});
  add_process(20, "", {501});
  add_process(30, "", {8});
  LinkReader reader(root_);
  EXPECT_EQ(reader.read(10), (std::vector<StalledLink>{{"10.0.0.3", 4711, true, 2}}));
  EXPECT_EQ(reader.read(20), (std::vector<StalledLink>{{"10.0.0.2", 28001, false, 4}}));
  add_process(50, "", {501, 506});
  EXPECT_EQ(reader.read(50), (std::vector<StalledLink>{{"10.0.0.2", 28002, false, 7}}))
      << "the connection with the most repetitions";
  EXPECT_TRUE(reader.read(30).empty());
  EXPECT_TRUE(reader.read(40).empty()) << "no such process";
  EXPECT_TRUE(reader.read(0).empty());
}

}  // namespace
}  // namespace muster::worker
