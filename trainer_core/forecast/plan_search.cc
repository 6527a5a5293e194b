#include "trainer_core/forecast/plan_search.h"

#include <algorithm>
#include <atomic>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>

#include "trainer_core/base/train_mesh.h"
#include "trainer_core/forecast/step_time.h"

namespace muster::trainer {
namespace {

using Point = SettingSpace::Point;

// Points of the remaining space that are planned at a time: enough to occupy all threads.
constexpr size_t kPointsAtATime = 64;

std::string identity(const TrainConfig& config) { return format_settings(setting_keys(config)); }

class PlanSearch {
 public:
  PlanSearch(const TrainConfig& config, const PlannedDevice& device, const StepMachine& machine,
             const SearchOptions& options,
             const std::function<bool(const SearchProgress&)>& proceed)
      : space_(config, options.space),
        device_(device),
        machine_(machine),
        options_(options),
        proceed_(proceed),
        result_{.own = {.config = config}} {}

  absl::StatusOr<SearchResult> run() {
    if (auto status = plan_own(); !status.ok()) return status;
    while (has_budget()) {
      const Visited* next = next_to_expand();
      if (next == nullptr) break;
      const Point point = next->point;
      expanded_.insert(point);
      plan(space_.neighbours(point));
    }
    plan_rest();
    if (visited_.size() == 1 && !result_.is_interrupted && !is_cut_)
      return absl::InvalidArgumentError(
          "nothing is free to vary: the kept keys leave no other setting that the trainer can run");
    for (const Visited* found : frontier_) result_.frontier.push_back(found->setting);
    return std::move(result_);
  }

 private:
  struct Visited {
    Point point;
    PlannedSetting setting;
  };

  absl::Status plan_own() {
    PlannedSetting own = planned(result_.own.config);
    const auto model = StepModel::record(own.config);
    if (!model.ok()) return model.status();
    add_time(own, *model);
    result_.own = own;
    seen_.insert(identity(own.config));
    add({space_.start(), std::move(own)});
    return absl::OkStatus();
  }

  PlannedSetting planned(const TrainConfig& config) const {
    PlannedSetting setting{.config = config,
                           .memory = forecast_memory(config, device_, {.is_wanted = false})};
    setting.device_bytes = largest_device_bytes(setting.memory);
    return setting;
  }

  void add_time(PlannedSetting& setting, const StepModel& model) const {
    const StepTimeForecast forecast = model.forecast(machine_);
    setting.time = to_json(forecast, model, machine_.device);
    setting.tokens_per_second = tokens_of_step(setting.config) / forecast.seconds;
  }

  bool has_budget() const {
    return !result_.is_interrupted && result_.planned < options_.plans_max;
  }

  // Plans those of the points that no earlier call has planned, within the budget.
  void plan(const std::vector<Point>& points) {
    std::vector<Visited> batch;
    for (const Point& point : points) {
      auto config = space_.config_at(point);
      if (!config || seen_.contains(identity(*config))) continue;
      if (batch.size() + result_.planned >= options_.plans_max) {
        is_cut_ = true;
        break;
      }
      seen_.insert(identity(*config));
      batch.push_back({point, {.config = *std::move(config)}});
    }
    std::vector<char> is_done(batch.size());  // not vector<bool>, whose elements share bytes
    std::atomic<size_t> next{0};
    std::atomic<bool> stopped{false};
    const auto work = [&](bool reports) {
      for (size_t i = next++; i < batch.size() && !stopped; i = next++) {
        plan_one(batch[i].setting);
        is_done[i] = 1;
        if (reports && !proceed_(progress(result_.planned + i + 1))) stopped = true;
      }
    };
    {
      std::vector<std::jthread> threads;
      const auto count = std::min(static_cast<size_t>(options_.threads), batch.size());
      for (size_t i = 1; i < count; ++i) threads.emplace_back(work, false);
      work(true);
    }
    result_.is_interrupted = stopped;
    for (size_t i = 0; i < batch.size(); ++i)
      if (is_done[i] != 0) add(std::move(batch[i]));
  }

  void plan_one(PlannedSetting& setting) const {
    setting = planned(setting.config);
    if (!setting.memory.fits) return;
    const auto model = StepModel::record(setting.config);
    if (model.ok()) add_time(setting, *model);
  }

  SearchProgress progress(size_t planned) const {
    return {
        .planned = planned,
        .fitting = result_.fitting,
        .tokens_per_second = frontier_.empty() ? 0 : frontier_.back()->setting.tokens_per_second};
  }

  void add(Visited visited) {
    visited_.push_back(std::make_unique<Visited>(std::move(visited)));
    Visited* added = visited_.back().get();
    ++result_.planned;
    const PlannedSetting& setting = added->setting;
    if (!setting.memory.fits || setting.tokens_per_second <= 0) return drop_details(*added);
    ++result_.fitting;
    const auto beats = [](const PlannedSetting& a, const PlannedSetting& b) {
      return a.device_bytes <= b.device_bytes && a.tokens_per_second >= b.tokens_per_second;
    };
    if (std::ranges::any_of(frontier_,
                            [&](const Visited* it) { return beats(it->setting, setting); }))
      return drop_details(*added);
    std::erase_if(frontier_, [&](Visited* it) {
      if (!beats(setting, it->setting)) return false;
      drop_details(*it);
      return true;
    });
    const auto place =
        std::ranges::upper_bound(frontier_, setting.device_bytes, {},
                                 [](const Visited* it) { return it->setting.device_bytes; });
    frontier_.insert(place, added);
  }

  // Frees what only a row of the result needs: a search may visit some 100,000 settings.
  static void drop_details(Visited& visited) {
    visited.setting.memory.stages = std::vector<StageMemory>();
    visited.setting.time = nullptr;
  }

  // Returns the fastest unexpanded setting of the frontier; if none fits, the one of all unexpanded
  // ones that needs the least memory; nullptr if there is none.
  const Visited* next_to_expand() const {
    for (auto it = frontier_.rbegin(); it != frontier_.rend(); ++it)
      if (!expanded_.contains((*it)->point)) return *it;
    const Visited* least = nullptr;
    if (!frontier_.empty()) return least;
    for (const auto& visited : visited_) {
      if (expanded_.contains(visited->point)) continue;
      if (least == nullptr || visited->setting.device_bytes < least->setting.device_bytes)
        least = visited.get();
    }
    return least;
  }

  void plan_rest() {
    size_t index = 0;
    const size_t points = space_.points();
    // The points with the same mesh and batch follow each other.
    const size_t per_batch =
        points / space_.size(SettingSpace::kMesh) / space_.size(SettingSpace::kBatch);
    while (!result_.is_interrupted && !is_cut_ && index < points) {
      std::vector<Point> some;
      for (size_t tried = 0; index < points && tried < kPointsAtATime; ++tried) {
        const Point point = space_.point_at(index);
        const bool is_open = index % per_batch != 0 || space_.can_have_batch(point);
        index += is_open ? 1 : per_batch;
        if (is_open) some.push_back(point);
      }
      plan(some);
      if (!result_.is_interrupted && !proceed_(progress(result_.planned)))
        result_.is_interrupted = true;
    }
    result_.is_complete = !result_.is_interrupted && !is_cut_;
  }

  const SettingSpace space_;
  const PlannedDevice& device_;
  const StepMachine& machine_;
  const SearchOptions& options_;
  const std::function<bool(const SearchProgress&)>& proceed_;
  SearchResult result_;
  std::vector<std::unique_ptr<Visited>> visited_;
  std::vector<Visited*> frontier_;  // by ascending memory and speed
  std::set<Point> expanded_;
  std::set<std::string> seen_;
  bool is_cut_ = false;  // the limit has left out a point
};

nlohmann::json object_of(const SettingKeys& keys) {
  auto object = nlohmann::json::object();
  for (const auto& [key, value] : keys) object[key] = value;
  return object;
}

nlohmann::json row_of(const PlannedSetting& own, const PlannedSetting& setting) {
  const SettingKeys changes = changed_keys(own.config, setting.config);
  return {{"changes", object_of(changes)},
          {"line", format_settings(changes)},
          {"keys", object_of(setting_keys(setting.config))},
          {"memory", to_json(setting.memory)},
          {"time", setting.time}};
}

}  // namespace

double tokens_of_step(const TrainConfig& config) {
  const int32_t slices = mesh_of(config.mesh).group_size({.axes = kBatchAxes});
  return static_cast<double>(config.per_device_batch_size) * config.gradient_accumulation_steps *
         slices * config.max_target_length;
}

absl::StatusOr<SearchResult> search_settings(
    const TrainConfig& config, const PlannedDevice& device, const StepMachine& machine,
    const SearchOptions& options, const std::function<bool(const SearchProgress&)>& proceed) {
  return PlanSearch(config, device, machine, options, proceed).run();
}

nlohmann::json to_json(const SearchResult& result) {
  auto rows = nlohmann::json::array();
  for (const PlannedSetting& setting : result.frontier) rows.push_back(row_of(result.own, setting));
  return {{"own", row_of(result.own, result.own)},
          {"rows", std::move(rows)},
          {"planned", result.planned},
          {"fitting", result.fitting},
          {"complete", result.is_complete},
          {"interrupted", result.is_interrupted}};
}

}  // namespace muster::trainer
