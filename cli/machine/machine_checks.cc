#include "cli/machine/machine_checks.h"

#include <algorithm>
#include <map>

#include <absl/strings/numbers.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>
#include <absl/strings/str_join.h>

#include "common/text/absl_view.h"

namespace muster::cli {
namespace {

constexpr uint64_t kGiB = uint64_t{1} << 30;
constexpr uint64_t kMemoryMin = kGiB;
constexpr uint64_t kFolderMin = kGiB;
// Docker's default is 64 MiB, in which NCCL and data loaders fail.
constexpr uint64_t kShmMin = kGiB;
constexpr uint64_t kOpenFilesMin = 1024;
// PyTorch starts dozens of threads per rank.
constexpr uint64_t kProcessesMin = 4096;
// CUDA 13 needs this driver (release notes of the CUDA Toolkit, table of drivers).
constexpr int kDriverMin = 580;

std::string size_text(uint64_t bytes) {
  if (bytes < kGiB)
    return absl::StrFormat("%.0f MiB", static_cast<double>(bytes) / static_cast<double>(1 << 20));
  return absl::StrFormat("%.1f GiB", static_cast<double>(bytes) / static_cast<double>(kGiB));
}

// Returns a finding that is a problem if `advice` is not empty.
Finding finding_of(const char* check, std::string text, std::string advice = "") {
  return {check, advice.empty(), std::move(text), std::move(advice)};
}

Finding size_finding(const char* check, const std::optional<uint64_t>& bytes, uint64_t needed,
                     const std::string& of, const std::string& advice) {
  if (!bytes) return finding_of(check, absl::StrCat("the size of ", of, " cannot be read"));
  return finding_of(check, absl::StrCat(size_text(*bytes), " ", of), *bytes < needed ? advice : "");
}

Finding limit_finding(const char* check, const std::optional<uint64_t>& limit, uint64_t needed,
                      const std::string& advice) {
  return finding_of(check, limit ? absl::StrCat("at most ", *limit) : "unlimited",
                    limit && *limit < needed ? advice : "");
}

Finding gpu_finding(const MachineFacts& facts) {
  if (facts.gpu_count < facts.gpu_devices) {
    return finding_of(
        "GPUs", absl::StrCat(facts.gpus, "; NVIDIA GPUs on the PCI bus: ", facts.gpu_devices),
        facts.driver.empty() ? "install NVIDIA's driver; in a container, pass the GPUs to it"
                             : "read the kernel's messages (dmesg) about NVRM and Xid; "
                               "CUDA_VISIBLE_DEVICES may hide GPUs");
  }
  return finding_of("GPUs", facts.gpus);
}

Finding cuda_finding(const MachineFacts& facts) {
  if (facts.gpu_count == 0)
    return finding_of("CUDA", facts.trains_on_gpus ? "this build also trains on GPUs"
                                                   : "this build trains on CPUs");
  if (!facts.trains_on_gpus)
    return finding_of("CUDA", "this build trains on CPUs; it runs other programs on GPUs",
                      "to train on GPUs, use a build with -DMUSTER_CUDA=ON or a bundle with "
                      "--cuda (docs/gpu.md)");
  int driver = 0;
  const size_t dot = facts.driver.find('.');
  if (absl::SimpleAtoi(av(std::string_view(facts.driver).substr(0, dot)), &driver) &&
      driver < kDriverMin)
    return finding_of("CUDA", absl::StrCat("driver ", facts.driver),
                      absl::StrCat("CUDA 13 needs driver ", kDriverMin, " or newer"));
  return finding_of("CUDA", absl::StrCat("driver ", facts.driver));
}

std::vector<Finding> fabric_findings(const MachineFacts& facts) {
  if (facts.fabric.empty())
    return {finding_of("fabric", "no InfiniBand, RoCE or EFA device: nodes exchange over TCP")};
  std::vector<std::string> ports;
  for (const FabricPort& port : facts.fabric)
    ports.push_back(absl::StrCat(port.name, " (", port.layer, ", ", port.state, ")"));
  return {finding_of("fabric", absl::StrJoin(ports, ", ")),
          finding_of("locked memory",
                     facts.locked_bytes ? absl::StrCat("at most ", size_text(*facts.locked_bytes))
                                        : "unlimited",
                     facts.locked_bytes
                         ? "RDMA needs locked memory: ulimit -l unlimited, LimitMEMLOCK=infinity "
                           "of a systemd unit, or the limits of slurmd"
                         : "")};
}

const std::map<std::string, std::pair<const char*, const char*>> kParts = {
    {"cores", {"cores", "replace the processor, or exclude the node"}},
    {"memory", {"memory test", "replace the memory, or exclude the node"}},
    {"work_dir", {"writing", "repair the file system, or name another with --folder"}},
    {"shm", {"shared memory test", "make room in /dev/shm"}},
    {"loopback", {"loopback", "bring the interface lo up"}},
    {"clock", {"clock", "set the clock"}}};

}  // namespace

std::vector<Finding> examine_machine(const MachineFacts& facts) {
  std::vector<Finding> findings = {
      finding_of("system", absl::StrCat(facts.distribution, ", Linux ", facts.kernel, ", glibc ",
                                        facts.c_library)),
      finding_of("CPUs",
                 absl::StrCat(facts.cpus, facts.cpus == 1 ? " CPU" : " CPUs", " of ", facts.cpu,
                              facts.cpu_limit.empty() ? "" : ", limited by ", facts.cpu_limit)),
      size_finding("memory", facts.memory_bytes, kMemoryMin,
                   absl::StrCat("available", facts.memory_limit),
                   "end other programs, or raise the limit"),
      gpu_finding(facts), cuda_finding(facts)};
  std::ranges::move(fabric_findings(facts), std::back_inserter(findings));
  findings.push_back(limit_finding("open files", facts.open_files, kOpenFilesMin,
                                   "raise ulimit -Hn, or LimitNOFILE= of a systemd unit"));
  findings.push_back(limit_finding("processes", facts.processes, kProcessesMin,
                                   "raise ulimit -u, TasksMax= of a systemd unit or pids.max"));
  findings.push_back(size_finding(
      "shared memory", facts.shm_bytes, kShmMin, "in /dev/shm",
      "ranks of a node, NCCL and data loaders exchange through it: docker run --shm-size=8g, or a "
      "volume emptyDir with medium: Memory in Kubernetes"));
  if (facts.clock_synchronized) {
    findings.push_back(
        finding_of("clock synchronization",
                   *facts.clock_synchronized ? "the kernel's clock is synchronized"
                                             : "the kernel's clock is not synchronized",
                   *facts.clock_synchronized
                       ? ""
                       : "times of logs and incidents of several nodes mislead: start chrony or "
                         "systemd-timesyncd"));
  }
  findings.push_back(size_finding("disk", facts.folder_free_bytes, kFolderMin,
                                  absl::StrCat("free in ", facts.folder),
                                  "make room, or name another folder with --folder"));
  findings.push_back(finding_of(
      "cache",
      facts.cache_error.empty() ? absl::StrCat(facts.cache, " can be written") : facts.cache_error,
      facts.cache_error.empty() ? "" : "set XDG_CACHE_HOME to a folder that you may write"));
  findings.push_back(finding_of(
      "programs",
      absl::StrCat(
          facts.programs.empty() ? "none found" : absl::StrJoin(facts.programs, ", "),
          facts.absent.empty() ? "" : "; not found: ", absl::StrJoin(facts.absent, ", "))));
  if (!facts.parts_error.empty())
    findings.push_back(finding_of("node check", facts.parts_error,
                                  "muster-trainer must be beside muster and run here"));
  for (const MachinePart& part : facts.parts) {
    const auto known = kParts.find(part.name);
    findings.push_back(finding_of(known == kParts.end() ? "node check" : known->second.first,
                                  part.text,
                                  part.passed             ? ""
                                  : known == kParts.end() ? "exclude the node"
                                                          : known->second.second));
  }
  return findings;
}

}  // namespace muster::cli
