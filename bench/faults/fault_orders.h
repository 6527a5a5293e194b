// Orders of bench/faults for a rank to fail, and the time at which it did. FAULT_ORDERS names one
// folder for all ranks of a job:
//
//   order.json   {"number": 7, "faults": [{"rank": 5, "kind": "busy_loop", "factor": 3,
//                "path": "…"}]}, renamed into place
//   done.7.5     written by rank 5 just before the fault: nanoseconds since the epoch
//
// A process ignores an order that existed when it started: that one was for another attempt.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace muster::faults {

struct Fault {
  int64_t number = 0;
  std::string kind;
  double factor = 1;   // of a slow rank: its compute time relative to normal
  double seconds = 0;  // duration of a fault that ends by itself
  std::string path;    // for faults that need a file
};

class FaultOrders {
 public:
  // Without a folder there are no orders.
  FaultOrders(std::string folder, int32_t rank);

  // Returns a new order for this rank. Called once a step; costs one system call if there is none.
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
