#include "coordinator/core/queue/validation.h"

#include <algorithm>
#include <array>
#include <set>
#include <type_traits>

#include <absl/strings/ascii.h>
#include <absl/strings/escaping.h>
#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>

#include "common/job/node_labels.h"
#include "common/objects/object_url.h"
#include "common/text/absl_view.h"
#include "common/text/json_depth.h"
#include "common/text/variable_name.h"
#include "coordinator/core/records/sizes.h"

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

// Checks a list of texts that are passed to a program.
absl::Status check_list(std::string_view field, const std::vector<std::string>& words,
                        const ListRule& rule) {
  size_t bytes = 0;
  for (const std::string& word : words) bytes += word.size() + 1;
  if (words.size() > rule.words_max || bytes > rule.bytes_max) {
    return absl::InvalidArgumentError(absl::StrCat(av(field), " has ", words.size(), " words of ",
                                                   bytes, " bytes: at most ", rule.words_max,
                                                   " of ", rule.bytes_max, " bytes are allowed"));
  }
  absl::Status status;
  for (size_t i = 0; i < words.size(); ++i)
    status.Update(check_text(absl::StrCat(av(field), "[", i, "]"), words[i], rule.bytes_max));
  return status;
}

absl::Status check_absolute_path(std::string_view field, std::string_view value, size_t bytes_max) {
  absl::Status status = check_line(field, value, bytes_max);
  if (status.ok() && !absl::StartsWith(av(value), "/")) {
    status = absl::InvalidArgumentError(
        absl::StrCat(av(field), " is ", in_quotes(value), ": it must be an absolute path"));
  }
  return status;
}

absl::Status check_form(std::string_view field, std::string_view value, const TextRule& rule) {
  switch (rule.form) {
    case TextForm::kName:
      return check_name(field, value, rule.bytes_max);
    case TextForm::kLine:
      return check_line(field, value, rule.bytes_max);
    case TextForm::kAbsolutePath:
      // A run's output may be in an object store.
      if (is_object_url(value)) return check_line(field, value, rule.bytes_max);
      return check_absolute_path(field, value, rule.bytes_max);
    case TextForm::kText:
      break;
  }
  return check_text(field, value, rule.bytes_max);
}

// Checks the fields that have a rule in kJobFields.
absl::Status check_plain_fields(const JobSpec& spec) {
  absl::Status status;
  for_each_job_field([&](const JobField& field, auto member) {
    const std::string name = absl::StrCat("spec.", av(field.name));
    const auto& value = spec.*member;
    using Value = std::remove_cvref_t<decltype(value)>;
    if constexpr (std::is_same_v<Value, std::string>) {
      if (const auto* rule = std::get_if<TextRule>(&field.rule))
        status.Update(check_form(name, value, *rule));
    } else if constexpr (std::is_integral_v<Value>) {
      if (const auto* rule = std::get_if<NumberRange>(&field.rule)) {
        const bool is_fixed = rule->only_programs && !spec.is_program();
        status.Update(check_range(name, value, is_fixed ? 0 : rule->min, is_fixed ? 0 : rule->max));
      }
    } else if (const auto* rule = std::get_if<ListRule>(&field.rule)) {
      status.Update(check_list(name, value, *rule));
    }
  });
  return status;
}

absl::Status check_depth(std::string_view field, std::string_view json) {
  if (is_shallow_json(json)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(av(field), " is nested deeper than ", kJsonDepthMax, " levels"));
}

// Checks the rules of the trainer and of programs that concern several fields.
absl::Status check_command(const JobSpec& spec) {
  if (spec.is_program()) {
    if (spec.command.front().empty())
      return absl::InvalidArgumentError("spec.command[0] is empty: it must name a program");
    return check_absolute_path("spec.working_directory", spec.working_directory, kPathBytesMax);
  }
  if (spec.working_directory.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("spec.working_directory is ", in_quotes(spec.working_directory),
                   ": it goes with spec.command; the trainer starts in a folder of its own"));
}

// Checks the sizes below `nodes`. The client's resolved configs are accepted as they are; only the
// properties that placement relies on are checked.
absl::Status check_job_sizes(const JobSpec& spec, const InputLimits& limits) {
  absl::Status status = check_range("spec.min_nodes", spec.min_nodes, 0, spec.nodes);
  status.Update(check_range("spec.segment_nodes", spec.segment_nodes, 0, spec.nodes));
  if (status.ok() && spec.segment_nodes > 0 && spec.nodes % spec.segment_nodes != 0) {
    return absl::InvalidArgumentError(absl::StrCat("spec.segment_nodes is ", spec.segment_nodes,
                                                   ": it must divide spec.nodes, ", spec.nodes));
  }
  status.Update(check_range("spec.smaller (its number of sizes)", std::ssize(spec.smaller), 0,
                            spec.is_program() ? 0 : kSmallerSizesMax));
  size_t bytes = 0;
  int32_t larger = spec.nodes;
  for (const SmallerJob& size : spec.smaller) {
    status.Update(check_range("spec.smaller.nodes", size.nodes, std::max(spec.min_nodes, 1),
                              int64_t{larger} - 1));
    status.Update(check_text("spec.smaller.train_config_json", size.train_config_json,
                             limits.train_config_bytes_max));
    status.Update(check_depth("spec.smaller.train_config_json", size.train_config_json));
    larger = size.nodes;
    bytes += size.train_config_json.size();
  }
  status.Update(check_range("spec.smaller (its configs' bytes)", static_cast<int64_t>(bytes), 0,
                            static_cast<int64_t>(limits.train_config_bytes_max)));
  const bool allows_fewer = spec.min_nodes > 0 && spec.min_nodes < spec.nodes;
  if (status.ok() && spec.smaller.empty() == allows_fewer && !spec.is_program()) {
    status = absl::InvalidArgumentError(absl::StrCat(
        "spec.min_nodes is ", spec.min_nodes, " of ", spec.nodes, " nodes and spec.smaller has ",
        spec.smaller.size(), " sizes: it must have those on which the job may continue, or none"));
  }
  return status;
}

// Checks the fields that determine when the job may start.
absl::Status check_queueing(const JobSpec& spec) {
  absl::Status status;
  if (spec.is_array_task()) {
    status.Update(check_name("spec.array", spec.array, kNameBytesMax));
  } else {
    status.Update(check_range("spec.array_index (without spec.array)", spec.array_index, 0, 0));
    status.Update(
        check_range("spec.array_running_max (without spec.array)", spec.array_running_max, 0, 0));
  }
  if (spec.time_limit_seconds > 0) {
    status.Update(check_range("spec.time_limit_notice_seconds (less than the time limit)",
                              spec.time_limit_notice_seconds, 0, spec.time_limit_seconds - 1));
  }
  status.Update(check_range("spec.dependencies (their number)", std::ssize(spec.dependencies), 0,
                            static_cast<int64_t>(kDependenciesMax)));
  std::set<JobId> known;
  for (const JobDependency& dependency : spec.dependencies) {
    if (status.ok() && !known.insert(dependency.job).second)
      status = absl::InvalidArgumentError(absl::StrCat("spec.dependencies has job ",
                                                       dependency.job.value(),
                                                       " twice: it must name each job once"));
  }
  return status;
}

absl::Status check_conditions(const JobSpec& spec) {
  constexpr auto kMost = static_cast<int64_t>(kConditionsMax);
  absl::Status status = check_range("spec.node_selector (its number of conditions)",
                                    std::ssize(spec.node_selector), 0, kMost);
  status.Update(
      check_range("spec.tolerations (their number)", std::ssize(spec.tolerations), 0, kMost));
  for (const std::string& condition : spec.node_selector)
    status.Update(muster::check_condition("spec.node_selector", condition));
  for (const std::string& taint : spec.tolerations)
    status.Update(check_label("spec.tolerations", taint));
  return status;
}

// Checks the labels and taints of a worker.
absl::Status check_labels(const NodeLabels& labels) {
  absl::Status status = check_range("labels (their number)", std::ssize(labels.labels), 0,
                                    static_cast<int64_t>(kLabelsMax));
  status.Update(check_range("taints (their number)", std::ssize(labels.taints), 0,
                            static_cast<int64_t>(kTaintsMax)));
  for (const auto& [name, value] : labels.labels)
    status.Update(check_label("labels", absl::StrCat(name, "=", value)));
  for (const std::string& taint : labels.taints) status.Update(check_label("taints", taint));
  return status;
}

}  // namespace

absl::Status check_spec(const JobSpec& spec, const InputLimits& limits) {
  absl::Status status = check_plain_fields(spec);
  if (spec.stack_traces.collect) {
    status.Update(check_range("spec.stack_traces.interval_seconds",
                              spec.stack_traces.interval_seconds, kStackTraceIntervalSecondsMin,
                              kStackTraceIntervalSecondsMax));
  }
  if (!status.ok()) return status;
  status.Update(check_range("spec.nodes * spec.ranks_per_node",
                            int64_t{spec.nodes} * spec.ranks_per_node, 1, limits.ranks_max));
  status.Update(check_job_sizes(spec, limits));
  status.Update(check_queueing(spec));
  status.Update(check_conditions(spec));
  status.Update(check_depth("spec.train_config_json", spec.train_config_json));
  status.Update(check_environment(spec, limits));
  status.Update(check_command(spec));
  status.Update(check_range("spec (its texts' bytes)", static_cast<int64_t>(bytes_of(spec)), 0,
                            static_cast<int64_t>(limits.spec_bytes_max)));
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
        "reason is empty: give the reason why the node is excluded, for later readers");
  }
  if (status.ok() && event.drain_unix_ns != 0 && event.evacuate)
    status = absl::InvalidArgumentError("evacuate and drain_unix_ns exclude each other");
  if (status.ok() && event.drain_unix_ns != 0 &&
      (event.drain_unix_ns < event.unix_ns ||
       event.drain_unix_ns - event.unix_ns > kSecondsMax * 1'000'000'000))
    status = absl::InvalidArgumentError(
        absl::StrCat("drain_unix_ns is ", event.drain_unix_ns,
                     ": must be a time from now on, at most ten years ahead"));
  if (status.ok() && event.drain_unix_ns != 0 && event.time &&
      event.unix_ns + event.time->count() < event.drain_unix_ns)
    status = absl::InvalidArgumentError(absl::StrCat(
        "seconds is ", std::chrono::floor<std::chrono::seconds>(*event.time).count(),
        ": the node would get ranks again before its drain; give at least ",
        std::chrono::ceil<std::chrono::seconds>(Duration(event.drain_unix_ns - event.unix_ns))
            .count(),
        ", or no time"));
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
  constexpr int64_t kSwitchesMax = 16;        // networks have three to five levels
  absl::Status status = check_name("worker", event.worker.value(), limits.name_bytes_max);
  status.Update(check_line("host", event.host, kHostBytesMax));
  status.Update(check_line("version", event.version, limits.name_bytes_max));
  status.Update(check_line("rendezvous_address", event.rendezvous_address, kAddressBytesMax));
  status.Update(check_line("switches", event.place.switches, kSwitchesBytesMax));
  status.Update(check_range("switches (their number)",
                            std::ranges::count(event.place.switches, '.'), 0, kSwitchesMax - 1));
  status.Update(check_line("domain", event.place.domain, limits.name_bytes_max));
  status.Update(check_labels(event.labels));
  status.Update(check_range("slots", event.slots, 1, limits.ranks_per_node_max));
  status.Update(check_range("gpus (their number)", std::ssize(event.gpus), 0, kGpusPerNodeMax));
  status.Update(check_line("no_gpus_because", event.no_gpus_because, limits.detail_bytes_max));
  status.Update(
      check_range("addresses (their number)", std::ssize(event.addresses), 0, kNodeAddressesMax));
  for (const std::string& address : event.addresses)
    status.Update(check_line("addresses", address, kHostAddressBytesMax));
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
