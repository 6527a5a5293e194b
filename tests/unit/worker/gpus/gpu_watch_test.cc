#include "worker/gpus/gpu_watch.h"

#include <gmock/gmock.h>
#include <stdlib.h>

#include <functional>
#include <thread>

#include <gtest/gtest.h>

#include "tests/paths.h"
#include "tests/unit/temp_folder.h"
#include "worker/gpus/gpu_inventory.h"

namespace muster::worker {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

// An environment variable of this process names the fake library's file. It is set once: the thread
// of a watch whose driver hangs outlives its test, and reads the variable.
class GpuWatchTest : public testing::Test {
 protected:
  static void SetUpTestSuite() { setenv("MUSTER_FAKE_NVML", folder().file("gpus").c_str(), 1); }

  // Belongs to all tests of this process, and is removed at its end.
  static TempFolder& folder() {
    static TempFolder all;
    return all;
  }

  // Replaces the file at once: the library may be reading it.
  void gpus(const std::string& text) {
    write_file(folder().file("new"), text);
    std::filesystem::rename(folder().file("new"), folder().file("gpus"));
  }

  static GpuWatchOptions options() {
    return {.library = bin_dir() + "/../fake_nvml/libnvidia-ml.so.1",
            .visible = std::nullopt,
            .interval = milliseconds(20),
            .topology_xml = {}};
  }

  static GpuReport wait_for(const GpuWatch& watch,
                            const std::function<bool(const GpuReport&)>& condition) {
    const Instant until = monotonic_now() + seconds(20);
    while (monotonic_now() < until) {
      if (const GpuReport report = watch.report(); condition(report)) return report;
      std::this_thread::sleep_for(milliseconds(5));
    }
    ADD_FAILURE() << "waited in vain";
    return watch.report();
  }
};

TEST_F(GpuWatchTest, FindsGpusAndMeasuresThem) {
  gpus(
      "driver 535.1\n"
      "gpu bus=16 temperature=65 power=300500 sm=1980 mem=2619 throttle=64 corrected=2 "
      "uncorrected=0 remap_failed=0 used=1000 utilization=97\n"
      "gpu bus=32\n");
  const GpuWatch watch(options());
  EXPECT_TRUE(watch.wait_until_found(seconds(20)).is_listed);
  const GpuReport report = watch.measure(seconds(20));
  ASSERT_THAT(report.gpus, SizeIs(2));
  EXPECT_EQ(report.driver, "535.1");
  EXPECT_EQ(report.gpus[1].gpu.index, 1);
  EXPECT_EQ(report.gpus[1].gpu.uuid, "GPU-00000001-fa4e-0000-0000-000000000000");
  EXPECT_EQ(report.gpus[1].gpu.name, "NVIDIA Fake 80GB");
  EXPECT_EQ(report.gpus[1].gpu.memory_bytes, uint64_t{80} << 30);
  const GpuHealth& health = report.gpus[0].health;
  EXPECT_EQ(health.temperature_celsius, 65);
  EXPECT_EQ(health.power_watts, 300.5);
  EXPECT_EQ(health.sm_clock_hertz, 1980e6);
  EXPECT_EQ(health.memory_clock_hertz, 2619e6);
  EXPECT_EQ(health.throttle_reasons, kThrottleThermalHardware);
  EXPECT_EQ(health.ecc_corrected, 2);
  EXPECT_EQ(health.memory_used_bytes, 1000);
  EXPECT_EQ(health.utilization, 0.97);
  EXPECT_FALSE(report.gpus[1].health.temperature_celsius);  // not supported by it
  EXPECT_EQ(why_unfit(report, monotonic_now()), "");
  EXPECT_EQ(describe_gpus(report), "2 GPUs NVIDIA Fake 80GB, driver 535.1");
}

TEST_F(GpuWatchTest, WithoutALibraryThereAreNoGpusAndAReason) {
  GpuWatchOptions without = options();
  without.library = "libnot-there.so.1";
  const GpuReport report = GpuWatch(without).wait_until_found(seconds(20));
  EXPECT_TRUE(report.is_listed);
  EXPECT_THAT(report.gpus, IsEmpty());
  EXPECT_THAT(describe_gpus(report), HasSubstr("no GPUs: no NVIDIA driver is installed here"));
  EXPECT_EQ(why_unfit(report, report.answered + std::chrono::hours(1)), "");
}

TEST_F(GpuWatchTest, ATimeoutMeansNoGpusAndAdvice) {
  EXPECT_EQ(missing_gpus_reason(GpuReport{}),
            "NVML did not answer within 60 s of the worker's start: restart the worker once "
            "nvidia-smi answers");
}

TEST_F(GpuWatchTest, AnUnusableDriverGivesAdvice) {
  gpus("init 18\ngpu bus=16\n");
  EXPECT_THAT(describe_gpus(GpuWatch(options()).wait_until_found(seconds(20))),
              AllOf(HasSubstr("no GPUs: the NVIDIA driver's library and its kernel module are of "
                              "different versions"),
                    HasSubstr("Driver/library version mismatch"), HasSubstr("reboot the node")));
  gpus("init 9\n");
  EXPECT_THAT(describe_gpus(GpuWatch(options()).wait_until_found(seconds(20))),
              HasSubstr("the NVIDIA driver is not loaded"));
  gpus("");
  EXPECT_EQ(describe_gpus(GpuWatch(options()).wait_until_found(seconds(20))),
            "no GPUs: the driver reports none");
}

TEST_F(GpuWatchTest, AGpuThatCannotBeOpenedMakesTheNodeUnfit) {
  gpus("gpu bus=16 silent=1\ngpu bus=32\n");
  const GpuReport report = GpuWatch(options()).wait_until_found(seconds(20));
  ASSERT_THAT(report.gpus, SizeIs(1));
  EXPECT_EQ(report.gpus[0].gpu.index, 1);
  EXPECT_EQ(why_unfit(report, monotonic_now()),
            "GPU 0 does not answer, though the driver counts it");
}

TEST_F(GpuWatchTest, GpusThatAControlGroupLeavesToOthersAreNotMissed) {
  gpus("gpu bus=16 forbidden=1\ngpu bus=32\n");
  GpuWatchOptions first = options();
  first.visible = "0";  // CUDA does not count the others
  for (const GpuWatchOptions& some : {options(), first}) {
    const GpuReport report = GpuWatch(some).wait_until_found(seconds(20));
    ASSERT_THAT(report.gpus, SizeIs(1));
    EXPECT_EQ(report.gpus[0].gpu.index, 1);
    EXPECT_EQ(why_unfit(report, monotonic_now()), "");
  }
}

TEST_F(GpuWatchTest, AnXidIsReportedAtOnceAndRemembered) {
  gpus("gpu bus=16\ngpu bus=32\n");
  GpuWatchOptions slow = options();
  slow.interval = std::chrono::hours(1);  // so that no measurement finds it
  const GpuWatch watch(slow);
  const Instant before = monotonic_now();
  EXPECT_EQ(watch.wait_until_found(seconds(20)).changes, 0);
  gpus("gpu bus=16\ngpu bus=32\nxid 0 31\nxid 1 79\nxid 1 45\n");
  const GpuReport report = wait_for(watch, [](const auto& r) { return r.changes == 3; });
  EXPECT_EQ(report.gpus[0].problem, "");  // Xid 31 is the program's fault
  EXPECT_EQ(report.gpus[1].problem, "GPU 1 is lost (Xid 79: fallen off the bus)");
  EXPECT_THAT(report.gpus[1].xids, ElementsAre(std::pair(45, 1), std::pair(79, 1)));
  EXPECT_EQ(why_unfit(report, monotonic_now()), "GPU 1 is lost (Xid 79: fallen off the bus)");

  const Instant now = monotonic_now();
  const GpuErrors of_second = errors_since(report, std::vector<int32_t>{1}, before, now);
  EXPECT_EQ(of_second.cause, "GPU 1 is lost (Xid 79: fallen off the bus)");
  EXPECT_THAT(of_second.messages,
              ElementsAre(HasSubstr("] NVML: GPU 1 is lost"), HasSubstr("GPU 1 reports Xid 45")));
  const GpuErrors of_first = errors_since(report, std::vector<int32_t>{0}, before, now);
  EXPECT_EQ(of_first.cause, "");
  EXPECT_THAT(of_first.messages, ElementsAre(HasSubstr("Xid 31: memory page fault")));
  // A rank that is started on it later ends because of it, too.
  EXPECT_EQ(errors_since(report, std::vector<int32_t>{1}, now, now).cause,
            "GPU 1 is lost (Xid 79: fallen off the bus)");
}

TEST_F(GpuWatchTest, WithoutEventsAMeasurementFindsALostGpu) {
  gpus("no_events\ngpu bus=16\n");
  GpuWatchOptions slow = options();
  slow.interval = std::chrono::hours(1);
  const GpuWatch watch(slow);
  EXPECT_EQ(watch.measure(seconds(20)).gpus.at(0).problem, "");
  gpus("no_events\ngpu bus=16 lost=1\n");
  EXPECT_EQ(watch.measure(seconds(20)).gpus.at(0).problem,
            "GPU 0 is lost (NVML no longer finds it)");
}

TEST_F(GpuWatchTest, NewErrorsOfTheMemoryExplainAnEndAndThoseOfBeforeDoNot) {
  gpus("gpu bus=16 uncorrected=3 remap_failed=0\n");
  const GpuWatch watch(options());
  EXPECT_EQ(watch.measure(seconds(20)).changes, 0);
  gpus("gpu bus=16 uncorrected=5 remap_failed=0\n");
  GpuReport report = wait_for(watch, [](const auto& r) { return r.changes == 1; });
  EXPECT_EQ(errors_since(report, std::vector<int32_t>{0}, Instant{}, monotonic_now()).cause,
            "GPU 0 has 2 new memory errors that ECC could not correct");
  EXPECT_EQ(why_unfit(report, monotonic_now()), "");
  gpus("gpu bus=16 uncorrected=5 remap_failed=1\n");
  report = wait_for(watch, [](const auto& r) { return r.changes == 2; });
  EXPECT_EQ(why_unfit(report, monotonic_now()), "GPU 0 has bad memory that could not be remapped");
}

TEST_F(GpuWatchTest, AHangingDriverIsReportedAndBlocksNoCaller) {
  gpus("gpu bus=16\n");
  const Instant began = monotonic_now();
  {
    const GpuWatch watch(options());
    EXPECT_EQ(nvml_silence(watch.measure(seconds(20)), monotonic_now()), "");
    gpus("hang\ngpu bus=16\n");
    std::this_thread::sleep_for(milliseconds(200));
    const GpuReport report = watch.measure(milliseconds(50));
    EXPECT_GT(monotonic_now() - report.answered, milliseconds(100));
    EXPECT_EQ(why_unfit(report, report.answered + kNvmlSilence),
              "NVML has not answered for 15 s: a GPU or its driver hangs");
    EXPECT_THAT(
        errors_since(report, std::vector<int32_t>{0}, Instant{}, report.answered + kNvmlSilence)
            .messages,
        ElementsAre(HasSubstr("NVML has not answered")));
  }
  EXPECT_LT(monotonic_now() - began, seconds(15));  // the destructor does not wait for it
  gpus("gpu bus=16\n");
}

TEST_F(GpuWatchTest, CudaVisibleDevicesSelectsTheGpus) {
  gpus("gpu bus=16\ngpu bus=32\ngpu bus=48\n");
  const auto seen = [](const std::string& visible) {
    GpuWatchOptions some = options();
    some.visible = visible;
    std::vector<int32_t> indices;
    for (const GpuState& gpu : GpuWatch(some).wait_until_found(seconds(20)).gpus)
      indices.push_back(gpu.gpu.index);
    return indices;
  };
  EXPECT_THAT(seen("2,0"), ElementsAre(2, 0));
  EXPECT_THAT(seen("GPU-00000001"), ElementsAre(1));
  EXPECT_THAT(seen("0, 7,1"), ElementsAre(0));  // CUDA stops at the first invalid entry
  EXPECT_THAT(seen("1,1"), ElementsAre(1));
  EXPECT_THAT(seen(""), IsEmpty());
  EXPECT_THAT(seen("-1"), IsEmpty());
}

TEST_F(GpuWatchTest, HwlocProvidesNearCpus) {
  gpus("gpu bus=16\ngpu bus=32\ngpu bus=48\n");
  GpuWatchOptions placed = options();
  placed.topology_xml = source_dir() + "/tests/fake_nvml/two_nodes.xml";
  const GpuReport report = GpuWatch(placed).wait_until_found(seconds(20));
  ASSERT_THAT(report.gpus, SizeIs(3));
  EXPECT_EQ(report.gpus[0].gpu.numa_node, 0);
  EXPECT_THAT(report.gpus[0].cpus, ElementsAre(0));
  EXPECT_EQ(report.gpus[1].gpu.numa_node, 1);
  EXPECT_THAT(report.gpus[1].cpus, ElementsAre(1));
  EXPECT_EQ(report.gpus[2].gpu.numa_node, -1);  // hwloc lists no such device
  EXPECT_THAT(report.gpus[2].cpus, IsEmpty());
}

TEST_F(GpuWatchTest, AMissingGpuIsReportedUntilTheInventoryIsRemoved) {
  const std::string path = folder().file("gpus.json");
  const auto missing = [&](const std::string& file, GpuWatchOptions how) {
    gpus(file);
    return missing_gpus(path, GpuWatch(std::move(how)).wait_until_found(seconds(20)));
  };
  EXPECT_THAT(missing("", options()), IsEmpty());
  EXPECT_FALSE(std::filesystem::exists(path)) << "there is nothing to remember";
  EXPECT_THAT(missing("gpu bus=16\ngpu bus=32\n", options()), IsEmpty());
  GpuWatchOptions one = options();
  one.visible = "0";
  EXPECT_THAT(missing("gpu bus=16\ngpu bus=32\n", one), IsEmpty()) << "it is here, if unused";
  const auto gone = AllOf(HasSubstr("GPU-00000001-fa4e-0000-0000-000000000000 (NVIDIA Fake 80GB) "
                                    "was here before"),
                          HasSubstr("if it was taken out, remove " + path));
  EXPECT_THAT(missing("gpu bus=16\n", options()), ElementsAre(gone));
  EXPECT_THAT(missing("gpu bus=16\n", options()), ElementsAre(gone)) << "and still is";
  EXPECT_THAT(missing("init 9\n", options()), SizeIs(2));
  EXPECT_THAT(missing("gpu bus=16\ngpu bus=32\n", options()), IsEmpty());
  write_file(path, R"({"GPU-of-another-host": "NVIDIA Fake 80GB"})");
  EXPECT_THAT(missing("gpu bus=16\n", options()), IsEmpty()) << "as many are here";
  EXPECT_THAT(read_file(path), HasSubstr("GPU-00000000"));
  write_file(path, "[nonsense");
  EXPECT_THAT(missing("gpu bus=16\n", options()), IsEmpty());
  std::filesystem::remove(path);
  EXPECT_THAT(missing("gpu bus=16\n", options()), IsEmpty());
}

}  // namespace
}  // namespace muster::worker
