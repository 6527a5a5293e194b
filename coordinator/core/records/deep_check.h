// Deep checks of nodes: their orders and results. Values without behaviour. The history of a node's
// results is durable.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/time/time.h"

namespace muster::coordinator {

// Results that are retained for each node.
constexpr size_t kDeepChecksKeptMax = 10;
constexpr size_t kMeasurementsMax = 32;

// A measured property of a node; larger is better. The fields are those of muster.v1.Measurement.
struct Measurement {
  std::string name{};
  double value = 0;
  std::string unit{};

  friend bool operator==(const Measurement&, const Measurement&) = default;
};
using Measurements = std::vector<Measurement>;

// A node's part in an all-reduce of several nodes.
struct GroupSeat {
  int32_t rank = 0;
  int32_t size = 0;
  std::string rendezvous_address{};  // the store on the worker of rank 0
  uint32_t id = 0;                   // scope of the group's keys in the store

  friend bool operator==(const GroupSeat&, const GroupSeat&) = default;
};

// The order of a deep check. With a seat of size above 1, it is an all-reduce and nothing else.
struct DeepCheckOrder {
  double seconds = 1;            // time of each measurement
  Duration deadline{};           // after which the worker kills the check
  std::string storage_folder{};  // empty: the worker's work folder
  GroupSeat seat{};

  friend bool operator==(const DeepCheckOrder&, const DeepCheckOrder&) = default;
};

// A worker's answer, beside NodeCheckResult.
struct DeepCheckFigures {
  std::string kind{};
  Measurements measurements{};
  bool stopped = false;  // ranks need the node
  bool wrong = false;    // a test has returned a wrong result

  friend bool operator==(const DeepCheckFigures&, const DeepCheckFigures&) = default;
};

// A stored result; the fields are those of muster.v1.DeepCheck.
struct DeepCheckRecord {
  int64_t unix_ns = 0;
  bool passed = false;
  double seconds = 0;
  std::string sentence{};
  std::string kind{};
  Measurements measurements{};

  friend bool operator==(const DeepCheckRecord&, const DeepCheckRecord&) = default;
};

}  // namespace muster::coordinator
