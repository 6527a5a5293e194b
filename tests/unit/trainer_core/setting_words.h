// Applies words KEY=VALUE, as the search for settings prints them, to a config, as jobspec would.
#pragma once

#include <map>
#include <string>
#include <vector>

#include <absl/strings/numbers.h>
#include <absl/strings/str_split.h>
#include <gtest/gtest.h>

#include "trainer_core/base/setting_space.h"
#include "trainer_core/base/train_mesh.h"

namespace muster::trainer {

inline TrainConfig with_words(const TrainConfig& config, const std::string& line) {
  std::map<std::string, std::string> keys;
  for (const auto& [key, value] : setting_keys(config)) keys[key] = value;
  const std::vector<std::string> words =
      absl::StrSplit(line.substr(0, line.find('#')), ' ', absl::SkipEmpty());
  for (const std::string& word : words) {
    const std::vector<std::string> parts = absl::StrSplit(word, absl::MaxSplits('=', 1));
    EXPECT_EQ(parts.size(), 2U) << line;
    if (parts.size() == 2) keys[parts[0]] = parts[1];
  }
  TrainConfig changed = config;
  const auto number = [&](const std::string& key) {
    double value = 0;
    EXPECT_TRUE(absl::SimpleAtod(keys[key], &value)) << key << "=" << keys[key];
    return value;
  };
  const auto whole = [&](const std::string& key) { return static_cast<int32_t>(number(key)); };
  for (size_t i = 0; i < changed.mesh.ici.size(); ++i) {
    changed.mesh.ici[i] = whole(mesh_key("ici", static_cast<MeshAxis>(i)));
    changed.mesh.dcn[i] = whole(mesh_key("dcn", static_cast<MeshAxis>(i)));
  }
  const double sequences = number("per_device_batch_size") * ranks_of_slice(mesh_of(changed.mesh));
  changed.per_device_batch_size = static_cast<int32_t>(sequences);
  EXPECT_EQ(sequences, changed.per_device_batch_size) << line;
  changed.gradient_accumulation_steps = whole("gradient_accumulation_steps");
  changed.pipeline_microbatches = whole("num_pipeline_microbatches");
  changed.pipeline_repeats = whole("num_pipeline_repeats");
  changed.zero_stage = whole("zero_stage");
  changed.remat_policy = value_named<RematPolicy>(kRematPolicyNames, keys["remat_policy"]).value();
  changed.optimizer.mu_dtype =
      value_named<ComputeType>(kComputeTypeNames, keys["mu_dtype"]).value();
  if (keys.contains("max_target_length")) changed.max_target_length = whole("max_target_length");
  if (keys["async_checkpointing"] == "False") changed.async_checkpointing = false;
  if (keys["enable_emergency_checkpoint"] == "False") changed.enable_emergency_checkpoint = false;
  // Without a pipeline the trainer has one micro-batch per accumulation step.
  if (mesh_of(changed.mesh).degree(MeshAxis::kPipeline) == 1)
    changed.pipeline_microbatches = changed.pipeline_repeats = 1;
  return changed;
}

// Returns the lines of a list of changes: those that are indented and hold a word KEY=VALUE.
inline std::vector<std::string> change_lines(const std::string& text) {
  std::vector<std::string> lines;
  const size_t begin = text.find("what would fit");
  if (begin == std::string::npos) return lines;
  const std::vector<std::string> all = absl::StrSplit(text.substr(begin), '\n');
  for (const std::string& line : all) {
    if (line.starts_with("  ") && line.find('=') != std::string::npos) lines.push_back(line);
  }
  return lines;
}

}  // namespace muster::trainer
