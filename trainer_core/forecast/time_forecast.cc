#include "trainer_core/forecast/time_forecast.h"

#include <utility>
#include <vector>

#include <absl/strings/str_cat.h>

#include "common/files/file_write.h"
#include "trainer_core/base/json_file.h"
#include "trainer_core/forecast/timeline.h"
#include "trainer_core/startup/load_config.h"

namespace muster::trainer {

absl::StatusOr<nlohmann::json> forecast_time(const TrainConfig& config, const std::string& path,
                                             const std::string& timeline_path) {
  const auto text = read_json_file(path, kConfigBytesMax);
  if (!text.ok()) return text.status();
  const auto machine = step_machine_from_json(*text);
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
    auto config = train_config_from_json(line["config"]);
    if (!config.ok()) return config.status();
    auto model = StepModel::record(*config);
    if (!model.ok()) return model.status();
    const std::string job = line.value("job", "");
    models.insert_or_assign(job, *std::move(model));
    return nlohmann::json{{"job", job}};
  }
  const auto machine = step_machine_from_json(line.value("machine", nlohmann::json::object()));
  if (!machine.ok()) return machine.status();
  auto times = nlohmann::json::array();
  for (const std::string& job : line.value("jobs", std::vector<std::string>())) {
    const auto model = models.find(job);
    if (model == models.end()) return absl::NotFoundError(absl::StrCat("no job ", job));
    times.push_back(to_json(model->second.forecast(*machine), model->second, machine->device));
  }
  return times;
}

}  // namespace muster::trainer
