#include "cli/machine/machine_facts.h"

#include <gnu/libc-version.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/timex.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <system_error>

#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/strip.h>
#include <nlohmann/json.hpp>

#include "cli/run/build_features.h"
#include "cli/run/this_machine.h"
#include "cli/terminal/child_process.h"
#include "common/files/find_program.h"
#include "common/files/free_space.h"
#include "common/files/user_cache.h"
#include "common/process/run_child.h"
#include "common/process/usable_cpus.h"
#include "common/text/escape.h"
#include "common/time/time.h"
#include "trainer_core/base/machine_memory.h"

namespace muster::cli {
namespace {

namespace fs = std::filesystem;

// The worker gives NVML a minute to initialise GPUs.
constexpr Duration kWorkerDeadline = std::chrono::seconds(70);
constexpr Duration kCheckDeadline = std::chrono::seconds(60);
constexpr size_t kTextBytesMax = 500;
constexpr size_t kPortsMax = 64;

struct OptionalProgram {
  const char* name;
  const char* use;
};
constexpr std::array kPrograms = {OptionalProgram{"rclone", "s3:// and gs:// addresses"},
                                  OptionalProgram{"py-spy", "stacks of Python programs"},
                                  OptionalProgram{"nsys", "profiles of GPUs"},
                                  OptionalProgram{"sbatch", "Slurm"},
                                  OptionalProgram{"kubectl", "Kubernetes"}};

std::string first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

// Returns the entries of a folder in order of their names; empty if it cannot be read.
std::vector<fs::path> entries_of(const std::string& folder) {
  std::vector<fs::path> entries;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error))
    entries.push_back(entry->path());
  std::ranges::sort(entries);
  return entries;
}

std::optional<uint64_t> limit_of(int resource) {
  rlimit limit{};
  if (getrlimit(static_cast<__rlimit_resource_t>(resource), &limit) != 0) return std::nullopt;
  const rlim_t value = resource == RLIMIT_NOFILE ? limit.rlim_max : limit.rlim_cur;
  if (value == RLIM_INFINITY) return std::nullopt;
  return value;
}

// Runs a program of Muster that prints a JSON object.
absl::StatusOr<nlohmann::json> object_of(const std::string& name, std::vector<std::string> words,
                                         Duration within) {
  const auto program = sibling_program(name);
  if (!program.ok()) return program.status();
  words.insert(words.begin(), *program);
  const auto end = run_child(words, {.deadline = monotonic_now() + within});
  if (!end.ok()) return end.status();
  auto found = nlohmann::json::parse(end->output, nullptr, /*allow_exceptions=*/false);
  if (!found.is_object())
    return absl::InternalError(
        absl::StrCat(name, " ended with exit code ", end->exit_code, ": ",
                     printable(end->errors.empty() ? end->output : end->errors, kTextBytesMax)));
  return found;
}

std::string text_of(const nlohmann::json& object, const char* name) {
  const auto found = object.find(name);
  return found != object.end() && found->is_string()
             ? printable(found->get<std::string>(), kTextBytesMax)
             : "";
}

void read_gpus(const DoctorRoots& roots, MachineFacts& facts) {
  facts.trains_on_gpus = kHasGpuBackend;
  facts.gpu_devices = nvidia_devices(roots.sys);
  const auto listed = object_of("muster-worker", {"--list-gpus"}, kWorkerDeadline);
  if (!listed.ok()) {
    facts.gpus = std::string(listed.status().message());
    return;
  }
  facts.gpus = text_of(*listed, "sentence");
  facts.driver = text_of(*listed, "driver");
  if (const auto gpus = listed->find("gpus"); gpus != listed->end() && gpus->is_array())
    facts.gpu_count = static_cast<int32_t>(gpus->size());
}

void read_parts(const std::string& folder, MachineFacts& facts) {
  const auto checked =
      object_of("muster-trainer", {"check-node", "--json", "--work-dir", folder}, kCheckDeadline);
  const auto parts = checked.ok() ? checked->find("parts") : nlohmann::json::const_iterator();
  if (!checked.ok() || parts == checked->end() || !parts->is_array()) {
    facts.parts_error = checked.ok() ? "it has no parts" : std::string(checked.status().message());
    return;
  }
  for (const auto& part : *parts) {
    if (!part.is_object()) continue;
    facts.parts.push_back({text_of(part, "name"), part.value("passed", nlohmann::json()) == true,
                           text_of(part, "text")});
  }
}

void read_cache(MachineFacts& facts) {
  facts.cache = user_cache_folder();
  // The nearest folder that exists must be writable.
  fs::path folder = facts.cache;
  std::error_code error;
  while (!folder.empty() && !fs::exists(folder, error)) {
    if (folder == folder.parent_path()) break;
    folder = folder.parent_path();
  }
  if (access(folder.c_str(), W_OK) != 0)
    facts.cache_error = absl::StrCat(folder.string(), " cannot be written");
}

}  // namespace

std::string distribution_of(const std::string& etc) {
  std::ifstream file(absl::StrCat(etc, "/os-release"));
  for (std::string line; std::getline(file, line);) {
    if (!absl::StartsWith(line, "PRETTY_NAME=")) continue;
    std::string name = line.substr(line.find('=') + 1);
    std::erase(name, '"');
    return printable(name, kTextBytesMax);
  }
  return "an unknown distribution";
}

int32_t nvidia_devices(const std::string& sys) {
  int32_t count = 0;
  for (const fs::path& device : entries_of(absl::StrCat(sys, "/bus/pci/devices"))) {
    // Display controllers of NVIDIA; a GPU's sound device has another class.
    count += first_line(device / "vendor") == "0x10de" &&
             absl::StartsWith(first_line(device / "class"), "0x03");
  }
  return count;
}

std::vector<FabricPort> fabric_ports(const std::string& sys) {
  std::vector<FabricPort> ports;
  for (const fs::path& device : entries_of(absl::StrCat(sys, "/class/infiniband"))) {
    for (const fs::path& port : entries_of(device / "ports")) {
      if (ports.size() == kPortsMax) return ports;
      std::string state = first_line(port / "state");  // "4: ACTIVE"
      if (const size_t colon = state.find(": "); colon != std::string::npos)
        state.erase(0, colon + 2);
      ports.push_back(
          {printable(absl::StrCat(device.filename().string(), " port ", port.filename().string()),
                     kTextBytesMax),
           printable(first_line(port / "link_layer"), kTextBytesMax),
           printable(state, kTextBytesMax)});
    }
  }
  return ports;
}

MachineFacts read_machine(const std::string& folder, const DoctorRoots& roots) {
  MachineFacts facts;
  facts.distribution = distribution_of(roots.etc);
  if (utsname system{}; uname(&system) == 0) facts.kernel = system.release;
  facts.c_library = gnu_get_libc_version();
  facts.cpu = "an unknown processor";
  std::istringstream cpuinfo(own_cpuinfo());
  for (std::string line; std::getline(cpuinfo, line);) {
    if (!absl::StartsWith(line, "model name")) continue;
    facts.cpu = printable(line.substr(std::min(line.find(':') + 2, line.size())), kTextBytesMax);
    break;
  }
  facts.cpus = usable_cpus(roots.machine);
  if (const auto quota = cpu_quota(roots.machine); quota && facts.cpus < cpus_in_mask())
    facts.cpu_limit = quota->file;
  if (const auto memory = trainer::available_memory(roots.machine)) {
    facts.memory_bytes = memory->bytes;
    facts.memory_limit = trainer::limit_note(*memory);
  }
  read_gpus(roots, facts);
  facts.fabric = fabric_ports(roots.sys);
  facts.open_files = limit_of(RLIMIT_NOFILE);
  facts.processes = limit_of(RLIMIT_NPROC);
  facts.locked_bytes = limit_of(RLIMIT_MEMLOCK);
  if (struct statvfs shm{}; statvfs("/dev/shm", &shm) == 0)
    facts.shm_bytes = uint64_t{shm.f_blocks} * shm.f_frsize;
  if (timex clock{}; true) {
    const int state = adjtimex(&clock);
    if (state >= 0) facts.clock_synchronized = (clock.status & STA_UNSYNC) == 0;
  }
  facts.folder = folder;
  facts.folder_free_bytes = free_space_bytes(folder);
  read_cache(facts);
  for (const OptionalProgram& program : kPrograms) {
    if (find_program_in_path(program.name).ok() || sibling_program(program.name).ok())
      facts.programs.emplace_back(program.name);
    else
      facts.absent.push_back(absl::StrCat(program.name, " (", program.use, ")"));
  }
  read_parts(folder, facts);
  return facts;
}

}  // namespace muster::cli
