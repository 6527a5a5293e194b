#include "trainer_core/startup/fitting_changes.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <limits>
#include <optional>
#include <utility>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>
#include <absl/strings/str_join.h>

#include "common/text/absl_view.h"
#include "common/text/number_text.h"
#include "common/text/with_commas.h"
#include "trainer_core/base/setting_space.h"
#include "trainer_core/base/train_mesh.h"
#include "trainer_core/model/param_spec.h"

namespace muster::trainer {
namespace {

using Dimension = SettingSpace::Dimension;
using Point = SettingSpace::Point;

constexpr auto kFsdpAxis = static_cast<size_t>(MeshAxis::kFsdp);
// Most nodes have at most as many devices, so more ranks are on more nodes.
constexpr int32_t kDevicesOfNode = 8;
// Bounds the number of plans of a suggestion with more nodes.
constexpr int32_t kRanksMax = 128;
// The width of the smallest model that is suggested.
constexpr int32_t kWidthMin = 64;
// Meshes that are tried: the nearest ones.
constexpr size_t kMeshesTried = 32;
// Settings whose time is compared, of those that change the same keys.
constexpr size_t kTimesCompared = 4;
// Changes of the same settings that are shown, if their time is known.
constexpr size_t kPerSettings = 2;
// Changes that are shown; more would hide the best.
constexpr size_t kChangesShown = 5;

// The order in which settings are suggested if no time is known.
constexpr std::array<Dimension, SettingSpace::kDimensions> kByPreference = {
    SettingSpace::kBatch, SettingSpace::kRemat, SettingSpace::kMesh, SettingSpace::kMoments,
    SettingSpace::kZero};

// A config that fits.
struct Candidate {
  TrainConfig config;
  FittingChange change;
  size_t bytes = 0;
  double seconds = std::numeric_limits<double>::infinity();  // per token
};

class ChangeSearch {
 public:
  ChangeSearch(const TrainConfig& config, const AdviceOptions& options, size_t limit,
               const std::function<size_t(const TrainConfig&)>& needed)
      : config_(config),
        options_(options),
        limit_(limit),
        needed_(needed),
        space_(config, {.keeps_global_batch = options.keeps_global_batch,
                        .changes_pipeline = options.changes_pipeline}) {
    for (const Dimension dimension : kByPreference) values_[dimension] = values_of(dimension);
  }

  std::vector<FittingChange> run() {
    std::vector<Candidate> found = alone();
    const auto wider = more_fsdp(config_, "");
    if (found.empty()) found = pairs();
    if (found.empty()) found = all_together();
    std::ranges::stable_sort(found, {}, &Candidate::seconds);
    if (found.size() > kChangesShown) found.resize(kChangesShown);
    std::vector<FittingChange> changes;
    for (Candidate& candidate : found) changes.push_back(std::move(candidate.change));
    if (wider) changes.push_back(*wider);
    if (found.empty()) beyond_settings(changes);
    return changes;
  }

 private:
  // The values of a dimension that differ from the config's, in the order in which they are tried.
  std::vector<size_t> values_of(Dimension dimension) const {
    std::vector<size_t> values;
    // An evaluation saves no activations and has no state of an optimizer.
    const bool of_training =
        dimension == SettingSpace::kRemat || dimension == SettingSpace::kMoments;
    if (of_training && config_.only_evaluates()) return values;
    if (dimension == SettingSpace::kMesh) {
      values = space_.nearest_meshes();
      values.resize(std::min(values.size(), kMeshesTried));
    } else if (dimension == SettingSpace::kBatch) {
      values = space_.smaller_batches();
    } else {
      for (size_t i = 0; i < space_.size(dimension); ++i)
        if (i != space_.start()[dimension]) values.push_back(i);
    }
    return values;
  }

  // Returns the bytes that a valid config needs, while the budget lasts.
  std::optional<size_t> bytes_of(const std::optional<TrainConfig>& config) {
    if (!config || plans_ == kAdvicePlansMax) return std::nullopt;
    const int32_t steps = config_.gradient_accumulation_steps;
    if (config_.only_evaluates() && config->gradient_accumulation_steps != steps) return {};
    ++plans_;
    return needed_(*config);
  }

  // Adds the point to `found` if it fits. Returns the bytes that it needs.
  std::optional<size_t> try_point(const Point& point, std::vector<Candidate>& found) {
    const auto config = space_.config_at(point);
    const auto bytes = bytes_of(config);
    if (bytes && *bytes <= limit_)
      found.push_back({*config, {.keys = words_between(config_, *config)}, *bytes});
    return bytes;
  }

  // Returns the best of the candidates that change the same settings: the fastest, or without a
  // time the first. `is_ordered`: earlier ones are nearer; otherwise those that need more memory
  // are.
  void add_best(std::vector<Candidate> fitting, bool is_ordered, std::vector<Candidate>& best) {
    if (fitting.empty()) return;
    if (!is_ordered) std::ranges::stable_sort(fitting, std::ranges::greater(), &Candidate::bytes);
    if (options_.seconds_per_token) {
      fitting.resize(std::min(fitting.size(), kTimesCompared));
      for (Candidate& candidate : fitting)
        candidate.seconds = options_.seconds_per_token(candidate.config);
      std::ranges::stable_sort(fitting, {}, &Candidate::seconds);
    }
    const size_t shown = options_.seconds_per_token ? kPerSettings : 1;
    fitting.resize(std::min(fitting.size(), shown));
    std::ranges::move(fitting, std::back_inserter(best));
  }

  std::vector<Candidate> alone() {
    std::vector<Candidate> best;
    for (const Dimension dimension : kByPreference) {
      std::vector<Candidate> fitting;
      size_t least = std::numeric_limits<size_t>::max();
      for (const size_t value : values_[dimension]) {
        Point point = space_.start();
        point[dimension] = value;
        const auto bytes = try_point(point, fitting);
        if (bytes && *bytes < least) {
          least = *bytes;
          least_[dimension] = value;
        }
      }
      add_best(std::move(fitting), is_ordered(dimension), best);
    }
    add_switches(best);
    return best;
  }
  static bool is_ordered(Dimension dimension) {
    return dimension == SettingSpace::kBatch || dimension == SettingSpace::kMesh;
  }

  std::vector<Candidate> pairs() {
    std::vector<Candidate> best;
    for (size_t i = 0; i < kByPreference.size(); ++i) {
      for (size_t k = i + 1; k < kByPreference.size(); ++k) {
        const Dimension first = kByPreference[i], second = kByPreference[k];
        if (!least_[first] || !least_[second] || !can_fit({first, second})) continue;
        std::vector<Candidate> fitting;
        for (const size_t a : values_[first]) {
          for (const size_t b : values_[second]) {
            Point point = space_.start();
            point[first] = a;
            point[second] = b;
            try_point(point, fitting);
          }
        }
        add_best(std::move(fitting), /*is_ordered=*/false, best);
      }
    }
    return best;
  }

  // The point with the least values of these dimensions.
  Point least_point(std::initializer_list<Dimension> dimensions) const {
    Point point = space_.start();
    for (const Dimension dimension : dimensions)
      point[dimension] = least_[dimension].value_or(point[dimension]);
    return point;
  }
  bool can_fit(std::initializer_list<Dimension> dimensions) {
    const auto bytes = bytes_of(space_.config_at(least_point(dimensions)));
    return bytes && *bytes <= limit_;
  }

  // Changes all settings to those that need the least memory, and takes back what is not needed.
  std::vector<Candidate> all_together() {
    Point point = least_point({SettingSpace::kBatch, SettingSpace::kRemat, SettingSpace::kMesh,
                               SettingSpace::kMoments, SettingSpace::kZero});
    std::vector<Candidate> fitting;
    try_point(point, fitting);
    if (fitting.empty()) return {};
    for (const Dimension dimension : kByPreference) {
      Point back = point;
      back[dimension] = space_.start()[dimension];
      const size_t before = fitting.size();
      if (back != point) try_point(back, fitting);
      if (fitting.size() > before) point = back;
    }
    std::vector<Candidate> best = {fitting.back()};
    if (options_.seconds_per_token)
      best.front().seconds = options_.seconds_per_token(best.front().config);
    return best;
  }

  // Both keys take memory for checkpoints beside the training's.
  void add_switches(std::vector<Candidate>& best) {
    if (!config_.enable_checkpointing) return;
    for (const auto& [key, field] : kSwitches) {
      TrainConfig config = config_;
      if (!std::exchange(config.*field, false) || !fits(config)) continue;
      best.push_back({config, {.keys = absl::StrCat(av(key), "=False")}, 0});
      if (options_.seconds_per_token)
        best.back().seconds = options_.seconds_per_token(best.back().config);
    }
  }

  bool fits(const TrainConfig& config) const {
    return validate(config).ok() && needed_(config) <= limit_;
  }

  // Adds changes of the smallest batch with the policy that retains least. What these take away
  // from a training is more than its speed.
  void beyond_settings(std::vector<FittingChange>& changes) const {
    TrainConfig least = config_;
    least.per_device_batch_size = config_.pipeline_microbatches;
    if (!config_.only_evaluates()) least.remat_policy = RematPolicy::kFull;
    if (!validate(least).ok()) return;
    std::string keys = words_between(config_, least);
    const auto add = [&](const std::optional<FittingChange>& change) {
      if (change) changes.push_back(*change);
    };
    const size_t before = changes.size();
    add(more_fsdp(least, keys));
    for (const auto& [key, field] : kSwitches)
      if (config_.enable_checkpointing && std::exchange(least.*field, false))
        absl::StrAppend(&keys, keys.empty() ? "" : " ", av(key), "=False");
    if (fits(least)) {
      changes.push_back(change(least, keys, ""));
      return;
    }
    if (changes.size() == before) add(more_fsdp(least, keys));
    add(shorter(least, keys));
    if (config_.only_evaluates()) return;  // its model is given
    add(smaller_model(least, keys));
    if (changes.size() > before || least.max_target_length <= kSuggestedLengthMin) return;
    least.max_target_length = kSuggestedLengthMin;
    add(smaller_model(least, absl::StrCat(keys, " max_target_length=", kSuggestedLengthMin)));
  }

  // Returns the words that make `to` of `from`, except for those of the global batch.
  std::string words_between(const TrainConfig& from, const TrainConfig& to) const {
    SettingKeys keys = changed_keys(from, to);
    if (options_.keeps_global_batch)
      std::erase_if(keys, [](const auto& key) { return key.first == "per_device_batch_size"; });
    return format_settings(keys);
  }

  static int64_t sequences_of_step(const TrainConfig& config) {
    return int64_t{config.per_device_batch_size} * config.gradient_accumulation_steps *
           mesh_of(config.mesh).group_size({.axes = kBatchAxes});
  }

  // Returns a change with the words in `before` and `keys`, which make `to` of the job's config,
  // and with global_batch_size if the job gives it and `to` has another one.
  FittingChange change(const TrainConfig& to, const std::string& before, const std::string& keys,
                       std::string note = "") const {
    const int64_t sequences = sequences_of_step(to);
    const std::string global =
        options_.keeps_global_batch && sequences != sequences_of_step(config_)
            ? absl::StrCat("global_batch_size=", sequences)
            : "";
    std::vector<absl::string_view> words = {before, keys, global};
    std::erase(words, "");
    return {.keys = absl::StrJoin(words, " "), .note = std::move(note)};
  }

  // The present ranks remain ranks of the wider mesh, and the first of several stages stays first.
  std::optional<FittingChange> more_fsdp(const TrainConfig& config, const std::string& keys) const {
    const Mesh present = mesh_of(config.mesh);
    for (int32_t times = 2; times <= kFsdpTimesMax; times *= 2) {
      const bool in_node = options_.fsdp == Fsdp::kMoreInNode && options_.planned_slices == 0 &&
                           present.nodes() == 1 && present.ranks() * times <= kDevicesOfNode;
      TrainConfig wider = config;
      (in_node ? wider.mesh.ici : wider.mesh.dcn)[kFsdpAxis] *= times;
      if (!validate(wider).ok()) continue;
      const Mesh mesh = mesh_of(wider.mesh);
      if (options_.fsdp == Fsdp::kMoreNodes && mesh.ranks() > kRanksMax) break;
      if (!fits(wider)) continue;
      std::string words = words_between(config, wider);
      if (options_.planned_slices > 0)
        words = absl::StrCat("compile_topology_num_slices=", options_.planned_slices * times, " ",
                             words);
      return change(
          wider, keys, words,
          in_node ? absl::StrCat(mesh.ranks(), " ranks") : absl::StrCat(mesh.nodes(), " nodes"));
    }
    return std::nullopt;
  }
  std::optional<FittingChange> shorter(TrainConfig config, const std::string& keys) const {
    while (config.max_target_length / 2 >= kSuggestedLengthMin) {
      config.max_target_length /= 2;
      if (fits(config))
        return change(config, keys, absl::StrCat("max_target_length=", config.max_target_length));
    }
    return std::nullopt;
  }
  // Halves the layers, and then the widths of the last one. These are no keys: a model's name fixes
  // them.
  std::optional<FittingChange> smaller_model(TrainConfig config, const std::string& keys) const {
    ModelConfig& model = config.model;
    while (model.num_layers > 1) {
      model.num_layers /= 2;
      if (fits(config)) return with_model(config, keys);
    }
    while (model.emb_dim / 2 >= kWidthMin) {
      model.emb_dim /= 2;
      model.mlp_dim = std::max(model.mlp_dim / 2, 1);
      model.num_query_heads = std::max(model.num_query_heads / 2, 1);
      model.num_kv_heads = std::min(model.num_kv_heads, model.num_query_heads);
      if (fits(config)) return with_model(config, keys);
    }
    return std::nullopt;
  }
  FittingChange with_model(const TrainConfig& config, const std::string& keys) const {
    const auto parameters = parameter_count(model_params(config.model));
    return change(config, keys, "",
                  absl::StrFormat("with a model of %s of width %d (%s parameters)",
                                  counted(static_cast<uint64_t>(config.model.num_layers), "layer"),
                                  config.model.emb_dim, with_commas(parameters)));
  }

  struct Switch {
    std::string_view key;
    bool TrainConfig::*field;
  };
  static constexpr std::array<Switch, 2> kSwitches = {
      {{"async_checkpointing", &TrainConfig::async_checkpointing},
       {"enable_emergency_checkpoint", &TrainConfig::enable_emergency_checkpoint}}};

  const TrainConfig& config_;
  const AdviceOptions& options_;
  const size_t limit_;
  const std::function<size_t(const TrainConfig&)>& needed_;
  const SettingSpace space_;
  std::array<std::vector<size_t>, SettingSpace::kDimensions> values_;
  // The value of each dimension that needs the least memory if it alone changes.
  std::array<std::optional<size_t>, SettingSpace::kDimensions> least_;
  int32_t plans_ = 0;
};

}  // namespace

std::vector<FittingChange> fitting_changes(
    const TrainConfig& config, const AdviceOptions& options, size_t limit,
    const std::function<size_t(const TrainConfig&)>& needed) {
  return ChangeSearch(config, options, limit, needed).run();
}

std::string list_of(const std::vector<FittingChange>& changes) {
  if (changes.empty()) return "";
  std::string list =
      changes.size() == 1 ? "what would fit:\n" : "what would fit, each by itself:\n";
  for (const FittingChange& change : changes) {
    const char* gap = change.keys.empty() || change.note.empty() ? "" : "  ";
    absl::StrAppend(&list, "  ", change.keys, gap, change.note.empty() ? "" : "# ", change.note,
                    "\n");
  }
  return list;
}

std::string sentence_of(const std::vector<FittingChange>& changes) {
  return absl::StrJoin(changes, ", or ", [](std::string* out, const FittingChange& change) {
    if (change.keys.empty() || change.note.empty()) {
      absl::StrAppend(out, change.keys, change.note);
    } else {
      absl::StrAppend(out, change.keys, " (", change.note, ")");
    }
  });
}

std::string insufficient_changes(const TrainConfig& config, const std::string& more_fsdp) {
  if (config.only_evaluates())
    return absl::StrCat("the smallest batch, ", more_fsdp, " and shorter sequences");
  return absl::StrCat("the smallest batch with remat_policy=full, ", more_fsdp,
                      ", shorter sequences and smaller models");
}

}  // namespace muster::trainer
