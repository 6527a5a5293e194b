// Describes samples of the training data for people.
#pragma once

#include <cstdint>
#include <string>

#include "trainer_core/base/train_config.h"

namespace muster::trainer {

// Returns "global samples 96 to 167" for the samples [first, end). For a mixture of data sets, adds
// how many samples of each of them these are, and their numbers in the order in which the training
// draws from the data set: " (48 of /data/a: 64 to 111; 24 of /data/b: 32 to 55)". Requires a valid
// config.
std::string describe_samples(const TrainConfig& config, uint64_t first, uint64_t end);

}  // namespace muster::trainer
