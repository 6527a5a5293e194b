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
// One run of a worker process, drawn at random at its start. Messages with an older one are stale.
using Incarnation = StrongId<struct IncarnationTag, uint64_t>;
// One state store of a coordinator, drawn at random at its creation. Scopes job numbers.
using StoreId = StrongId<struct StoreIdTag, uint64_t>;
// One run of the coordinator over one state store: incremented and stored at each start.
using Epoch = StrongId<struct EpochTag, uint64_t>;
// Position of a process in a job's mesh, 0 … world_size-1.
using Rank = StrongId<struct RankTag, int32_t>;

}  // namespace muster
