// The order and the result of a deep check: values without behaviour.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/time/time.h"

namespace muster::worker {

// The fields are those of muster.v1.DeepCheckOrder.
struct DeepCheckOrder {
  double seconds = 1;
  Duration deadline{};
  std::string storage_folder{};
  int32_t group_rank = 0;
  int32_t group_size = 0;  // above 1: an all-reduce of so many nodes, and nothing else
  std::string rendezvous_address{};
  uint32_t group_id = 0;
};

// A property that the check has measured.
struct CheckMeasurement {
  std::string name{};
  double value = 0;
  std::string unit{};
};

// The fields are those of muster.v1.DeepCheckResult.
struct DeepCheckFigures {
  std::string kind{};
  std::vector<CheckMeasurement> measurements{};
  bool stopped = false;
  bool wrong = false;
};

}  // namespace muster::worker
