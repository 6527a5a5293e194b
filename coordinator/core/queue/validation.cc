#include "coordinator/core/queue/validation.h"

#include <algorithm>
#include <array>
#include <limits>

#include <absl/strings/ascii.h>
#include <absl/strings/escaping.h>
#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>

#include "common/absl_view.h"
#include "common/variable_name.h"

namespace muster::coordinator {
namespace {

// Truncates long values in error messages to a recognisable length.
std::string in_quotes(std::string_view value) {
  constexpr size_t kShownBytesMax = 64;
  if (value.size() <= kShownBytesMax) return absl::StrCat("\"", absl::CHexEscape(av(value)), "\"");
  return absl::StrCat("\"", absl::CHexEscape(av(value.substr(0, kShownBytesMax))), "…\" (",
                      value.size(), " bytes)");
}

absl::Status check_name(std::string_view field, std::string_view value, size_t bytes_max) {
  const bool characters_good = std::all_of(value.begin(), value.end(), [](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '.' || c == '_' || c == '-';
  });
  if (!value.empty() && value.size() <= bytes_max && characters_good && value != "." &&
      value != "..") {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(av(field), " is ", in_quotes(value),
                                                 ": it must be 1 to ", bytes_max,
                                                 " of the characters A-Z a-z 0-9 . _ -"));
}

absl::Status check_range(std::string_view field, int64_t value, int64_t least, int64_t most) {
  if (least <= value && value <= most) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(av(field), " is ", value, ": it must be ", least, " to ", most));
}

// Checks text for tables, logs and messages. Control characters could change the state of a
// terminal.
absl::Status check_line(std::string_view field, std::string_view value, size_t bytes_max) {
  const bool has_controls = std::any_of(value.begin(), value.end(), [](char c) {
    return absl::ascii_iscntrl(static_cast<unsigned char>(c));
  });
  if (value.size() <= bytes_max && !has_controls) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(av(field), " is ", in_quotes(value),
                                                 ": it must be at most ", bytes_max,
                                                 " bytes without control characters"));
}

// Checks text that may have several lines.
absl::Status check_text(std::string_view field, std::string_view value, size_t bytes_max) {
  if (value.size() <= bytes_max && value.find('\0') == std::string_view::npos) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(av(field), " is ", in_quotes(value),
                                                 ": it must be at most ", bytes_max,
                                                 " bytes without a NUL"));
}

// The worker sets these variables for each rank; a job's own value would break the rendezvous.
bool is_reserved(std::string_view name, bool for_program) {
  constexpr std::array<std::string_view, 4> kReserved = {"RANK", "WORLD_SIZE", "LOCAL_RANK",
                                                         "LOCAL_WORLD_SIZE"};
  constexpr std::array<std::string_view, 5> kOfPrograms = {"MASTER_ADDR", "MASTER_PORT",
                                                           "JAX_COORDINATOR_ADDRESS",
                                                           "JAX_NUM_PROCESSES", "JAX_PROCESS_ID"};
  const auto has = [&](const auto& names) {
    return std::find(names.begin(), names.end(), name) != names.end();
  };
  return has(kReserved) || (for_program && has(kOfPrograms));
}

absl::Status check_environment(const JobSpec& spec, const InputLimits& limits) {
  const std::map<std::string, std::string>& environment = spec.environment;
  if (environment.size() > limits.environment_entries_max) {
    return absl::InvalidArgumentError(absl::StrCat("spec.environment has ", environment.size(),
                                                   " entries: at most ",
                                                   limits.environment_entries_max, " are allowed"));
  }
  for (const auto& [key, value] : environment) {
    if (key.size() > limits.name_bytes_max || !is_variable_name(key)) {
      return absl::InvalidArgumentError(
          absl::StrCat("spec.environment has the name ", in_quotes(key), ": ",
                       av(kVariableNameRule), "; at most ", limits.name_bytes_max, " bytes"));
    }
    if (is_reserved(key, spec.is_program())) {
      return absl::InvalidArgumentError(
          absl::StrCat("spec.environment sets ", key, ": the worker sets it for each rank"));
    }
    if (absl::StartsWith(key, "MUSTER_")) {
      return absl::InvalidArgumentError(absl::StrCat("spec.environment sets ", key,
                                                     ": names that begin with MUSTER_ are between "
                                                     "the worker and its ranks; use another name"));
    }
    const bool for_loader = absl::StartsWith(key, "LD_") || key == "GLIBC_TUNABLES";
    if (for_loader && !spec.is_program()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "spec.environment sets ", key,
          ": it would change what code the loader puts into the trainer; set it for the worker"));
    }
    if (absl::Status status = check_text(absl::StrCat("spec.environment[", key, "]"), value,
                                         limits.environment_value_bytes_max);
        !status.ok()) {
      return status;
    }
  }
  return absl::OkStatus();
}

absl::Status check_command(const JobSpec& spec, const InputLimits& limits) {
  size_t bytes = 0;
  for (const std::string& word : spec.command) bytes += word.size() + 1;
  if (spec.command.size() > limits.command_words_max || bytes > limits.command_bytes_max) {
    return absl::InvalidArgumentError(absl::StrCat(
        "spec.command has ", spec.command.size(), " words of ", bytes, " bytes: at most ",
        limits.command_words_max, " of ", limits.command_bytes_max, " bytes are allowed"));
  }
  for (size_t i = 0; i < spec.command.size(); ++i) {
    const std::string field = absl::StrCat("spec.command[", i, "]");
    if (auto status = check_text(field, spec.command[i], limits.command_bytes_max); !status.ok())
      return status;
  }
  if (spec.command.front().empty())
    return absl::InvalidArgumentError("spec.command[0] is empty: it must name a program");
  absl::Status status =
      check_line("spec.working_directory", spec.working_directory, limits.path_bytes_max);
  if (status.ok() && !absl::StartsWith(spec.working_directory, "/")) {
    status = absl::InvalidArgumentError(absl::StrCat("spec.working_directory is ",
                                                     in_quotes(spec.working_directory),
                                                     ": it must be an absolute path"));
  }
  return status;
}

// Checks the sizes below `nodes`. The client's resolved configs are accepted as they are; only the
// properties that placement relies on are checked.
absl::Status check_sizes(const JobSpec& spec, const InputLimits& limits) {
  absl::Status status = check_range("spec.spares", spec.spares, 0, limits.nodes_max);
  status.Update(check_range("spec.min_nodes", spec.min_nodes, 0, spec.nodes));
  status.Update(check_range("spec.smaller (its number of sizes)", std::ssize(spec.smaller), 0,
                            spec.is_program() ? 0 : kSmallerSizesMax));
  size_t bytes = 0;
  int32_t larger = spec.nodes;
  for (const SmallerJob& size : spec.smaller) {
    status.Update(check_range("spec.smaller.nodes", size.nodes, std::max(spec.min_nodes, 1),
                              int64_t{larger} - 1));
    status.Update(check_text("spec.smaller.train_config_json", size.train_config_json,
                             limits.train_config_bytes_max));
    larger = size.nodes;
    bytes += size.train_config_json.size();
  }
  status.Update(check_range("spec.smaller (its configs' bytes)", static_cast<int64_t>(bytes), 0,
                            static_cast<int64_t>(limits.train_config_bytes_max)));
  const bool allows_fewer = spec.min_nodes > 0 && spec.min_nodes < spec.nodes;
  if (status.ok() && spec.smaller.empty() == allows_fewer && !spec.is_program()) {
    status = absl::InvalidArgumentError(absl::StrCat(
        "spec.min_nodes is ", spec.min_nodes, " of ", spec.nodes, " nodes and spec.smaller has ",
        spec.smaller.size(), " sizes: it must have those on which the job may go on, or none"));
  }
  return status;
}

}  // namespace

absl::Status check_spec(const JobSpec& spec, const InputLimits& limits) {
  absl::Status status = check_name("spec.name", spec.name, limits.name_bytes_max);
  status.Update(check_line("spec.user", spec.user, limits.name_bytes_max));
  status.Update(
      check_range("spec.priority", spec.priority, -limits.priority_max, limits.priority_max));
  status.Update(check_range("spec.nodes", spec.nodes, 1, limits.nodes_max));
  status.Update(
      check_range("spec.ranks_per_node", spec.ranks_per_node, 1, limits.ranks_per_node_max));
  status.Update(
      check_range("spec.gpus_per_rank", spec.gpus_per_rank, kGpusOfSlot, kGpusPerNodeMax));
  status.Update(check_range("spec.restarts_max", spec.restarts_max, 0, limits.restarts_max));
  status.Update(check_range("spec.steps", spec.steps, 0, std::numeric_limits<int64_t>::max()));
  status.Update(check_range("spec.hang_after_seconds", spec.hang_after_seconds, 0,
                            spec.is_program() ? kHangAfterSecondsMax : 0));
  if (spec.stack_traces.collect) {
    status.Update(check_range("spec.stack_traces.interval_seconds",
                              spec.stack_traces.interval_seconds, kStackTraceIntervalSecondsMin,
                              kStackTraceIntervalSecondsMax));
  }
  if (!status.ok()) return status;
  status.Update(check_range("spec.nodes * spec.ranks_per_node",
                            int64_t{spec.nodes} * spec.ranks_per_node, 1, limits.ranks_max));
  status.Update(check_line("spec.output_directory", spec.output_directory, limits.path_bytes_max));
  if (status.ok() && !absl::StartsWith(spec.output_directory, "/")) {
    status = absl::InvalidArgumentError(absl::StrCat("spec.output_directory is ",
                                                     in_quotes(spec.output_directory),
                                                     ": it must be an absolute path"));
  }
  status.Update(
      check_text("spec.train_config_json", spec.train_config_json, limits.train_config_bytes_max));
  status.Update(check_sizes(spec, limits));
  status.Update(check_environment(spec, limits));
  if (spec.is_program()) {
    status.Update(check_command(spec, limits));
  } else if (status.ok() && !spec.working_directory.empty()) {
    status = absl::InvalidArgumentError(
        absl::StrCat("spec.working_directory is ", in_quotes(spec.working_directory),
                     ": it goes with spec.command; the trainer starts in a folder of its own"));
  }
  return status;
}

absl::Status check_request_id(std::string_view request_id, const InputLimits& limits) {
  return check_line("request_id", request_id, limits.request_id_bytes_max);
}

absl::Status check_exclusion(const NodeExcludeRequested& event, const InputLimits& limits) {
  // For an unlimited exclusion the time is omitted.
  constexpr int64_t kSecondsMax = int64_t{10} * 365 * 24 * 3600;
  absl::Status status = check_name("worker", event.worker.value(), limits.name_bytes_max);
  status.Update(check_line("reason", event.reason, limits.detail_bytes_max));
  if (status.ok() && event.reason.empty()) {
    status = absl::InvalidArgumentError(
        "reason is empty: say why the node is left out, for whoever finds it later");
  }
  if (event.time) {
    status.Update(check_range(
        "seconds", std::chrono::ceil<std::chrono::seconds>(*event.time).count(), 1, kSecondsMax));
  }
  return status;
}

absl::Status check_registration(const WorkerRegistered& event, const InputLimits& limits) {
  constexpr size_t kHostBytesMax = 255;       // a DNS name
  constexpr size_t kAddressBytesMax = 300;    // host:port
  constexpr size_t kSwitchesBytesMax = 1000;  // a path of several names
  absl::Status status = check_name("worker", event.worker.value(), limits.name_bytes_max);
  status.Update(check_line("host", event.host, kHostBytesMax));
  status.Update(check_line("version", event.version, limits.name_bytes_max));
  status.Update(check_line("rendezvous_address", event.rendezvous_address, kAddressBytesMax));
  status.Update(check_line("switches", event.switches, kSwitchesBytesMax));
  status.Update(check_range("slots", event.slots, 1, limits.ranks_per_node_max));
  status.Update(check_range("gpus (their number)", std::ssize(event.gpus), 0, kGpusPerNodeMax));
  status.Update(check_line("no_gpus_because", event.no_gpus_because, limits.detail_bytes_max));
  // Twice the slots, because ranks that are being stopped may run beside their successors.
  status.Update(check_range("running (its number of ranks)", std::ssize(event.running), 0,
                            int64_t{2} * limits.ranks_per_node_max));
  if (status.ok() && event.rendezvous_address.empty()) {
    status = absl::InvalidArgumentError("rendezvous_address is empty: it must be host:port");
  }
  const PortRange& ports = event.program_ports;
  status.Update(check_range("program_ports.count", ports.count, 0, kPortMax));
  if (status.ok() && ports.count > 0)
    status.Update(check_range("program_ports.first", ports.first, 1, kPortMax - ports.count + 1));
  return status;
}

std::string one_line(std::string_view text, size_t bytes_max) {
  std::string line(absl::StripAsciiWhitespace(av(text)));
  if (line.size() > bytes_max) {
    size_t end = bytes_max;
    while (end > 0 && (static_cast<unsigned char>(line[end]) & 0xC0) == 0x80) --end;
    line.resize(end);
  }
  for (char& c : line) {
    if (absl::ascii_iscntrl(static_cast<unsigned char>(c))) c = ' ';
  }
  return line;
}

}  // namespace muster::coordinator
