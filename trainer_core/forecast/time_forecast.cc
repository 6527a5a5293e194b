#include "trainer_core/forecast/time_forecast.h"

#include <limits>
#include <string>
#include <utility>

#include <absl/strings/str_cat.h>

#include "common/files/file_write.h"
#include "trainer_core/base/json_file.h"
#include "trainer_core/forecast/plan_search.h"
#include "trainer_core/forecast/timeline.h"
#include "trainer_core/startup/load_config.h"

namespace muster::trainer {
namespace {

absl::StatusOr<std::string> job_name(const nlohmann::json& value) {
  if (value.is_string()) return value.get<std::string>();
  return absl::InvalidArgumentError(
      absl::StrCat("a name of a job is not a string: ", value.dump()));
}

absl::StatusOr<StepMachine> read_machine(const std::string& path) {
  const auto text = read_json_file(path, kConfigBytesMax);
  if (!text.ok()) return text.status();
  return step_machine_from_json(*text);
}

}  // namespace

absl::StatusOr<std::function<double(const TrainConfig&)>> seconds_per_token(
    const std::string& path) {
  auto machine = read_machine(path);
  if (!machine.ok()) return machine.status();
  return [machine = *std::move(machine)](const TrainConfig& config) {
    const auto model = StepModel::record(config);
    if (!model.ok()) return std::numeric_limits<double>::infinity();
    return model->forecast(machine).seconds / tokens_of_step(config);
  };
}

absl::StatusOr<nlohmann::json> forecast_time(const TrainConfig& config, const std::string& path,
                                             const std::string& timeline_path) {
  const auto machine = read_machine(path);
  if (!machine.ok()) return machine.status();
  const auto model = StepModel::record(config);
  if (!model.ok()) return model.status();
  if (!timeline_path.empty()) {
    const auto picture = timeline(*model, *machine, timeline_path);
    if (!picture.ok()) return picture.status();
    if (auto status = write_file_atomically(timeline_path, *picture); !status.ok()) return status;
  }
  return to_json(model->forecast(*machine), *model, machine->device);
}

absl::StatusOr<nlohmann::json> answer_step_times(const nlohmann::json& line,
                                                 std::map<std::string, StepModel>& models) {
  if (!line.is_object()) return absl::InvalidArgumentError("a line is not a JSON object");
  if (line.contains("config")) {
    const auto job = job_name(line.value("job", nlohmann::json("")));
    if (!job.ok()) return job.status();
    auto config = train_config_from_json(line["config"]);
    if (!config.ok()) return config.status();
    auto model = StepModel::record(*config);
    if (!model.ok()) return model.status();
    models.insert_or_assign(*job, *std::move(model));
    return nlohmann::json{{"job", *job}};
  }
  const auto machine = step_machine_from_json(line.value("machine", nlohmann::json::object()));
  if (!machine.ok()) return machine.status();
  const nlohmann::json jobs = line.value("jobs", nlohmann::json::array());
  if (!jobs.is_array()) return absl::InvalidArgumentError("jobs is not a list");
  auto times = nlohmann::json::array();
  for (const nlohmann::json& name : jobs) {
    const auto job = job_name(name);
    if (!job.ok()) return job.status();
    const auto model = models.find(*job);
    if (model == models.end()) return absl::NotFoundError(absl::StrCat("no job ", *job));
    times.push_back(to_json(model->second.forecast(*machine), model->second, machine->device));
  }
  return times;
}

}  // namespace muster::trainer
