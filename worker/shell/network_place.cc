#include "worker/shell/network_place.h"

#include <algorithm>
#include <fstream>
#include <utility>

#include <absl/strings/str_cat.h>

namespace muster::worker {

absl::StatusOr<NetworkPlace> read_network_place(const WorkerOptions& options) {
  if (options.switches_file.empty()) return NetworkPlace{options.switches, options.domain};
  std::ifstream file(options.switches_file);
  constexpr size_t kLineBytes = 4096;  // above the coordinator's limit
  std::string line(kLineBytes, '\0');
  file.read(line.data(), static_cast<std::streamsize>(line.size()));
  if (!file.is_open())
    return absl::NotFoundError(
        absl::StrCat("--switches-file=", options.switches_file, " cannot be read"));
  line.resize(static_cast<size_t>(file.gcount()));
  NetworkPlace place{"", options.domain};
  const size_t end = std::min(line.size(), line.find('\n'));
  if (end < line.size()) {
    const std::string second = line.substr(end + 1, line.find('\n', end + 1) - end - 1);
    if (!second.empty()) place.domain = second;
  }
  line.resize(end);
  if (line.find_first_not_of('.') == std::string::npos) line.clear();  // a node without the labels
  place.switches = std::move(line);
  return place;
}

}  // namespace muster::worker
