#include "cli/plan/plan_view.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>
#include <absl/strings/str_join.h>

#include "cli/plan/forecast.h"
#include "cli/terminal/terminal.h"
#include "common/text/number_text.h"
#include "common/text/with_commas.h"
#include "jobspec/mesh/mesh_keys.h"
#include "trainer_core/base/units.h"
#include "trainer_core/model/param_spec.h"

namespace muster::cli {
namespace {

using trainer::kMiB;

std::string mib(const nlohmann::json& bytes) {
  return absl::StrFormat("%.1f", bytes.get<double>() / kMiB);
}

std::string machines_line(const jobspec::PlannedMachines& machines) {
  const jobspec::Topology& topology = machines.topology;
  return absl::StrCat("machines: ", counted(static_cast<uint64_t>(machines.nodes), "node"), " of ",
                      machines.devices_per_node, " × ", topology.device, " (", topology.name, ")",
                      topology.has_backend
                          ? ""
                          : "; the trainer has no backend for this device: the memory is an "
                            "estimate for the layout of Muster's trainer, from which that of "
                            "other software differs");
}

// Uses of the stages differ, for example because only the last one has logits.
std::vector<std::string> names_of_uses(const nlohmann::json& stages) {
  std::vector<std::string> names;
  for (const auto& stage : stages) {
    for (const auto& use : stage["uses"]) {
      const auto& name = use["name"].get_ref<const std::string&>();
      if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
    }
  }
  return names;
}

std::string bytes_of_use(const nlohmann::json& stage, const std::string& name) {
  for (const auto& use : stage["uses"])
    if (use["name"] == name) return mib(use["bytes"]);
  return "-";
}

// More stages than this are summed up by those that need the most and the least.
constexpr size_t kStagesShown = 8;

std::string memory_table(const nlohmann::json& forecast) {
  std::vector<nlohmann::json> stages = forecast["stages"].get<std::vector<nlohmann::json>>();
  const auto bytes_of = [](const nlohmann::json& stage) {
    return stage["device_bytes"].get<uint64_t>();
  };
  std::string text;
  if (stages.size() > kStagesShown) {
    const auto [least, most] = std::ranges::minmax(stages, {}, bytes_of);
    text = absl::StrFormat("of %d pipeline stages, those that need the most and the least:\n",
                           stages.size());
    stages = {most, least};
  }
  const bool has_stages = forecast["stages"].size() > 1;
  std::vector<std::vector<std::string>> rows(1, {"MiB PER DEVICE"});
  for (const auto& stage : stages)
    rows[0].push_back(has_stages ? absl::StrCat("STAGE ", stage["stage"].get<int>()) : "RANK 0");
  const auto add_row = [&](const std::string& name, const auto& value) {
    rows.push_back({name});
    for (const auto& stage : stages) rows.back().push_back(value(stage));
  };
  for (const std::string& name : names_of_uses(stages))
    add_row(name, [&](const auto& stage) { return bytes_of_use(stage, name); });
  add_row("together", [](const auto& stage) { return mib(stage["device_bytes"]); });
  add_row("of the device's", [&](const auto&) { return mib(forecast["memory_bytes"]); });
  return text + format_table(std::move(rows));
}

// Returns "fsdp=64 (64 ranks)", or "1 rank".
std::string mesh_text(const Mesh& mesh) {
  if (mesh.ranks() == 1) return "1 rank";
  return absl::StrCat(mesh.to_string(), " (", mesh.ranks(), " ranks)");
}

// The longest bar; with labels and figures a line has some 80 columns.
constexpr int kBarColumns = 40;

// Returns a bar of tokens/s per device for each combination with a time; "" if fewer than two have
// one. Combinations that do not fit have a light bar.
std::string speed_bars(const std::vector<VariedPlan>& plans) {
  double fastest = 0;
  size_t label_columns = 0, timed = 0;
  const auto label = [](const VariedPlan& plan) { return absl::StrJoin(plan.values, " "); };
  for (const VariedPlan& plan : plans) {
    if (!plan.figures) continue;
    ++timed;
    fastest = std::max(fastest, plan.figures->tokens_per_second_per_device);
    label_columns = std::max(label_columns, columns(shown(label(plan))));
  }
  if (timed < 2) return "";
  std::string text = "\ntokens/s per device (░: does not fit)\n";
  for (const VariedPlan& plan : plans) {
    if (!plan.figures) continue;
    const double speed = plan.figures->tokens_per_second_per_device;
    const int length = std::max(1, static_cast<int>(std::lround(kBarColumns * speed / fastest)));
    const std::string name = shown(label(plan));
    absl::StrAppend(&text, name, std::string(label_columns - columns(name) + 2, ' '));
    for (int i = 0; i < length; ++i)
      absl::StrAppend(&text, plan.forecast["fits"].get<bool>() ? "█" : "░");
    absl::StrAppendFormat(&text, " %.0f\n", speed);
  }
  return text;
}

}  // namespace

std::string describe_plan(const jobspec::ResolvedJob& job, const jobspec::PlannedMachines& machines,
                          const nlohmann::json& forecast) {
  const trainer::TrainConfig& train = job.train;
  const int64_t parameters = trainer::parameter_count(trainer::model_params(train.model));
  const int64_t sequences = jobspec::global_batch_size(job.mesh, job.train);
  std::string text = absl::StrCat(
      train.model.name.empty() ? "default" : train.model.name, ": ", with_commas(parameters),
      " parameters\n", machines_line(machines), "\nmesh: ", mesh_text(job.mesh), ", ",
      with_commas(sequences), sequences == 1 ? " sequence" : " sequences", " of ",
      train.max_target_length, " tokens in a step\n\n", memory_table(forecast), "\n");
  // The nodes of TPU slices are hosts, whose number of chips the topology does not state.
  if (machines.topology.has_backend)
    absl::StrAppendFormat(&text, "host memory: at most %s MiB per node\n",
                          mib(forecast["node_host_bytes"]));
  absl::StrAppendFormat(&text, "checkpoint: %s\n",
                        train.only_evaluates() ? "none (eval_only=true)"
                        : train.enable_checkpointing
                            ? absl::StrCat(mib(forecast["checkpoint_bytes"]), " MiB")
                            : "none (enable_checkpointing=false)");
  if (forecast["fits"].get<bool>()) {
    const uint64_t most = largest_device_bytes(forecast);
    absl::StrAppendFormat(
        &text, "it fits: %.1f MiB of a device's memory remain\n",
        (forecast["memory_bytes"].get<double>() - static_cast<double>(most)) / kMiB);
  }
  return text;
}

std::string describe_variations(const std::vector<std::string>& keys,
                                const std::vector<VariedPlan>& plans) {
  std::vector<std::vector<std::string>> rows(1, keys);
  for (const char* name : {"MESH", "SEQUENCES", "MiB PER DEVICE", "OF ITS MEMORY", "STEP",
                           "TOKENS/S/DEVICE", "MFU", "RESULT"})
    rows[0].emplace_back(name);
  for (const VariedPlan& plan : plans) {
    rows.push_back(plan.values);
    if (!plan.problem.empty()) {
      rows.back().insert(rows.back().end(), {"-", "-", "-", "-", "-", "-", "-", plan.problem});
      continue;
    }
    const double needed = static_cast<double>(largest_device_bytes(plan.forecast));
    const bool fits = plan.forecast["fits"].get<bool>();
    rows.back().insert(
        rows.back().end(),
        {plan.mesh, with_commas(plan.sequences), absl::StrFormat("%.1f", needed / kMiB),
         absl::StrFormat("%.0f%%", 100 * needed / plan.forecast["memory_bytes"].get<double>()),
         plan.figures ? absl::StrFormat("%.3g s", plan.figures->seconds) : "-",
         plan.figures ? absl::StrFormat("%.0f", plan.figures->tokens_per_second_per_device) : "-",
         plan.figures ? absl::StrFormat("%.1f%%", 100 * plan.figures->mfu) : "-",
         fits ? "fits" : "does not fit"});
  }
  return format_table(std::move(rows)) + speed_bars(plans);
}

}  // namespace muster::cli
