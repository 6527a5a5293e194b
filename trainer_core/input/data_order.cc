#include "trainer_core/input/data_order.h"

#include <algorithm>
#include <string_view>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>

#include "common/random/fnv.h"
#include "trainer_core/data/blend.h"

namespace muster::trainer {
namespace {

using nlohmann::json;

constexpr char kDatasets[] = "dataset_path";
constexpr char kSampleBegin[] = "sample_begin_id";
// The keys in the order of comparison: a key that explains differences of other keys is before
// them.
constexpr const char* kKeys[] = {"dataset_type",
                                 kDatasets,
                                 "max_target_length",
                                 "packing",
                                 "use_sft",
                                 "sft_train_on_completion_only",
                                 "sft_long_samples",
                                 "sft_loss_average",
                                 "use_dpo",
                                 "enable_data_shuffling",
                                 "eval_holdout_fraction",
                                 "data_shuffle_seed",
                                 "reuse_example_batch"};

json at(const json& object, const char* key) {
  if (!object.is_object()) return nullptr;
  const auto found = object.find(key);
  return found == object.end() ? json() : *found;
}

// Formats a value for a message; strings have no quotes.
std::string show(const json& value) {
  if (value.is_null()) return "unset";
  if (value.is_string()) return value.get<std::string>();
  return value.dump(-1, ' ', false, json::error_handler_t::replace);
}

std::string show_dataset(const json& dataset) {
  return absl::StrCat(show(at(dataset, "folder")), " (", show(at(dataset, "tokens")), " tokens in ",
                      show(at(dataset, "documents")), " documents, checksum ",
                      show(at(dataset, "checksum")), ")");
}

bool same(const json& then, const json& now, std::initializer_list<const char*> keys) {
  return std::ranges::all_of(keys, [&](const char* key) { return at(then, key) == at(now, key); });
}

std::string datasets_difference(const json& then, const json& now) {
  if (!then.is_array() || !now.is_array() || then.size() != now.size())
    return absl::StrCat(kDatasets, " had ", then.size(), " data sets and has ", now.size());
  for (size_t i = 0; i < now.size(); ++i) {
    const std::string which = now.size() == 1 ? std::string(kDatasets)
                                              : absl::StrCat("data set ", i + 1, " of ", kDatasets);
    if (!same(then[i], now[i], {"tokens", "documents", "checksum"}))
      return absl::StrCat(which, " was ", show_dataset(then[i]), " and is ", show_dataset(now[i]));
    if (!same(then[i], now[i], {"share"})) {
      return absl::StrCat("the share of ", show(at(now[i], "folder")), " in ", kDatasets, " was ",
                          show(at(then[i], "share")), " and is ", show(at(now[i], "share")));
    }
  }
  return "";
}

}  // namespace

json data_order(const TrainConfig& config, const std::vector<DataShare>& shares,
                const std::vector<std::shared_ptr<const TokenDataset>>& datasets) {
  if (config.dataset_type != DatasetType::kShards) return {{"dataset_type", "synthetic"}};
  std::vector<double> weights;
  for (const DataShare& share : shares) weights.push_back(share.weight);
  const Blend blend(weights);
  json sources = json::array();
  for (size_t i = 0; i < shares.size(); ++i) {
    sources.push_back({{"folder", shares[i].folder},
                       {"share", blend.share(i)},
                       {"tokens", datasets[i]->tokens()},
                       {"documents", datasets[i]->documents()},
                       {"checksum", absl::StrFormat("%016x", fnv1a(datasets[i]->checksums()))}});
  }
  json order = {{"dataset_type", "shards"},
                {kDatasets, std::move(sources)},
                {"max_target_length", config.max_target_length},
                {"packing", config.packing},
                {"enable_data_shuffling", config.enable_data_shuffling},
                {"eval_holdout_fraction", config.eval.holdout_fraction},
                {"reuse_example_batch", config.reuse_example_batch}};
  if (config.sft.enabled) {
    order["use_sft"] = true;
    order["sft_train_on_completion_only"] = config.sft.completion_only;
    order["sft_long_samples"] = std::string(name_of(kLongSamplesNames, config.sft.long_samples));
    order["sft_loss_average"] = std::string(name_of(kLossAverageNames, config.sft.loss_average));
  }
  if (config.dpo.enabled) order["use_dpo"] = true;
  if (config.enable_data_shuffling || config.eval.holdout_fraction > 0)
    order["data_shuffle_seed"] = config.data_shuffle_seed;
  const auto begins_alike = [&](const auto& dataset) {
    return dataset->index().begin_id == datasets[0]->index().begin_id;
  };
  // Not compared: the checksums cover the tokens of samples.
  if (!datasets.empty() && datasets[0]->index().begin_id >= 0 &&
      std::ranges::all_of(datasets, begins_alike))
    order[kSampleBegin] = datasets[0]->index().begin_id;
  return order;
}

int32_t sample_begin_id(const json& order) {
  const json id = at(order, kSampleBegin);
  return id.is_number_integer() ? id.get<int32_t>() : -1;
}

std::string data_order_difference(const json& then, const json& now) {
  for (const char* key : kKeys) {
    const json before = at(then, key), after = at(now, key);
    if (std::string_view(key) == kDatasets && !after.is_null()) {
      if (std::string difference = datasets_difference(before, after); !difference.empty())
        return difference;
    } else if (before != after) {
      return absl::StrCat(key, " was ", show(before), " and is ", show(after));
    }
  }
  return "";
}

absl::StatusOr<std::string> judge_data_order(const TrainConfig& config,
                                             const CheckpointInfo& checkpoint, const json& now) {
  if (checkpoint.data.is_null()) {
    return absl::StrCat("checkpoint ", checkpoint.folder,
                        " does not record its data; training resumes as if the data were the same");
  }
  const std::string difference = data_order_difference(checkpoint.data, now);
  if (difference.empty()) return "";
  if (config.resume_with_other_data) {
    return absl::StrCat("checkpoint ", checkpoint.folder, " was made with other data: ", difference,
                        "; training resumes at sample ", checkpoint.samples,
                        " of the present data");
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "checkpoint ", checkpoint.folder, " was made with other data: ", difference,
      "; restore the earlier value, set resume_with_other_data=True to resume at sample ",
      checkpoint.samples, " of the present data, or choose another run_name to start from step 0"));
}

}  // namespace muster::trainer
