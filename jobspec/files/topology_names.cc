#include "jobspec/files/topology_names.h"

#include <algorithm>
#include <filesystem>
#include <functional>
#include <map>
#include <system_error>
#include <utility>

#include <absl/strings/ascii.h>
#include <absl/strings/match.h>
#include <absl/strings/strip.h>

#include "common/text/absl_view.h"

namespace muster::jobspec {
namespace {

namespace fs = std::filesystem;

// Returns lower-case letters and digits, with one '-' for each sequence of other characters, and
// without the vendor: "NVIDIA H100 80GB HBM3" gives "h100-80gb-hbm3".
std::string normalized(std::string_view name) {
  std::string text;
  for (const char c : name) {
    if (absl::ascii_isalnum(static_cast<unsigned char>(c))) {
      text.push_back(absl::ascii_tolower(static_cast<unsigned char>(c)));
    } else if (!text.empty() && text.back() != '-') {
      text.push_back('-');
    }
  }
  if (!text.empty() && text.back() == '-') text.pop_back();
  return std::string(absl::StripPrefix(absl::StripPrefix(text, "nvidia-"), "amd-"));
}

// Returns whether `name` is `start`, or continues it with a further part: "h100-pcie" and "h100".
bool continues(const std::string& name, const std::string& start) {
  return !start.empty() && (name == start || absl::StartsWith(name, start + "-"));
}

// Returns the topology with the most memory, and the first of equal ones, of those that match.
template <class Predicate>
std::optional<Topology> largest_of(const std::vector<Topology>& topologies,
                                   const Predicate& matches) {
  const Topology* best = nullptr;
  for (const Topology& topology : topologies) {
    if (!std::invoke(matches, topology)) continue;
    if (best == nullptr || topology.memory_mib > best->memory_mib) best = &topology;
  }
  return best == nullptr ? std::nullopt : std::optional(*best);
}

// Reads the machine types in `folders`, by name; those of earlier folders replace others.
std::vector<Topology> read_all(const std::vector<std::string>& folders) {
  std::map<std::string, Topology> found;
  for (const std::string& folder : folders) {
    std::error_code error;
    for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
      if (it->path().extension() != ".yml") continue;
      auto topology = read_topology(it->path().string());
      if (topology.ok()) found.emplace(topology->name, *std::move(topology));
    }
  }
  std::vector<Topology> topologies;
  for (auto& [name, topology] : found) topologies.push_back(std::move(topology));
  return topologies;
}

}  // namespace

std::vector<Topology> all_topologies(const std::vector<std::string>& folders) {
  std::vector<Topology> topologies = read_all(folders);
  std::erase_if(topologies, [](const Topology& one) { return one.is_cpu; });
  return topologies;
}

std::optional<Topology> measured_cpu(std::string_view device, int32_t cores,
                                     const std::vector<std::string>& folders) {
  for (Topology& topology : read_all(folders))
    if (topology.is_cpu && topology.is_measured && topology.device == device &&
        topology.devices_per_node == cores)
      return std::move(topology);
  return std::nullopt;
}

std::optional<Topology> topology_named(std::string_view name,
                                       const std::vector<Topology>& topologies) {
  const std::string wanted = normalized(name);
  if (wanted.empty()) return std::nullopt;
  std::string own;  // the longest name that `name` is or continues
  for (const Topology& topology : topologies) {
    const std::string one = normalized(topology.name);
    // Google Cloud writes "a3-highgpu-8g" for the type "a3-high".
    if ((continues(wanted, one) || absl::StartsWith(wanted, one + "gpu-")) &&
        one.size() > own.size())
      own = one;
  }
  if (own != wanted) {
    for (const Topology& topology : topologies)
      if (normalized(topology.device) == wanted) return topology;
  }
  // A short name leaves the memory open: "h100" may have 80 or 96 GB.
  auto by_device = largest_of(
      topologies, [&](const Topology& one) { return continues(normalized(one.device), wanted); });
  if (own != wanted && by_device) return by_device;
  if (own.empty()) return std::nullopt;
  return largest_of(topologies,
                    [&](const Topology& one) { return continues(normalized(one.name), own); });
}

bool denotes_device(std::string_view name, const Topology& topology) {
  const std::string device = normalized(topology.device);
  return continues(normalized(name), device.substr(0, device.find('-')));
}

std::optional<Topology> largest_topology(const std::vector<Topology>& topologies) {
  return largest_of(topologies, &Topology::has_backend);
}

}  // namespace muster::jobspec
