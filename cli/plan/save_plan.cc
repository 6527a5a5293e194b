#include "cli/plan/save_plan.h"

#include <string>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>

#include "cli/plan/forecast.h"
#include "cli/plan/plan_comparison.h"
#include "cli/terminal/terminal.h"
#include "common/files/file_write.h"
#include "trainer_core/base/saved_plan.h"
#include "trainer_core/base/units.h"

namespace muster::cli {
namespace {

nlohmann::json plan_of(const jobspec::ResolvedJob& job, const jobspec::PlannedMachines& machines,
                       const nlohmann::json& forecast) {
  const jobspec::Topology& topology = machines.topology;
  nlohmann::json plan = forecast["saved"];
  plan["machines"] = {{"topology", topology.name},
                      {"device", topology.device},
                      {"has_backend", topology.has_backend},
                      {"memory_bytes", forecast["memory_bytes"]},
                      {"nodes", machines.nodes},
                      {"devices_per_node", machines.devices_per_node}};
  plan["config"] = trainer::to_json(job.train);
  plan["device_bytes"] = largest_device_bytes(forecast);
  PredictedStep step = predicted_step(forecast);
  add_storage_waits(job.train, topology, forecast, step);
  // A run may have other data, so the plan has the time to read it in place of the wait.
  plan["step_seconds"] = step.seconds - step.data_seconds;
  plan["communication_seconds"] = step.communication_seconds;
  plan["read_seconds"] = step.read_seconds;
  plan["checkpoint_seconds"] = step.checkpoint_seconds;
  plan["memory"] = {{"stages", forecast["stages"]},
                    {"node_host_bytes", forecast["node_host_bytes"]},
                    {"checkpoint_bytes", forecast["checkpoint_bytes"]}};
  plan["step"] = forecast.value("time", nlohmann::json());
  return plan;
}

}  // namespace

absl::Status check_can_save(const jobspec::ResolvedJob& job) {
  const std::string& path = job.train.compiled_trainstep_file;
  return path.empty() ? absl::OkStatus() : trainer::check_replaceable(path);
}

absl::Status save_plan(const jobspec::ResolvedJob& job, const jobspec::PlannedMachines& machines,
                       const nlohmann::json& forecast) {
  const std::string& path = job.train.compiled_trainstep_file;
  if (path.empty()) return absl::OkStatus();
  if (!forecast.contains("saved")) return absl::InternalError("muster-trainer wrote no layouts");
  const std::string text = trainer::saved_plan_text(plan_of(job, machines, forecast));
  if (text.size() > trainer::kSavedPlanBytesMax)
    return absl::InvalidArgumentError(
        absl::StrCat("compiled_trainstep_file=", path, ": the plan would have ", text.size(),
                     " bytes, and a file may have at most ", trainer::kSavedPlanBytesMax));
  const auto file = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (const auto read = trainer::parse_saved_plan(file, path); !read.ok())
    return absl::InternalError(absl::StrCat("the plan is not saved, because no run could read it: ",
                                            read.status().message()));
  if (auto status = write_file_atomically(path, text); !status.ok())
    return absl::InvalidArgumentError(
        absl::StrCat("compiled_trainstep_file=", path, ": ", status.message()));
  note(
      absl::StrFormat("saved the plan in %s (%.2f MiB); a run with compiled_trainstep_file=%s "
                      "starts from it",
                      path, static_cast<double>(text.size()) / trainer::kMiB, path));
  if (!machines.topology.has_backend)
    warn(absl::StrCat("no run can start from ", path, ": the trainer has no backend for ",
                      machines.topology.device));
  return absl::OkStatus();
}

}  // namespace muster::cli
