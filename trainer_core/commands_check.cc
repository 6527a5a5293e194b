// muster-trainer check-node. A deep check starts a process for each GPU, which tests its device and
// prints the result as JSON to the parent; without GPUs, the parent tests the CPUs itself.
#include <sys/prctl.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <absl/status/statusor.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>
#include <absl/strings/str_join.h>
#include <absl/strings/strip.h>
#include <nlohmann/json.hpp>

#include "common/process/run_child.h"
#include "common/process/usable_cpus.h"
#include "common/text/absl_view.h"
#include "common/text/escape.h"
#include "trainer_core/base/machine_memory.h"
#include "trainer_core/commands.h"
#include "trainer_core/startup/command_line.h"
#include "trainer_core/startup/deep_check.h"
#include "trainer_core/startup/group_check.h"
#include "trainer_core/startup/node_check.h"

namespace muster::trainer {
namespace {

constexpr const char* kCheckNode = "muster-trainer check-node";
// The caller kills a slow check much earlier.
constexpr Duration kDeviceDeadline = std::chrono::hours(1);
constexpr size_t kDeviceOutputMax = 64 << 10;
// The host memory of the pattern test per second, its bounds, and its largest part of the available
// memory.
constexpr double kTestedBytesPerSecond = 1.0 * (size_t{1} << 30);
constexpr uint64_t kTestedShare = 4;
constexpr size_t kTestedMin = size_t{64} << 20;
constexpr size_t kTestedMax = size_t{16} << 30;
constexpr size_t kStorageBytes = size_t{64} << 20;

struct CheckOptions {
  NodeCheckOptions node;
  bool deep = false;
  double seconds = 1;
  std::string storage_dir;
  std::optional<GroupSeat> seat;  // an all-reduce with other nodes instead of tests of this node
};

// The result of all tests, or of those of one device.
struct CheckResult {
  std::vector<NodeCheckPart> parts;
  DeepMeasurements measured;
  std::string kind;  // empty: no device was tested
};

absl::StatusOr<CheckOptions> parse_options(const CommandLine& line) {
  CheckOptions options;
  options.deep = line.has("deep");
  if (!line.has("work-dir")) return absl::InvalidArgumentError("--work-dir FOLDER is missing");
  options.node.work_dir = line.text("work-dir");
  options.node.shm_dir = line.text("shm-dir", options.node.shm_dir);
  options.storage_dir = line.text("storage-dir", options.node.work_dir);
  const auto seconds = line.number("seconds", 1, 0.1, 600);
  if (!seconds.ok()) return seconds.status();
  options.seconds = *seconds;
  if (line.has("group-nodes")) {
    GroupSeat seat;
    constexpr int64_t kNodesMax = 65'536, kIdMax = UINT32_MAX;
    const auto nodes = line.integer("group-nodes", 2, 2, kNodesMax);
    const auto node = nodes.ok() ? line.integer("group-node", 0, 0, *nodes - 1) : nodes;
    const auto id = line.integer("group-id", 0, 0, kIdMax);
    for (const auto* number : {&nodes, &node, &id})
      if (!number->ok()) return number->status();
    seat.nodes = static_cast<int32_t>(*nodes);
    seat.node = static_cast<int32_t>(*node);
    seat.id = static_cast<uint32_t>(*id);
    seat.rendezvous = line.text("rendezvous");
    seat.bind_address = line.text("bind-address", "127.0.0.1");
    if (seat.rendezvous.empty())
      return absl::InvalidArgumentError("--rendezvous HOST:PORT is missing");
    options.seat = std::move(seat);
  }
  return options;
}

NodeCheckPart timed_part(const std::string& name, const absl::Status& status, Instant began) {
  NodeCheckPart part;
  part.name = name;
  part.status = status;
  part.time = monotonic_now() - began;
  return part;
}

// Tests one device of the node, or takes part in the group with it.
void test_one(const CheckOptions& options, const std::shared_ptr<Backend>& backend, int devices,
              CheckResult& result) {
  result.kind = describe_kind(*backend, devices);
  const Instant began = monotonic_now();
  const absl::Status status =
      options.seat ? test_group(backend, *options.seat, options.seconds, result.measured)
                   : test_device(*backend, options.seconds, result.measured);
  result.parts.push_back(timed_part(options.seat ? "all_reduce" : "device", status, began));
}

nlohmann::json json_of(const CheckResult& result, double seconds) {
  const bool is_wrong = std::ranges::any_of(
      result.parts, [](const auto& part) { return absl::IsDataLoss(part.status); });
  nlohmann::json out = {{"passed", node_check_passed(result.parts)},
                        {"wrong", is_wrong},
                        {"seconds", seconds},
                        {"sentence", node_check_sentence(result.parts)},
                        {"details", node_check_details(result.parts)},
                        {"parts", nlohmann::json::array()}};
  for (const NodeCheckPart& part : result.parts) {
    out["parts"].push_back(
        {{"name", part.name},
         {"passed", part.status.ok()},
         {"seconds", to_seconds(part.time)},
         {"text", part.status.ok() ? part.text : std::string(part.status.message())}});
  }
  if (result.kind.empty()) return out;
  out["kind"] = result.kind;
  out["measurements"] = nlohmann::json::array();
  for (const DeepMeasurement& one : result.measured)
    out["measurements"].push_back({{"name", one.name}, {"value", one.value}, {"unit", one.unit}});
  return out;
}

// Adds the result that the process of a device has printed. Devices are compared by their slowest.
absl::Status add_device(const absl::StatusOr<ChildEnd>& child, CheckResult& result) {
  if (!child.ok()) return child.status();
  const auto json = nlohmann::json::parse(child->output, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || !json.contains("kind")) {
    return absl::InternalError(absl::StrCat("its test ended with code ", child->exit_code, ": ",
                                            printable(child->errors, 1'024)));
  }
  result.kind = json.value("kind", std::string());
  for (const auto& one : json.value("measurements", nlohmann::json::array())) {
    DeepMeasurement measurement{one.value("name", std::string()), one.value("value", 0.0),
                                one.value("unit", std::string())};
    const auto known = std::ranges::find(result.measured, measurement.name, &DeepMeasurement::name);
    if (known == result.measured.end())
      result.measured.push_back(std::move(measurement));
    else
      known->value = std::min(known->value, measurement.value);
  }
  if (json.value("passed", false)) return absl::OkStatus();
  const std::string sentence = json.value("sentence", std::string());
  return json.value("wrong", false) ? absl::DataLossError(sentence) : absl::InternalError(sentence);
}

// Tests all GPUs at once, each in a process of its own. They belong to this process's group, which
// the worker kills.
void test_gpus(std::span<const std::string_view> arguments, int devices, CheckResult& result) {
  std::vector<absl::StatusOr<ChildEnd>> ends(static_cast<size_t>(devices),
                                             absl::UnknownError("not run"));
  const Instant began = monotonic_now();
  std::vector<std::thread> threads;
  for (int device = 0; device < devices; ++device) {
    threads.emplace_back([&, device] {
      std::vector<std::string> words = {"/proc/self/exe", "check-node"};
      words.insert(words.end(), arguments.begin(), arguments.end());
      words.emplace_back("--device");
      words.push_back(absl::StrCat(device));
      ends[static_cast<size_t>(device)] = run_child(
          words, {.deadline = began + kDeviceDeadline, .output_bytes_max = kDeviceOutputMax});
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (int device = 0; device < devices; ++device) {
    absl::Status status = add_device(ends[static_cast<size_t>(device)], result);
    if (!status.ok())
      status = absl::Status(status.code(), absl::StrCat("GPU ", device, ": ", status.message()));
    result.parts.push_back(timed_part(absl::StrCat("gpu", device), status, began));
  }
}

// Tests the devices. `line` may name one of them.
void test_devices(const CommandLine& line, std::span<const std::string_view> arguments,
                  CheckOptions options, CheckResult& result) {
  const std::string gpus = line.text("gpus");
  const bool has_names = !gpus.empty() && gpus != "none";
  if (has_names) setenv("CUDA_VISIBLE_DEVICES", gpus.c_str(), 1);
  const int devices = gpus == "none" ? 0 : gpu_count();
  const absl::Status visible =
      has_names ? check_visible_gpus(gpus, devices,
                                     devices == 0 ? gpu_backend({}).status() : absl::OkStatus())
                : absl::OkStatus();
  if (!visible.ok()) {
    result.parts.push_back(timed_part("device", visible, monotonic_now()));
    return;
  }
  if (devices > 0 && !line.has("device")) return test_gpus(arguments, devices, result);
  absl::StatusOr<std::shared_ptr<Backend>> backend = cpu_backend(usable_cpus());
  if (devices > 0) {
    const auto device = line.integer("device", 0, 0, devices - 1);
    backend = device.ok() ? gpu_backend({.rank_of_node = static_cast<int>(*device)})
                          : absl::StatusOr<std::shared_ptr<Backend>>(device.status());
    if (options.seat && device.ok()) {
      options.seat->device = static_cast<int32_t>(*device);
      options.seat->devices = devices;
    }
  }
  if (backend.ok()) return test_one(options, *backend, devices, result);
  result.parts.push_back(timed_part("device", backend.status(), monotonic_now()));
}

// Returns the bytes of host memory to fill with patterns.
size_t tested_bytes(double seconds) {
  const auto available = available_memory(MachineRoots());
  const uint64_t share = available ? available->bytes / kTestedShare : kTestedMin;
  return static_cast<size_t>(
      std::clamp<uint64_t>(static_cast<uint64_t>(seconds * kTestedBytesPerSecond), kTestedMin,
                           std::clamp<uint64_t>(share, kTestedMin, kTestedMax)));
}

int print_check(const CommandLine& line, const CheckResult& result, double seconds) {
  const bool passed = node_check_passed(result.parts);
  std::string text;
  for (const NodeCheckPart& part : result.parts) {
    const bool ok = part.status.ok();
    absl::StrAppend(&text, ok ? "good  " : "BAD   ", part.name);
    const std::string what = ok ? part.text : std::string(part.status.message());
    absl::StrAppend(&text, what.empty() ? "" : ": ", escape_controls(what), "\n");
  }
  for (const DeepMeasurement& one : result.measured)
    absl::StrAppendFormat(&text, "      %s: %.4g %s\n", one.name, one.value, one.unit);
  absl::StrAppendFormat(&text, "%s in %.3f s\n", passed ? "passed" : "failed", seconds);
  const ExitCode output = print_result(
      line.has("json")
          ? json_of(result, seconds).dump(2, ' ', false, nlohmann::json::error_handler_t::replace) +
                "\n"
          : text);
  return to_int(passed ? output : ExitCode::kFailure);
}

}  // namespace

ExitCode check_node_command(std::span<const std::string_view> arguments) {
  const auto line = CommandLine::parse(
      arguments, {.values = {"work-dir", "shm-dir", "storage-dir", "seconds", "gpus", "device",
                             "group-node", "group-nodes", "group-id", "rendezvous", "bind-address"},
                  .switches = {"json", "deep"}});
  if (!line.ok()) return report(kCheckNode, line.status());
  auto options = parse_options(*line);
  if (!options.ok()) return report(kCheckNode, options.status());
  const Instant began = monotonic_now();
  CheckResult result;
  const bool is_part = options->seat || line->has("device");
  // The process of a device must not outlive its parent, whose result it is for.
  if (line->has("device")) prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (options->deep) options->node.memory_bytes = tested_bytes(options->seconds);
  if (!is_part) result.parts = check_node(options->node);
  if (options->deep) test_devices(*line, arguments, *options, result);
  if (options->deep && !is_part) {
    const Instant start = monotonic_now();
    result.parts.push_back(timed_part(
        "storage",
        test_storage(options->storage_dir, kStorageBytes, options->seconds, result.measured),
        start));
  }
  return static_cast<ExitCode>(print_check(*line, result, to_seconds(monotonic_now() - began)));
}

}  // namespace muster::trainer
