#include "jobspec/settings/keys.h"

#include <map>
#include <vector>

#include "common/text/nearest.h"
#include "jobspec/settings/key_table.h"

namespace muster::jobspec {
namespace {

// Names of 2024-06 and earlier, from MaxText's history.
constexpr Alias kAliases[] = {
    {"cosine_learning_rate_final_fraction", "learning_rate_final_fraction", ""},
    {"hf_data_files", "hf_train_files", ""},
    {"grain_data_files", "grain_train_files", ""},
    {"moe_matmul", "sparse_matmul", ""},
    {"base_num_heads", "base_num_query_heads", "base_num_kv_heads"},
    {"save_period", "checkpoint_period", ""},
    {"max_predict_length", "max_target_length", ""},
    {"sampling_temperature", "decode_sampling_temperature", ""},
    {"sampling_top_k", "decode_sampling_top_k", ""},
    {"load_from_other_directory", "load_full_state_path", ""},
};

// Sections of the table, each identified by its first key.
struct Topic {
  std::string_view first_key;
  std::string_view title;
};
constexpr Topic kTopics[] = {
    {"run_name", "Run and launch"},
    {"restarts_max", "Muster's own keys"},
    {"decoder_block", "Model"},
    {"dtype", "Precision"},
    {"ici_data_parallelism", "Parallelism"},
    {"remat_policy", "Memory"},
    {"dataset_type", "Data and tokenizer"},
    {"opt_type", "Optimizer and schedule"},
    {"eval_interval", "Evaluation and early stop"},
    {"enable_checkpointing", "Checkpoints"},
    {"metrics_file", "Metrics and logs"},
    {"profiler", "Profiling"},
    {"prompt", "Decoding"},
    {"compiled_trainstep_file", "Ahead-of-time compilation"},
    {"use_dpo", "After pre-training"},
};

template <class Row>
std::map<std::string_view, const Row*> index_by_name(std::span<const Row> rows) {
  std::map<std::string_view, const Row*> index;
  for (const Row& row : rows) index.emplace(row.name, &row);
  return index;
}

template <class Row>
const Row* find_in(const std::map<std::string_view, const Row*>& index, std::string_view name) {
  const auto found = index.find(name);
  return found == index.end() ? nullptr : found->second;
}

}  // namespace

std::span<const Key> all_keys() { return key_table(); }
std::span<const Alias> all_aliases() { return kAliases; }

const Key* find_key(std::string_view name) {
  static const auto index = index_by_name(all_keys());
  return find_in(index, name);
}

std::string_view topic_of(const Key& key) {
  std::string_view title;
  for (const Topic& topic : kTopics) {
    if (find_key(topic.first_key) <= &key) title = topic.title;
  }
  return title;
}

const Alias* find_alias(std::string_view name) {
  static const auto index = index_by_name(all_aliases());
  return find_in(index, name);
}

std::string_view nearest_key(std::string_view name) {
  std::vector<std::string_view> names;
  for (const Key& key : all_keys()) names.push_back(key.name);
  for (const Alias& alias : all_aliases()) names.push_back(alias.name);
  return nearest_name(name, names);
}

}  // namespace muster::jobspec
