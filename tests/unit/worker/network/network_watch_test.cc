#include "worker/network/network_watch.h"

#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>

#include "tests/unit/temp_folder.h"

namespace muster::worker {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

// A folder in the layout of sysfs: an InfiniBand port, a RoCE port, an EFA port, an Ethernet
// interface and two interfaces that are no devices of their own.
class NetworkWatchTest : public testing::Test {
 protected:
  NetworkWatchTest() {
    add_port("mlx5_2", "InfiniBand", "400 Gb/sec (4X NDR)");
    add_port("mlx5_10", "Ethernet", "200 Gb/sec (4X HDR)");
    add_port("rdmap0s31", "Unspecified", "100 Gb/sec (4X EDR)");
    set_port("mlx5_2", "counters/port_xmit_data", "1000");
    set_port("mlx5_2", "counters/symbol_error", "7");
    set_port("mlx5_2", "counters/port_rcv_errors", "2");
    set_port("mlx5_2", "counters/link_downed", "0");
    set_port("mlx5_2", "hw_counters/packet_seq_err", "10");
    set_port("mlx5_2", "hw_counters/local_ack_timeout_err", "0");
    set_port("rdmap0s31", "hw_counters/rx_bytes", "512");
    add_interface("eth0", "1", true);
    add_interface("ib0", "32", true);
    add_interface("docker0", "1", false);
  }

  void write(const std::string& path, const std::string& text) const {
    const std::filesystem::path file = std::filesystem::path(folder.path()) / path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text << "\n";
  }
  void set_port(const std::string& device, const std::string& name, const std::string& text) const {
    write("class/infiniband/" + device + "/ports/1/" + name, text);
  }
  void set_interface(const std::string& name, const std::string& attribute,
                     const std::string& text) const {
    write("class/net/" + name + "/" + attribute, text);
  }
  void add_port(const std::string& device, const std::string& layer,
                const std::string& rate) const {
    set_port(device, "link_layer", layer);
    set_port(device, "state", "4: ACTIVE");
    set_port(device, "phys_state", "5: LinkUp");
    set_port(device, "rate", rate);
  }
  void add_interface(const std::string& name, const std::string& type, bool has_device) const {
    set_interface(name, "type", type);
    set_interface(name, "operstate", "up");
    set_interface(name, "flags", "0x1003");
    set_interface(name, "speed", "25000");
    set_interface(name, "carrier_down_count", "1");
    set_interface(name, "statistics/rx_errors", "0");
    if (has_device)
      std::filesystem::create_directories(folder.file("class/net/" + name + "/device"));
  }
  void lose_port() const {
    set_port("mlx5_2", "state", "1: DOWN");
    set_port("mlx5_2", "phys_state", "2: Polling");
  }

  TempFolder folder;
  NetworkWatch watch{folder.path()};
};

TEST_F(NetworkWatchTest, DevicesOfEachKindHaveTheirStateRateAndCounters) {
  const std::vector<NetworkDevice> devices = read_network_devices(folder.path());
  ASSERT_THAT(devices, SizeIs(4)) << "neither ib0, which is mlx5_2's, nor docker0";
  EXPECT_EQ(devices[0].name, "mlx5_2 port 1");
  EXPECT_EQ(devices[0].kind, NetworkKind::kInfiniBand);
  EXPECT_TRUE(devices[0].is_up);
  EXPECT_EQ(devices[0].state, "ACTIVE, LinkUp");
  EXPECT_EQ(devices[0].gigabits_per_second, 400);
  EXPECT_EQ(devices[0].counters.sent_bytes, 4000) << "InfiniBand counts words of 4 bytes";
  EXPECT_EQ(devices[0].counters.errors, 9);
  EXPECT_EQ(devices[0].counters.retransmissions, 10);
  EXPECT_EQ(devices[0].counters.drops, std::nullopt);
  EXPECT_EQ(devices[1].name, "mlx5_10 port 1");
  EXPECT_EQ(devices[1].kind, NetworkKind::kRoce);
  EXPECT_EQ(devices[2].kind, NetworkKind::kEfa);
  EXPECT_EQ(devices[2].counters.received_bytes, 512);
  EXPECT_EQ(devices[3].name, "eth0");
  EXPECT_EQ(devices[3].kind, NetworkKind::kEthernet);
  EXPECT_EQ(devices[3].gigabits_per_second, 25);
  EXPECT_EQ(devices[3].counters.link_losses, 1);
  EXPECT_THAT(read_network_devices(folder.file("none")), IsEmpty());
}

TEST_F(NetworkWatchTest, ALostLinkIsAProblemUntilItIsBack) {
  set_port("mlx5_10", "state", "1: DOWN");  // it has no cable
  watch.measure();
  const Instant before = monotonic_now();
  EXPECT_EQ(network_problems(watch.report()), "");
  EXPECT_EQ(describe_network(watch.report()),
            "4 network devices (1 infiniband, 1 roce, 1 efa, 1 ethernet), 3 up");
  lose_port();
  watch.measure();
  EXPECT_EQ(network_problems(watch.report()),
            "network device mlx5_2 port 1 is down (DOWN, Polling), and was up before");
  EXPECT_EQ(lost_link_since(watch.report(), before),
            "the node's network device mlx5_2 port 1 lost its link (DOWN, Polling)");
  add_port("mlx5_2", "InfiniBand", "400 Gb/sec (4X NDR)");
  watch.measure();
  EXPECT_EQ(network_problems(watch.report()), "");
  EXPECT_THAT(network_messages_since(watch.report(), before),
              ElementsAre(HasSubstr("] network: mlx5_2 port 1 lost its link (DOWN, Polling)"),
                          HasSubstr("] network: mlx5_2 port 1 is up again")));
  EXPECT_EQ(lost_link_since(watch.report(), monotonic_now()), "");
  EXPECT_EQ(watch.report().changes, 2);
}

TEST_F(NetworkWatchTest, LinksThatAreLostBetweenMeasurementsAreFoundByTheirCounters) {
  watch.measure();
  set_port("mlx5_2", "counters/link_downed", "2");
  set_interface("eth0", "carrier_down_count", "0");  // the driver was loaded again
  watch.measure();
  EXPECT_EQ(network_problems(watch.report()), "");
  ASSERT_THAT(watch.report().events, SizeIs(1));
  EXPECT_EQ(network_event_text(watch.report().events[0]),
            "mlx5_2 port 1 lost its link 2 times (it is up again)");
}

TEST_F(NetworkWatchTest, ASlowerLinkAndAMissingDeviceAreProblems) {
  watch.measure();
  set_port("mlx5_2", "rate", "100 Gb/sec (4X EDR)");
  std::filesystem::remove_all(folder.file("class/infiniband/mlx5_10"));
  watch.measure();
  EXPECT_EQ(network_problems(watch.report()),
            "network device mlx5_2 port 1 runs at 100 Gb/s instead of 400 Gb/s; network device "
            "mlx5_10 port 1 is down (it has disappeared), and was up before");
  EXPECT_EQ(network_event_text(watch.report().events[0]),
            "mlx5_2 port 1 changed its rate from 400 Gb/s to 100 Gb/s");
}

TEST_F(NetworkWatchTest, AnInterfaceThatAnAdministratorSwitchesOffIsNoProblem) {
  watch.measure();
  set_interface("eth0", "operstate", "down");
  set_interface("eth0", "flags", "0x1002");
  watch.measure();
  EXPECT_EQ(network_problems(watch.report()), "");
  EXPECT_THAT(watch.report().events, IsEmpty());
  set_interface("eth0", "flags", "0x1003");  // switched on, without a carrier
  watch.measure();
  EXPECT_EQ(network_problems(watch.report()), "");
}

TEST_F(NetworkWatchTest, ABurstOfErrorsIsOneEvent) {
  watch.measure();
  NetworkReport report = watch.report();
  const Instant begin = report.measured;
  std::vector<NetworkDevice> devices = read_network_devices(folder.path());
  const auto measure_at = [&](int seconds, uint64_t retransmissions, uint64_t timeouts) {
    devices[0].counters.retransmissions = retransmissions;
    devices[0].counters.timeouts = timeouts;
    add_measurement(report, devices, begin + std::chrono::seconds(seconds));
  };
  measure_at(5, 500, 0);  // healthy links have some
  measure_at(10, 2'000, 0);
  measure_at(15, 5'000, 1);
  measure_at(20, 9'000, 1);
  measure_at(60, 20'000, 1);
  std::vector<std::string> texts;
  for (const NetworkEvent& event : report.events) texts.push_back(network_event_text(event));
  EXPECT_THAT(texts, ElementsAre("mlx5_2 port 1 sent 8500 packets again within 10 s",
                                 "mlx5_2 port 1 had 1 packet without an acknowledgement",
                                 "mlx5_2 port 1 sent 11000 packets again"));
  EXPECT_THAT(network_messages_since(report, begin + std::chrono::seconds(20)), SizeIs(2));
  EXPECT_EQ(network_problems(report), "");
}

TEST_F(NetworkWatchTest, EventsAndDevicesAreBounded) {
  NetworkReport report;
  std::vector<NetworkDevice> devices(kNetworkDevicesMax + 5);
  for (size_t i = 0; i < devices.size(); ++i) devices[i].name = "eth" + std::to_string(i);
  for (int round = 0; round < 10; ++round) {
    for (NetworkDevice& device : devices) device.is_up = !device.is_up;
    add_measurement(report, devices, Instant(std::chrono::seconds(round)));
  }
  EXPECT_THAT(report.devices, SizeIs(kNetworkDevicesMax));
  EXPECT_THAT(report.events, SizeIs(kNetworkEventsMax));
}

}  // namespace
}  // namespace muster::worker
