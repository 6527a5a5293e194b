// Trainings on data with a corrupted stretch. Each sample is a document, so that data sets without
// some samples can be made.
#pragma once

#include <filesystem>
#include <random>
#include <string>
#include <vector>

#include <absl/strings/str_cat.h>
#include <gtest/gtest.h>

#include "tests/unit/temp_folder.h"
#include "tests/unit/trainer_core/data/token_folder.h"
#include "tests/unit/trainer_core/train_helpers.h"
#include "trainer_core/checkpoint/checkpoint.h"

namespace muster::trainer {

inline constexpr int32_t kVocab = 64;
inline constexpr int32_t kLength = 16;
inline constexpr int64_t kBatch = 4;  // samples per step
inline constexpr int64_t kSteps = 120;
inline constexpr int64_t kDataSteps = 240;
inline constexpr int64_t kBegin =
    94;  // the first step of the corrupted data in an undisturbed training
inline constexpr int64_t kPeriod = 12;
inline constexpr int64_t kNewest =
    84;  // the newest checkpoint before kBegin; the next is due in a spike

// Steps of an undisturbed training, in whose place the data is corrupted or left out.
struct Stretch {
  int64_t begin = 0;
  int64_t end = 0;
  bool has(int64_t sample) const { return sample >= begin * kBatch && sample < end * kBatch; }
};

class Spikes : public testing::Test {
 protected:
  // Writes a data set in which a token mostly determines the next one. The samples of `corrupted`
  // have random tokens; those of `without` are missing.
  void make_data(const std::string& name, Stretch corrupted, Stretch without = {}) const {
    std::mt19937 random(3);
    std::vector<Document> documents;
    for (int64_t sample = 0; sample < kDataSteps * kBatch; ++sample) {
      Document document(kLength + 1);
      int32_t last = static_cast<int32_t>(random() % kVocab);
      for (int32_t& token : document) {
        const auto other = static_cast<int32_t>(random() % kVocab);
        const bool is_noise = random() % 10 == 0 || corrupted.has(sample);
        token = last = is_noise ? other : (5 * last + 3) % kVocab;
      }
      if (!without.has(sample)) documents.push_back(document);
    }
    std::filesystem::create_directories(folder_.file(name));
    make_token_folder(folder_.file(name), {documents}, kVocab);
  }

  TrainConfig config(const std::string& data, const std::string& checkpoints, int ranks = 1) const {
    TrainConfig config = tiny_config(ranks);
    config.dataset_type = DatasetType::kShards;
    config.dataset_path = folder_.file(data);
    config.packing = false;
    config.enable_data_shuffling = false;
    config.steps = kSteps;
    config.optimizer.learning_rate = 1e-2;
    config.optimizer.schedule_steps = 2 * kSteps;
    config.enable_checkpointing = true;
    config.async_checkpointing = false;  // a copy of the folder is what a killed job leaves
    config.checkpoint_directory = folder_.file(checkpoints);
    config.checkpoint_period = kPeriod;
    config.max_checkpoints_to_keep = 2;
    config.resume_with_other_data = true;
    return config;
  }

  // Rolls back after 3 spikes in a row.
  TrainConfig rolling_back(const std::string& data, const std::string& checkpoints,
                           int ranks = 1) const {
    TrainConfig config = this->config(data, checkpoints, ranks);
    config.spikes = {.interval = 64, .rollback_after = 3};
    config.not_finite_policy = NotFinitePolicy::kRollback;
    return config;
  }

  std::string final_bytes(const std::string& checkpoints, int64_t step = kSteps) const {
    return checkpoint_bytes(folder_.file(absl::StrCat(checkpoints, "/", step)));
  }
  bool has_checkpoint(const std::string& checkpoints, int64_t step) const {
    return std::filesystem::exists(folder_.file(absl::StrCat(checkpoints, "/", step)));
  }
  CheckpointInfo info_of(const std::string& checkpoints, int64_t step) const {
    const auto info =
        verify_checkpoint(folder_.file(absl::StrCat(checkpoints, "/", step)), /*checksums=*/true);
    EXPECT_TRUE(info.ok()) << info.status();
    return info.ok() ? *info : CheckpointInfo{};
  }
  void copy(const std::string& from, const std::string& to) const {
    std::filesystem::copy(folder_.file(from), folder_.file(to),
                          std::filesystem::copy_options::recursive);
  }

  TempFolder folder_;
};

inline std::vector<int64_t> steps_of(const RunResult& result, size_t rank = 0) {
  std::vector<int64_t> steps;
  for (const StepRecord& record : result.records[rank]) steps.push_back(record.step);
  return steps;
}

// Returns the samples of the lines about spikes.
inline std::vector<std::string> spikes_in(const std::string& log) {
  std::vector<std::string> samples;
  const std::string key = "global samples ";
  for (size_t at = log.find("spike: Step"); at != std::string::npos;
       at = log.find("spike: Step", at + 1)) {
    const size_t begin = log.find(key, at) + key.size();
    samples.push_back(log.substr(begin, log.find(':', begin) - begin));
  }
  return samples;
}

}  // namespace muster::trainer
