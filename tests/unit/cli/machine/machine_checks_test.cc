#include "cli/machine/machine_checks.h"

#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>

#include <absl/strings/str_cat.h>
#include <gtest/gtest.h>

#include "cli/machine/machine_facts.h"
#include "tests/unit/temp_folder.h"

namespace muster::cli {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr uint64_t kGibibyte = uint64_t{1} << 30;

MachineFacts good_machine() {
  return {.distribution = "Debian GNU/Linux 12 (bookworm)",
          .kernel = "6.1.0",
          .c_library = "2.36",
          .cpu = "a processor",
          .cpus = 8,
          .memory_bytes = 60 * kGibibyte,
          .gpus = "2 GPUs: NVIDIA H100",
          .gpu_count = 2,
          .gpu_devices = 2,
          .driver = "580.159.04",
          .trains_on_gpus = true,
          .fabric = {{"mlx5_0 port 1", "InfiniBand", "ACTIVE"}},
          .shm_bytes = 30 * kGibibyte,
          .clock_synchronized = true,
          .folder = "/scratch",
          .folder_free_bytes = 100 * kGibibyte,
          .cache = "/home/a/.cache/muster",
          .parts = {{"cores", true, "8 cores correct"}}};
}

// Returns the checks that are problems.
std::vector<std::string> problems_of(const MachineFacts& facts) {
  std::vector<std::string> names;
  for (const Finding& finding : examine_machine(facts)) {
    EXPECT_EQ(finding.ok, finding.advice.empty()) << finding.check;
    EXPECT_FALSE(finding.text.empty()) << finding.check;
    if (!finding.ok) names.emplace_back(finding.check);
  }
  return names;
}

TEST(MachineChecks, AGoodMachineHasNoProblem) {
  EXPECT_THAT(problems_of(good_machine()), ElementsAre());
  const std::string text = describe_findings(examine_machine(good_machine()));
  EXPECT_THAT(text, HasSubstr("ok       system: Debian GNU/Linux 12 (bookworm), Linux 6.1.0"));
  EXPECT_THAT(text, HasSubstr("mlx5_0 port 1 (InfiniBand, ACTIVE)"));
  EXPECT_THAT(text, HasSubstr("No problem was found."));
}

TEST(MachineChecks, EachProblemIsNamedAlone) {
  const auto problems_with = [](const std::function<void(MachineFacts&)>& change) {
    MachineFacts facts = good_machine();
    change(facts);
    return problems_of(facts);
  };
  EXPECT_THAT(problems_with([](auto& m) { m.memory_bytes = kGibibyte / 2; }),
              ElementsAre("memory"));
  EXPECT_THAT(problems_with([](auto& m) { m.gpu_count = 1; }), ElementsAre("GPUs"));
  EXPECT_THAT(problems_with([](auto& m) { m.trains_on_gpus = false; }), ElementsAre("CUDA"));
  EXPECT_THAT(problems_with([](auto& m) { m.driver = "550.54.15"; }), ElementsAre("CUDA"));
  EXPECT_THAT(problems_with([](auto& m) { m.driver = ""; }), ElementsAre());
  EXPECT_THAT(problems_with([](auto& m) { m.locked_bytes = 65536; }), ElementsAre("locked memory"));
  EXPECT_THAT(problems_with([](auto& m) { m.open_files = 256; }), ElementsAre("open files"));
  EXPECT_THAT(problems_with([](auto& m) { m.processes = 100; }), ElementsAre("processes"));
  EXPECT_THAT(problems_with([](auto& m) { m.shm_bytes = 64 << 20; }), ElementsAre("shared memory"));
  EXPECT_THAT(problems_with([](auto& m) { m.clock_synchronized = false; }),
              ElementsAre("clock synchronization"));
  EXPECT_THAT(problems_with([](auto& m) { m.folder_free_bytes = 1 << 20; }), ElementsAre("disk"));
  EXPECT_THAT(problems_with([](auto& m) { m.cache_error = "/home/a cannot be written"; }),
              ElementsAre("cache"));
  EXPECT_THAT(problems_with([](auto& m) {
                m.parts = {{"shm", false, "it is full"}, {"new", false, "it fails"}};
              }),
              ElementsAre("shared memory test", "node check"));
  EXPECT_THAT(problems_with([](auto& m) { m.parts_error = "there is no muster-trainer"; }),
              ElementsAre("node check"));
  // Without GPUs and RDMA, limits of both do not matter.
  EXPECT_THAT(problems_with([](auto& m) {
                m.gpu_count = m.gpu_devices = 0;
                m.trains_on_gpus = false;
                m.fabric.clear();
                m.locked_bytes = 65536;
                m.shm_bytes = m.memory_bytes = m.folder_free_bytes = std::nullopt;
                m.clock_synchronized = std::nullopt;
              }),
              ElementsAre());
}

TEST(MachineFacts, AreReadFromTheKernelsFiles) {
  const TempFolder folder;
  const auto write = [&](const std::string& name, const std::string& text) {
    const std::filesystem::path path = absl::StrCat(folder.path(), "/", name);
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << text << "\n";
  };
  EXPECT_EQ(nvidia_devices(folder.path()), 0);
  EXPECT_THAT(fabric_ports(folder.path()), testing::IsEmpty());
  EXPECT_EQ(distribution_of(folder.path()), "an unknown distribution");
  write("bus/pci/devices/0000:01:00.0/vendor", "0x10de");
  write("bus/pci/devices/0000:01:00.0/class", "0x030200");
  write("bus/pci/devices/0000:01:00.1/vendor", "0x10de");
  write("bus/pci/devices/0000:01:00.1/class", "0x040300");  // its sound device
  write("bus/pci/devices/0000:02:00.0/vendor", "0x8086");
  write("bus/pci/devices/0000:02:00.0/class", "0x030000");
  EXPECT_EQ(nvidia_devices(folder.path()), 1);
  write("class/infiniband/mlx5_1/ports/1/state", "1: DOWN");
  write("class/infiniband/mlx5_1/ports/1/link_layer", "Ethernet");
  write("class/infiniband/mlx5_0/ports/1/state", "4: ACTIVE");
  write("class/infiniband/mlx5_0/ports/1/link_layer", "InfiniBand");
  const auto ports = fabric_ports(folder.path());
  ASSERT_EQ(ports.size(), 2U);
  EXPECT_EQ(ports[0].name, "mlx5_0 port 1");
  EXPECT_EQ(ports[0].state, "ACTIVE");
  EXPECT_EQ(ports[1].state, "DOWN");
  EXPECT_EQ(ports[1].layer, "Ethernet");
  write("os-release", "ID=x\nPRETTY_NAME=\"A Linux 1\"");
  EXPECT_EQ(distribution_of(folder.path()), "A Linux 1");
}

}  // namespace
}  // namespace muster::cli
