// The benchmark bench/faults orders a rank to fail by a file, and the rank records the time of the
// fault in another file. The variable FAULT_ORDERS names the folder of these files, one for all
// ranks of a job.
//
//   order.json   {"number": 7, "faults": [{"rank": 5, "kind": "busy_loop", "factor": 3,
//                "path": "…"}]}, renamed into place
//   done.7.5     written by rank 5 just before the fault: nanoseconds since the epoch
//
// A process ignores an order that existed when the process started, because that order was for an
// earlier attempt.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace muster::faults {

// An order for one rank.
struct Fault {
  int64_t number = 0;
  std::string kind;
  double factor = 1;   // compute time of a slow rank, relative to normal
  double seconds = 0;  // duration of a fault that ends by itself
  std::string path;    // the file for faults that need one
};

// The orders for one rank.
class FaultOrders {
 public:
  // `folder`: the value of FAULT_ORDERS; empty: there are no orders.
  FaultOrders(std::string folder, int32_t rank);

  // Returns a new order for this rank; nullopt if there is none, which costs one system call. The
  // rank calls it once per step.
  std::optional<Fault> take();
  // Records the time of the fault for scoring.
  void record_time(const Fault& fault) const;

 private:
  std::optional<Fault> read() const;

  std::string folder_;
  int32_t rank_;
  int64_t last_change_ns_ = 0;
};

}  // namespace muster::faults
