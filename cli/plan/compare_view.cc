#include "cli/plan/compare_view.h"

#include <algorithm>
#include <functional>
#include <set>
#include <string_view>

#include <absl/strings/str_format.h>

#include "cli/plan/forecast.h"
#include "cli/terminal/terminal.h"
#include "common/text/with_commas.h"
#include "trainer_core/base/units.h"

namespace muster::cli {
namespace {

constexpr std::array<std::string_view, 7> kNoPlanKeys = {
    "run_name",        "checkpoint_directory", "base_output_directory",     "metrics_file",
    "tensorboard_dir", "model_call_mode",      "local_checkpoint_directory"};

std::string text_of(const nlohmann::json& keys, const std::string& key) {
  const auto value = keys.find(key);
  if (value == keys.end()) return "-";
  return value->is_string() ? value->get<std::string>() : value->dump();
}

using Row = std::vector<std::string>;
using Figure = std::function<double(const ComparedPlan&)>;
using Format = std::function<std::string(double)>;

// Appends a row with both values and their difference in percent of the left one.
void add_figure(std::vector<Row>& rows, const std::string& name, const ComparedPlans& plans,
                const Figure& figure, const Format& format) {
  const double left = figure(plans[0]), right = figure(plans[1]);
  rows.push_back({name, format(left), format(right),
                  left == 0 ? "-" : absl::StrFormat("%+.1f%%", 100 * (right / left - 1))});
}

std::string whole_figure(double value) { return with_commas(static_cast<int64_t>(value + 0.5)); }

}  // namespace

std::vector<DifferentKey> different_keys(const ComparedPlans& plans) {
  std::set<std::string> names;
  for (const ComparedPlan& plan : plans)
    for (const auto& [key, value] : plan.keys.items()) names.insert(key);
  std::vector<DifferentKey> found;
  for (const std::string& key : names) {
    const DifferentKey row{key, {text_of(plans[0].keys, key), text_of(plans[1].keys, key)}};
    const bool matters = std::ranges::find(kNoPlanKeys, key) == kNoPlanKeys.end();
    if (matters && row.values[0] != row.values[1]) found.push_back(row);
  }
  return found;
}

std::string describe_comparison(const ComparedPlans& plans) {
  std::vector<Row> keys(1, {"KEY", plans[0].name, plans[1].name});
  for (const DifferentKey& row : different_keys(plans))
    keys.push_back({row.key, row.values[0], row.values[1]});
  std::vector<Row> rows(1, {"PLAN", plans[0].name, plans[1].name, "DIFFERENCE"});
  rows.push_back({"mesh", plans[0].mesh, plans[1].mesh, "-"});
  const auto add = [&](const std::string& name, const Figure& figure, const Format& format) {
    add_figure(rows, name, plans, figure, format);
  };
  add(
      "sequences per step",
      [](const ComparedPlan& plan) { return static_cast<double>(plan.sequences); }, whole_figure);
  add(
      "MiB per device",
      [](const ComparedPlan& plan) {
        return static_cast<double>(largest_device_bytes(plan.forecast)) / trainer::kMiB;
      },
      [](double value) { return absl::StrFormat("%.1f", value); });
  const auto result = [](const ComparedPlan& plan) {
    return plan.forecast["fits"].get<bool>() ? "fits" : "does not fit";
  };
  rows.push_back({"result", result(plans[0]), result(plans[1]), "-"});
  if (plans[0].figures && plans[1].figures) {
    const auto add_step = [&](const std::string& name, double StepFigures::*field, double scale,
                              const Format& format) {
      add(
          name, [&](const ComparedPlan& plan) { return scale * ((*plan.figures).*field); }, format);
    };
    const Format short_text = [](double value) { return absl::StrFormat("%.3g", value); };
    add_step("step, s", &StepFigures::seconds, 1, short_text);
    add_step("tokens/s", &StepFigures::tokens_per_second, 1, whole_figure);
    add_step("tokens/s per device", &StepFigures::tokens_per_second_per_device, 1, whole_figure);
    add_step("MFU, %", &StepFigures::mfu, 100,
             [](double value) { return absl::StrFormat("%.1f", value); });
    add_step("days for all steps", &StepFigures::run_days, 1, short_text);
    add_step("GPU-hours", &StepFigures::gpu_hours, 1, whole_figure);
    const auto add_if_known = [&](const std::string& name,
                                  std::optional<double> StepFigures::*field, const Format& format) {
      if (((*plans[0].figures).*field) && ((*plans[1].figures).*field))
        add(
            name, [&](const ComparedPlan& plan) { return *((*plan.figures).*field); }, format);
    };
    add_if_known("cost", &StepFigures::cost, whole_figure);
    add_if_known("kWh", &StepFigures::kilowatt_hours, short_text);
    add_if_known("cost of energy", &StepFigures::energy_cost, short_text);
  }
  const std::string changes =
      keys.size() == 1 ? "all keys that matter are equal\n" : format_table(std::move(keys));
  return changes + "\n" + format_table(std::move(rows));
}

nlohmann::json to_json(const ComparedPlans& plans) {
  auto both = nlohmann::json::array();
  for (const ComparedPlan& plan : plans) {
    both.push_back({{"name", plan.name},
                    {"mesh", plan.mesh},
                    {"sequences", plan.sequences},
                    {"memory", plan.forecast},
                    {"step", plan.figures ? to_json(*plan.figures) : nlohmann::json()}});
  }
  auto keys = nlohmann::json::object();
  for (const DifferentKey& row : different_keys(plans))
    keys[row.key] = {plans[0].keys.value(row.key, nlohmann::json()),
                     plans[1].keys.value(row.key, nlohmann::json())};
  return {{"plans", std::move(both)}, {"keys", std::move(keys)}};
}

}  // namespace muster::cli
