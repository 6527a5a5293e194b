#include "jobspec/files/topology.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <set>
#include <system_error>

#include <absl/strings/numbers.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>

#include "common/job/limits.h"
#include "common/text/absl_view.h"
#include "common/text/nearest.h"
#include "jobspec/files/value.h"
#include "jobspec/files/yaml_file.h"
#include "trainer_core/base/units.h"

namespace muster::jobspec {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kCoresPerDeviceMax = 64;
constexpr size_t kDeviceNameBytesMax = 128;
// More machine types than any folder has.
constexpr size_t kTopologiesMax = 1000;
constexpr size_t kNearNames = 3;

// Reads the entries of a file and stores the first error.
class Reader {
 public:
  explicit Reader(std::string path) : path_(std::move(path)) {}

  template <class Integer>
  void integer(const YamlEntry& entry, int64_t max, Integer& out) {
    int64_t value = 0;
    if (entry.is_scalar && absl::SimpleAtoi(entry.text, &value) && value >= 1 && value <= max) {
      out = static_cast<Integer>(value);
    } else {
      refuse(entry, absl::StrCat("expected a number from 1 to ", max));
    }
  }
  void positive(const YamlEntry& entry, double max, double& out) {
    double value = 0;
    if (entry.is_scalar && absl::SimpleAtod(entry.text, &value) && value > 0 && value <= max) {
      out = value;
    } else {
      refuse(entry, absl::StrCat("expected a number above 0, up to ", max));
    }
  }
  void boolean(const YamlEntry& entry, bool& out) {
    const auto value = parse_value(entry.key, ValueType::kBool, entry.text);
    if (entry.is_scalar && value.ok()) {
      out = value->get<bool>();
    } else {
      refuse(entry, "expected true or false");
    }
  }
  void hardware(const YamlEntry& entry, bool& is_cpu) {
    is_cpu = entry.is_scalar && entry.text == "cpu";
    if (!is_cpu && !(entry.is_scalar && entry.text == "gpu")) refuse(entry, "expected gpu or cpu");
  }
  void name(const YamlEntry& entry, std::string& out) {
    const bool fits = entry.is_scalar && !entry.text.empty() &&
                      entry.text.size() <= kDeviceNameBytesMax && is_utf8(entry.text);
    if (fits) {
      out = entry.text;
    } else {
      refuse(entry, absl::StrCat("expected a name of at most ", kDeviceNameBytesMax, " bytes"));
    }
  }
  void refuse(const YamlEntry& entry, std::string_view what) {
    if (!status_.ok()) return;
    const std::string value =
        entry.is_scalar ? absl::StrCat("=", show(nlohmann::json(entry.text))) : "";
    status_ = absl::InvalidArgumentError(
        absl::StrCat(path_, ":", entry.line, ": ", entry.key, value, ": ", av(what)));
  }
  const absl::Status& status() const { return status_; }

 private:
  const std::string path_;
  absl::Status status_;
};

std::vector<std::string> names_in(const std::vector<std::string>& folders) {
  std::set<std::string> names;
  for (const std::string& folder : folders) {
    std::error_code error;
    for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error))
      if (it->path().extension() == ".yml" && names.size() < kTopologiesMax)
        names.insert(it->path().stem().string());
  }
  return {names.begin(), names.end()};
}

absl::Status unknown(std::string_view text, std::string_view name,
                     const std::vector<std::string>& folders) {
  const std::vector<std::string> known = names_in(folders);
  if (known.empty()) {
    return absl::NotFoundError(absl::StrCat("compile_topology=", show(std::string(text)),
                                            ": there are no topologies in ",
                                            absl::StrJoin(folders, " and ")));
  }
  const std::vector<std::string_view> views(known.begin(), known.end());
  std::vector<std::string> near;
  for (const std::string_view one : closest_names(name, views, kNearNames)) near.emplace_back(one);
  return absl::NotFoundError(
      absl::StrCat("compile_topology=", show(std::string(text)), ": no such topology in ",
                   absl::StrJoin(folders, " and "), "; the nearest of ", known.size(), ": ",
                   absl::StrJoin(near, ", "), ". A value is NAME-DEVICES, such as h100-64"));
}

bool exists(const std::vector<std::string>& folders, std::string_view name, std::string& path) {
  if (name.empty() || name.front() == '.' || name.find('/') != std::string_view::npos) return false;
  for (const std::string& folder : folders) {
    std::error_code error;
    path = absl::StrCat(folder, "/", av(name), ".yml");
    if (fs::is_regular_file(path, error)) return true;
  }
  return false;
}

// NAME-DEVICES in its two parts. `devices` is 0 if the text has no number, and -1 if the number is
// not valid.
struct Parsed {
  std::string_view name;
  int64_t devices = 0;
};

// A name may end in "-NUMBER" itself, so the complete text is tried first.
Parsed parse(std::string_view text, const std::vector<std::string>& folders, std::string& path) {
  if (exists(folders, text, path)) return {text, 0};
  const size_t dash = text.rfind('-');
  if (dash == std::string_view::npos) return {text, 0};
  int64_t devices = 0;
  const std::string_view number = text.substr(dash + 1);
  const bool is_number =
      !number.empty() && std::ranges::all_of(number, [](char c) { return c >= '0' && c <= '9'; });
  if (!is_number) return {text, 0};
  if (!absl::SimpleAtoi(av(number), &devices) || devices < 1) devices = -1;
  return {text.substr(0, dash), devices};
}

const TopologyNumber* number_of(std::string_view key) {
  const auto* const number = std::ranges::find(kTopologyNumbers, key, &TopologyNumber::key);
  return number == kTopologyNumbers.end() ? nullptr : number;
}

// Returns the cores of a rank: a whole number, unless the node has more ranks than cores.
double cores_of_rank(int32_t cores, int32_t ranks) {
  return ranks <= cores ? static_cast<double>(cores / ranks) : static_cast<double>(cores) / ranks;
}

std::vector<std::string> topology_keys() {
  std::vector<std::string> keys = {"device",           "memory_mib",       "devices_per_node",
                                   "cores_per_device", "has_backend",      "hardware",
                                   "measured",         "ranks_share_node", "node_link",
                                   "network_link",     "calibrated_as"};
  for (const TopologyNumber& number : kTopologyNumbers) keys.emplace_back(number.key);
  return keys;
}

}  // namespace

std::vector<std::string> Topology::missing_times(int32_t nodes, int32_t ranks_per_node) const {
  const auto is_needed = [&](NeededBy by) {
    return by == NeededBy::kAll || (by == NeededBy::kSeveralRanksPerNode && ranks_per_node > 1) ||
           (by == NeededBy::kSeveralNodes && nodes > 1);
  };
  std::vector<std::string> keys;
  for (const TopologyNumber& known : kTopologyNumbers)
    if (is_needed(known.needed_by) && !number(known.key)) keys.emplace_back(known.key);
  return keys;
}

std::optional<double> Topology::number(std::string_view key) const {
  const auto it = numbers.find(std::string(key));
  return it == numbers.end() ? std::nullopt : std::optional(it->second);
}

Topology with_ranks_per_node(Topology topology, int32_t ranks) {
  if (!topology.ranks_share_node) return topology;
  const double share = static_cast<double>(topology.sharing_ranks) / ranks;
  const double rate = cores_of_rank(topology.devices_per_node, ranks) /
                      cores_of_rank(topology.devices_per_node, topology.sharing_ranks);
  topology.sharing_ranks = ranks;
  topology.memory_mib =
      std::clamp<int64_t>(std::llround(static_cast<double>(topology.memory_mib) * share), 1,
                          trainer::kDeviceMemoryMibMax);
  for (const TopologyNumber& known : kTopologyNumbers) {
    const auto it = topology.numbers.find(std::string(known.key));
    if (it == topology.numbers.end()) continue;
    if (known.share == ShareOf::kNode) it->second *= share;
    if (known.share == ShareOf::kCores) it->second *= rate;
  }
  return topology;
}

absl::StatusOr<Topology> read_topology(const std::string& path) {
  const auto entries = read_yaml_file(path);
  if (!entries.ok()) return entries.status();
  Topology topology;
  topology.name = fs::path(path).stem().string();
  Reader reader(path);
  for (const YamlEntry& entry : *entries) {
    if (entry.key == "device") {
      reader.name(entry, topology.device);
    } else if (entry.key == "memory_mib") {
      reader.integer(entry, trainer::kDeviceMemoryMibMax, topology.memory_mib);
    } else if (entry.key == "devices_per_node") {
      reader.integer(entry, kRanksPerNodeMax, topology.devices_per_node);
    } else if (entry.key == "cores_per_device") {
      reader.integer(entry, kCoresPerDeviceMax, topology.cores_per_device);
    } else if (entry.key == "has_backend") {
      reader.boolean(entry, topology.has_backend);
    } else if (entry.key == "ranks_share_node") {
      reader.boolean(entry, topology.ranks_share_node);
    } else if (entry.key == "measured") {
      reader.boolean(entry, topology.is_measured);
    } else if (entry.key == "hardware") {
      reader.hardware(entry, topology.is_cpu);
    } else if (entry.key == "node_link") {
      reader.name(entry, topology.node_link);
    } else if (entry.key == "calibrated_as") {
      reader.name(entry, topology.calibrated_as);
    } else if (entry.key == "network_link") {
      reader.name(entry, topology.network_link);
    } else if (const TopologyNumber* const number = number_of(entry.key); number != nullptr) {
      reader.positive(entry, number->max, topology.numbers[entry.key]);
    } else {
      const std::vector<std::string> keys = topology_keys();
      const std::vector<std::string_view> views(keys.begin(), keys.end());
      const std::string_view near = nearest_name(entry.key, views);
      reader.refuse(entry,
                    near.empty()
                        ? absl::StrCat("unknown key; the keys are ", absl::StrJoin(keys, ", "))
                        : absl::StrCat("unknown key; did you mean ", av(near), "?"));
    }
  }
  if (!reader.status().ok()) return reader.status();
  for (const auto& [key, is_set] :
       {std::pair("ranks_share_node", topology.ranks_share_node),
        std::pair("bfloat16_speed", topology.number("bfloat16_speed").has_value())})
    if (is_set && !topology.is_cpu)
      return absl::InvalidArgumentError(
          absl::StrCat(path, ": ", key, " has an effect with hardware: cpu only"));
  topology.sharing_ranks = topology.devices_per_node;
  const std::pair<const char*, bool> required[] = {
      {"device", !topology.device.empty()},
      {"memory_mib", topology.memory_mib > 0},
      {"devices_per_node", topology.devices_per_node > 0}};
  for (const auto& [key, is_set] : required)
    if (!is_set) return absl::InvalidArgumentError(absl::StrCat(path, ": ", key, " is missing"));
  return topology;
}

absl::StatusOr<PlannedMachines> planned_machines(std::string_view text, int64_t slices,
                                                 const std::vector<std::string>& folders) {
  std::string path;
  const Parsed parsed = parse(text, folders, path);
  if (!exists(folders, parsed.name, path)) return unknown(text, parsed.name, folders);
  if (slices != -1 && (slices < 1 || slices > kNodesMax)) {
    return absl::InvalidArgumentError(absl::StrCat("compile_topology_num_slices=", slices,
                                                   ": must be from 1 to ", kNodesMax,
                                                   ", or -1 for 1"));
  }
  auto topology = read_topology(path);
  if (!topology.ok()) return topology.status();
  const std::string value = absl::StrCat("compile_topology=", show(std::string(text)));
  const int32_t cores = topology->cores_per_device, whole = topology->devices_per_node;
  const int64_t devices = parsed.devices == 0 ? whole : parsed.devices / cores;
  if (parsed.devices < 0 || (parsed.devices > 0 && parsed.devices % cores != 0)) {
    return absl::InvalidArgumentError(
        absl::StrCat(value, ": the number must be ",
                     cores == 1 ? "at least 1"
                                : absl::StrCat("a multiple of the ", cores, " cores of a device")));
  }
  if (devices > whole && devices % whole != 0) {
    const int64_t below = devices / whole * whole;
    return absl::InvalidArgumentError(
        absl::StrCat(value, ": must have whole nodes of ", whole, " devices: ", topology->name, "-",
                     below * cores, " or ", topology->name, "-", (below + whole) * cores));
  }
  PlannedMachines machines{.topology = *std::move(topology)};
  const int64_t nodes = (devices + whole - 1) / whole * std::max<int64_t>(slices, 1);
  if (nodes > kNodesMax) {
    return absl::InvalidArgumentError(absl::StrCat(value, " times ", std::max<int64_t>(slices, 1),
                                                   " slices has ", nodes,
                                                   " nodes; a job has up to ", kNodesMax));
  }
  machines.nodes = static_cast<int32_t>(nodes);
  machines.devices_per_node = static_cast<int32_t>(std::min<int64_t>(devices, whole));
  machines.topology = with_ranks_per_node(std::move(machines.topology), machines.devices_per_node);
  return machines;
}

}  // namespace muster::jobspec
