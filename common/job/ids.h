// Distinct types for the numbers and names of the control plane, so that a rank cannot be passed as
// an attempt. Values are plain; they can be compared and hashed, but have no arithmetic.
#pragma once

#include <cstdint>
#include <functional>
#include <ostream>
#include <string>
#include <utility>

namespace muster {

template <class Tag, class T>
class StrongId {
 public:
  StrongId() = default;
  explicit StrongId(T value) : value_(std::move(value)) {}

  const T& value() const { return value_; }

  friend auto operator<=>(const StrongId&, const StrongId&) = default;
  friend std::ostream& operator<<(std::ostream& out, const StrongId& id) {
    return out << id.value_;
  }

  template <class H>
  friend H AbslHashValue(H h, const StrongId& id) {
    return H::combine(std::move(h), id.value_);
  }

 private:
  T value_{};
};

// A job's number, assigned by the coordinator: 1, 2, 3, … Never reused within one state store.
using JobId = StrongId<struct JobIdTag, uint64_t>;
// The n-th launch of a job, from 1. A restart is a new attempt.
using Attempt = StrongId<struct AttemptTag, uint32_t>;
// A worker's configured name, unique in a fleet.
using WorkerName = StrongId<struct WorkerNameTag, std::string>;
// Identifies one run of a worker process: a number drawn at random when the process starts.
// Messages with an earlier run's number are stale.
using Incarnation = StrongId<struct IncarnationTag, uint64_t>;
// Identifies one state store of a coordinator: a number drawn at random when the store is created.
// Job numbers are unique within one store.
using StoreId = StrongId<struct StoreIdTag, uint64_t>;
// The number of a coordinator run over one state store, from 1: incremented and stored at each
// start.
using Epoch = StrongId<struct EpochTag, uint64_t>;
// Position of a process in a job's mesh, 0 … world_size-1.
using Rank = StrongId<struct RankTag, int32_t>;

}  // namespace muster
