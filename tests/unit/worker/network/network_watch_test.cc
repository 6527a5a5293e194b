#include "worker/network/network_watch.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <mutex>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>
#include <gtest/gtest.h>

#include "common/job/rank_evidence.h"
#include "tests/unit/temp_folder.h"

namespace muster::worker {
namespace {

using std::chrono::seconds;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

constexpr Duration kNetworkPatience = seconds(20);
// A folder in the layout of sysfs. Readings are added to `report` at chosen times.
class NetworkTest : public testing::Test {
 protected:
  void write(const std::string& path, const std::string& text) const {
    const std::filesystem::path file = std::filesystem::path(folder.path()) / path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text << "\n";
  }
  void link(const std::string& path, const std::string& target) const {
    const std::filesystem::path file = std::filesystem::path(folder.path()) / path;
    std::filesystem::create_directories(file.parent_path());
    std::filesystem::create_directory_symlink(target, file);
  }
  void set_port(const std::string& device, const std::string& name, const std::string& text) const {
    write("class/infiniband/" + device + "/ports/1/" + name, text);
  }
  void set_interface(const std::string& name, const std::string& attribute,
                     const std::string& text) const {
    write("class/net/" + name + "/" + attribute, text);
  }
  void set_driver(const std::string& device, const std::string& driver) const {
    const std::string path = folder.file("drivers/" + driver);
    std::filesystem::create_directories(path);
    link(device + "/device/driver", path);
  }
  void add_port(const std::string& device, const std::string& layer, const std::string& rate,
                const std::string& driver = "mlx5_core") const {
    set_port(device, "link_layer", layer);
    set_port(device, "state", "4: ACTIVE");
    set_port(device, "phys_state", "5: LinkUp");
    set_port(device, "rate", rate);
    set_driver("class/infiniband/" + device, driver);
  }
  void add_interface(const std::string& name, bool is_virtual = false) const {
    set_interface(name, "type", "1");
    set_interface(name, "operstate", "up");
    set_interface(name, "flags", "0x1003");
    set_interface(name, "speed", "25000");
    set_interface(name, "carrier_down_count", "1");
    set_interface(name, "statistics/rx_errors", "0");
    if (!is_virtual) set_driver("class/net/" + name, "ice");
  }
  void set_link(const std::string& device, const std::string& state,
                const std::string& physical) const {
    set_port(device, "state", state);
    set_port(device, "phys_state", physical);
  }

  std::vector<NetworkDevice> read(const std::vector<std::string>& patterns = {}) const {
    auto devices = read_network_devices({.sys_root = folder.path(), .patterns = patterns});
    EXPECT_TRUE(devices.ok()) << devices.status();
    return devices.ok() ? *std::move(devices) : std::vector<NetworkDevice>();
  }
  std::string names(const std::vector<std::string>& patterns = {}) const {
    return absl::StrJoin(read(patterns), ", ", [](std::string* out, const NetworkDevice& device) {
      absl::StrAppend(out, device.name, device.is_needed ? "!" : "");
    });
  }
  // Adds a reading at a time in seconds, and returns the texts of its events.
  std::string read_at(int time) {
    return absl::StrJoin(add_reading(report, read(), at(time)), "; ",
                         [](std::string* out, const NetworkEvent& event) {
                           absl::StrAppend(out, network_event_text(event));
                         });
  }
  std::string problems_at(int time) const { return network_problems(report, at(time)); }
  std::string lost_link_at(int time, int started = 0, int recent = 0) const {
    const auto lost = lost_link(report, at(started), at(recent), at(time));
    return !lost ? "" : absl::StrCat(lost->clause, lost->is_down ? ", still" : "");
  }
  static Instant at(int time) { return Instant(seconds(1'000 + time)); }

  TempFolder folder;
  NetworkReport report;
};

TEST_F(NetworkTest, DevicesOfEachKindHaveTheirStateRateAndCounters) {
  add_port("mlx5_2", "InfiniBand", "400 Gb/sec (4X NDR)");
  add_port("mlx5_10", "Ethernet", "200 Gb/sec (4X HDR)");
  add_port("rdmap0s31", "Unknown", "100 Gb/sec (4X EDR)", "efa");
  add_interface("eth0");
  set_port("mlx5_2", "counters/port_xmit_data", "1000");
  set_port("mlx5_2", "counters/symbol_error", "7");
  set_port("mlx5_2", "counters/port_rcv_errors", "2");
  set_port("mlx5_2", "hw_counters/packet_seq_err", "10");
  set_port("mlx5_10", "counters/symbol_error", "7");
  set_port("mlx5_10", "counters/port_rcv_errors", "N/A (no PMA)");
  set_port("rdmap0s31", "hw_counters/rx_bytes", "512");
  const std::vector<NetworkDevice> devices = read();
  ASSERT_THAT(devices, SizeIs(4));
  EXPECT_EQ(devices[0].name, "mlx5_2 port 1");
  EXPECT_EQ(devices[0].kind, NetworkKind::kInfiniBand);
  EXPECT_EQ(devices[0].link, LinkState::kUp);
  EXPECT_EQ(devices[0].state, "ACTIVE, LinkUp");
  EXPECT_EQ(devices[0].gigabits_per_second, 400);
  EXPECT_EQ(devices[0].counters.sent_bytes, 4000) << "InfiniBand counts words of 4 bytes";
  EXPECT_EQ(devices[0].counters.errors, 9);
  EXPECT_EQ(devices[0].counters.retransmissions, 10);
  EXPECT_EQ(devices[0].counters.drops, std::nullopt);
  EXPECT_EQ(devices[1].kind, NetworkKind::kRoce);
  EXPECT_EQ(devices[1].counters.errors, std::nullopt) << "a sum would jump at the next reading";
  EXPECT_EQ(devices[2].kind, NetworkKind::kEfa);
  EXPECT_EQ(devices[2].link, LinkState::kUnknown) << "its driver always reports a link";
  EXPECT_EQ(devices[2].counters.received_bytes, 512);
  EXPECT_EQ(devices[3].kind, NetworkKind::kEthernet);
  EXPECT_EQ(devices[3].gigabits_per_second, 25);
  EXPECT_EQ(devices[3].counters.link_losses, 1);
  read_at(0);
  EXPECT_EQ(describe_network(report),
            "4 network devices (1 infiniband, 1 roce, 1 efa, 1 ethernet)");
}

TEST_F(NetworkTest, OnlyDevicesWithHardwareAreRead) {
  EXPECT_EQ(names(), "") << "there is no sysfs";
  // 300 interfaces of containers must not displace a device, in whatever order they are listed.
  for (int i = 0; i < 300; ++i) add_interface(absl::StrCat("veth", i), /*is_virtual=*/true);
  write("class/net/bonding_masters", "bond0");
  add_interface("eth0");
  add_interface("eth1v3");
  std::filesystem::create_directories(folder.file("class/net/eth1v3/device/physfn"));
  add_interface("enp3s0f0npf0vf3");
  set_interface("enp3s0f0npf0vf3", "phys_port_name", "pf0vf3");
  add_interface("wlan0");
  std::filesystem::create_directories(folder.file("class/net/wlan0/wireless"));
  add_interface("usb0");
  std::filesystem::create_directories(folder.file("bus/usb"));
  link("class/net/usb0/device/subsystem", folder.file("bus/usb"));
  add_interface("ib0");
  set_interface("ib0", "type", "32");
  EXPECT_EQ(names(), "eth0!");
  add_port("irdma0", "Ethernet", "100 Gb/sec");
  write("class/infiniband/irdma0/node_type", "4: RNIC");
  add_port("rxe0", "Ethernet", "2.5 Gb/sec");
  write("class/infiniband/rxe0/parent", "eth0");
  EXPECT_EQ(names(), "eth0!") << "neither is RoCE in hardware";
  add_port("mlx5_0", "InfiniBand", "400 Gb/sec (4X NDR)");
  EXPECT_EQ(names(), "mlx5_0 port 1!, eth0") << "ranks use the port";
  EXPECT_EQ(names({"mlx5_*", "eth0"}), "mlx5_0 port 1!, eth0!");
  EXPECT_EQ(names({"!eth0"}), "mlx5_0 port 1!");
  std::filesystem::remove_all(folder.file("class/net"));
  write("class/net", "no folder");
  EXPECT_FALSE(read_network_devices({.sys_root = folder.path(), .patterns = {}}).ok());
}

TEST_F(NetworkTest, ALostLinkIsAProblemUntilItIsBackForAWhile) {
  add_port("mlx5_2", "InfiniBand", "400 Gb/sec (4X NDR)");
  add_port("mlx5_3", "InfiniBand", "400 Gb/sec (4X NDR)");
  set_link("mlx5_3", "1: DOWN", "2: Polling");  // it has no cable
  EXPECT_EQ(read_at(0), "");
  EXPECT_EQ(describe_network(report), "2 network devices (2 infiniband), 1 without a link");
  set_link("mlx5_2", "1: DOWN", "2: Polling");
  EXPECT_EQ(read_at(5), "mlx5_2 port 1 lost its link (DOWN, Polling)");
  EXPECT_EQ(read_at(10), "");
  EXPECT_EQ(problems_at(10),
            "network device mlx5_2 port 1 is down (DOWN, Polling), and was up before");
  EXPECT_EQ(lost_link_at(12),
            "the node's network device mlx5_2 port 1 has been without a link for 7 s (DOWN, "
            "Polling), still");
  EXPECT_EQ(lost_link_at(12, 0, /*recent=*/11), lost_link_at(12)) << "it is down now";
  EXPECT_EQ(lost_link_at(12, /*started=*/6), "") << "the rank started without this link";
  EXPECT_EQ(lost_link_at(40), "") << "the newest reading is old";
  set_link("mlx5_2", "2: INIT", "5: LinkUp");
  EXPECT_EQ(read_at(15), "");
  EXPECT_EQ(problems_at(15), "") << "the subnet manager's part is missing";
  set_link("mlx5_2", "4: ACTIVE", "5: LinkUp");
  EXPECT_EQ(read_at(20), "mlx5_2 port 1 is up again");
  EXPECT_EQ(problems_at(21),
            "network device mlx5_2 port 1 lost its link, and has been up again only for 1 s");
  EXPECT_EQ(lost_link_at(22),
            "the node's network device mlx5_2 port 1 lost its link 17 s before, and has been up "
            "again for 2 s");
  EXPECT_EQ(lost_link_at(22, 0, /*recent=*/21), "");
  EXPECT_EQ(problems_at(50), "");
  EXPECT_THAT(network_messages_since(report, at(0), at(22)),
              ElementsAre("[1005.000000] network: mlx5_2 port 1 lost its link (DOWN, Polling)",
                          "[1020.000000] network: mlx5_2 port 1 is up again"));
  set_link("mlx5_2", "3: ARMED", "5: LinkUp");
  EXPECT_EQ(read_at(60), "mlx5_2 port 1 is not active (ARMED, LinkUp)");
}

TEST_F(NetworkTest, DevicesThatAreSwitchedOffOrGoneAreNoProblem) {
  add_port("mlx5_0", "Ethernet", "200 Gb/sec (4X HDR)");  // RoCE of ens1
  set_port("mlx5_0", "gid_attrs/ndevs/0", "ens1");
  add_interface("ens1");
  add_port("mlx5_1", "InfiniBand", "200 Gb/sec (4X HDR)");
  read_at(0);
  set_interface("ens1", "flags", "0x1002");
  set_interface("ens1", "operstate", "down");
  set_link("mlx5_0", "1: DOWN", "3: Disabled");
  set_link("mlx5_1", "1: DOWN", "3: Disabled");
  EXPECT_EQ(read_at(5), "");
  EXPECT_EQ(problems_at(5), "");
  set_interface("ens1", "flags", "0x1003");  // switched on without a cable
  EXPECT_EQ(read_at(10), "");
  set_link("mlx5_0", "4: ACTIVE", "5: LinkUp");
  set_interface("ens1", "operstate", "up");
  read_at(15);
  set_link("mlx5_0", "1: DOWN", "3: Disabled");
  set_interface("ens1", "operstate", "down");
  EXPECT_EQ(read_at(20), "mlx5_0 port 1 lost its link (DOWN, Disabled); ens1 lost its link (down)");
  EXPECT_EQ(problems_at(20),
            "network device mlx5_0 port 1 is down (DOWN, Disabled), and was up before")
      << "the port and its interface are one problem";
  std::filesystem::remove_all(folder.file("class/net/ens1"));  // moved into a container
  EXPECT_EQ(read_at(25), "ens1 is not there any more");
  EXPECT_EQ(problems_at(25), "");
  std::filesystem::remove_all(folder.file("class/infiniband/mlx5_0"));
  EXPECT_EQ(read_at(30), "mlx5_0 port 1 is not there any more");
  EXPECT_EQ(lost_link_at(30), "");
  add_port("mlx5_0", "Ethernet", "200 Gb/sec (4X HDR)");
  set_link("mlx5_0", "1: DOWN", "2: Polling");
  EXPECT_EQ(read_at(35), "");
  EXPECT_EQ(problems_at(35), "") << "it has not been up since";
  set_port("mlx5_1", "state", "");  // a failed read
  EXPECT_EQ(read_at(40), "");
  EXPECT_EQ(problems_at(40), "");
}

TEST_F(NetworkTest, AMemberOfABondThatIsUpIsNoProblem) {
  add_interface("bond0", /*is_virtual=*/true);
  std::filesystem::create_directories(folder.file("class/net/bond0/bonding"));
  for (const char* name : {"eth0", "eth1"}) {
    add_interface(name);
    link(absl::StrCat("class/net/", name, "/master"), folder.file("class/net/bond0"));
  }
  read_at(0);
  set_interface("eth0", "operstate", "down");
  EXPECT_EQ(read_at(5), "eth0 lost its link (down)");
  EXPECT_EQ(problems_at(5), "");
  EXPECT_EQ(lost_link_at(5), "");
  set_interface("eth1", "operstate", "down");
  set_interface("bond0", "operstate", "down");
  read_at(10);
  EXPECT_THAT(problems_at(10), HasSubstr("network device eth0 is down"));
}

TEST_F(NetworkTest, ASlowerPortOfInfiniBandIsAProblemAndASlowerInterfaceIsNot) {
  add_interface("eth0");
  read_at(0);
  set_interface("eth0", "speed", "1000");
  EXPECT_EQ(read_at(5), "eth0 changed its rate from 25 Gb/s to 1 Gb/s");
  EXPECT_EQ(problems_at(5), "");
  add_port("mlx5_2", "InfiniBand", "400 Gb/sec (4X NDR)");
  read_at(10);
  set_port("mlx5_2", "rate", "100 Gb/sec (1X NDR)");
  EXPECT_EQ(read_at(15), "mlx5_2 port 1 changed its rate from 400 Gb/s to 100 Gb/s");
  EXPECT_EQ(problems_at(15), "network device mlx5_2 port 1 runs at 100 Gb/s instead of 400 Gb/s");
}

TEST_F(NetworkTest, LinksThatAreLostBetweenReadingsAreFoundByTheirCounters) {
  add_interface("eth0");
  read_at(0);
  set_interface("eth0", "carrier_down_count", "3");
  EXPECT_EQ(read_at(5), "eth0 lost its link 2 times for a moment, by its counter");
  EXPECT_EQ(problems_at(5), "");
  EXPECT_EQ(lost_link_at(5), "") << "an administrator may have changed the interface";
  set_interface("eth0", "carrier_down_count", "0");  // the driver was loaded again
  EXPECT_EQ(read_at(10), "");
  set_interface("eth0", "carrier_down_count", "1");
  set_interface("eth0", "operstate", "down");
  EXPECT_EQ(read_at(15), "eth0 lost its link (down)");
  set_interface("eth0", "operstate", "up");
  EXPECT_EQ(read_at(20), "eth0 is up again") << "the loss is known already";
}

TEST_F(NetworkTest, ABurstOfErrorsIsOneEvent) {
  add_port("mlx5_2", "InfiniBand", "400 Gb/sec (4X NDR)");
  const auto events_at = [&](int time, int retransmissions, int timeouts) {
    set_port("mlx5_2", "hw_counters/packet_seq_err", std::to_string(retransmissions));
    set_port("mlx5_2", "hw_counters/local_ack_timeout_err", std::to_string(timeouts));
    return read_at(time);
  };
  events_at(0, 10, 0);
  EXPECT_EQ(events_at(5, 500, 0), "") << "healthy links have some";
  EXPECT_EQ(events_at(7, 1'200, 0), "") << "a reading in between";
  EXPECT_EQ(events_at(10, 2'000, 20), "mlx5_2 port 1 had 1500 retransmissions")
      << "a few timeouts follow from the end of a peer";
  EXPECT_EQ(events_at(15, 5'000, 20), "");
  EXPECT_EQ(events_at(20, 9'000, 20), "");
  EXPECT_EQ(events_at(60, 20'000, 300),
            "mlx5_2 port 1 had 11000 retransmissions; mlx5_2 port 1 had 280 timeouts");
  EXPECT_THAT(network_messages_since(report, at(20), at(60)),
              ElementsAre(HasSubstr("had 8500 retransmissions within 10 s"),
                          HasSubstr("had 11000 retransmissions"), HasSubstr("had 280 timeouts")));
}

TEST_F(NetworkTest, TheNewestEventsOfADeviceAreRetained) {
  add_port("mlx5_0", "InfiniBand", "400 Gb/sec (4X NDR)");
  add_port("mlx5_1", "InfiniBand", "400 Gb/sec (4X NDR)");
  read_at(0);
  set_link("mlx5_1", "1: DOWN", "2: Polling");
  read_at(5);
  for (int time = 10; time < 600; time += 10) {
    set_link("mlx5_0", "1: DOWN", "2: Polling");
    read_at(time);
    set_link("mlx5_0", "4: ACTIVE", "5: LinkUp");
    read_at(time + 5);
  }
  std::vector<std::string> messages(kKernelMessagesMax, "of the kernel");
  add_network_messages(report, at(0), at(600), messages);
  ASSERT_THAT(messages, SizeIs(kKernelMessagesMax));
  EXPECT_EQ(messages.front(), "of the kernel");
  EXPECT_EQ(messages.back(), "[1595.000000] network: mlx5_0 port 1 is up again");
  EXPECT_THAT(messages, testing::Contains(HasSubstr("mlx5_1 port 1 lost its link")))
      << "a port that comes and goes displaces its own events only";
}

TEST_F(NetworkTest, DevicesAreBoundedAndMayHaveEqualNames) {
  for (size_t i = 0; i < kNetworkDevicesMax + 5; ++i) add_interface(absl::StrCat("eth", i));
  EXPECT_THAT(read(), SizeIs(kNetworkDevicesMax));
  std::vector<NetworkDevice> twins(2);
  twins[0].name = twins[1].name = "eth0";
  twins[0].link = twins[1].link = LinkState::kUp;
  for (int time = 0; time < 3; ++time)
    EXPECT_THAT(add_reading(report, twins, at(time)), IsEmpty()) << time;
}

TEST_F(NetworkTest, AWatchReadsByItselfAndOnRequest) {
  add_interface("eth0");
  std::mutex mutex;
  std::string events;
  NetworkWatch watch({.selection = {.sys_root = folder.path(), .patterns = {}},
                      .interval = std::chrono::hours(1),
                      .on_event = [&](const std::string& text) {
                        const std::lock_guard lock(mutex);
                        events += text + "\n";
                      }});
  EXPECT_THAT(watch.measure(kNetworkPatience).devices, SizeIs(1));
  set_interface("eth0", "operstate", "down");
  const NetworkReport now = watch.measure(kNetworkPatience);
  EXPECT_EQ(network_problems(now, now.measured),
            "network device eth0 is down (down), and was up before");
  std::filesystem::remove_all(folder.file("class/net"));
  write("class/net", "no folder");
  EXPECT_THAT(watch.measure(kNetworkPatience).devices, SizeIs(1)) << "the newest complete reading";
  watch.measure(kNetworkPatience);
  const std::lock_guard lock(mutex);
  EXPECT_THAT(events, HasSubstr("eth0 lost its link (down)\nthe devices cannot be read: listing "));
}

// A pipe without a writer: reading the counter blocks, as a command to a dead device does.
TEST_F(NetworkTest, AReadingThatDoesNotEndDelaysNothingAndIsReported) {
  add_port("mlx5_0", "InfiniBand", "400 Gb/sec (4X NDR)");
  auto watch = std::make_unique<NetworkWatch>(
      NetworkWatchOptions{.selection = {.sys_root = folder.path(), .patterns = {}},
                          .interval = std::chrono::hours(1),
                          .on_event = nullptr});
  ASSERT_THAT(watch->measure(kNetworkPatience).devices, SizeIs(1));
  const std::string counter =
      folder.file("class/infiniband/mlx5_0/ports/1/counters/port_xmit_data");
  std::filesystem::create_directories(std::filesystem::path(counter).parent_path());
  ASSERT_EQ(mkfifo(counter.c_str(), 0600), 0);
  watch->request();
  NetworkReport hanging = watch->measure(std::chrono::milliseconds(1));
  for (int i = 0; i < 2'000 && hanging.reading != "mlx5_0 port 1"; ++i)
    hanging = watch->measure(std::chrono::milliseconds(10));
  ASSERT_TRUE(hanging.reading_since);
  EXPECT_THAT(hanging.devices, SizeIs(1)) << "the newest complete reading";
  EXPECT_EQ(network_problems(hanging, *hanging.reading_since + seconds(5)), "");
  const Instant later = *hanging.reading_since + seconds(40);
  EXPECT_EQ(network_problems(hanging, later),
            "network devices could not be read for 40 s: mlx5_0 port 1 does not answer");
  EXPECT_THAT(network_messages_since(hanging, later, later),
              ElementsAre(HasSubstr("network: network devices could not be read for 40 s")));
  watch.reset();
  const int fd = open(counter.c_str(), O_RDWR | O_CLOEXEC);  // releases the reading
  close(fd);
}

}  // namespace
}  // namespace muster::worker
