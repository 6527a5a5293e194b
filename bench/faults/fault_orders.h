// What bench/faults wants a rank to do wrong, and when it did. One folder for all ranks of a job, in FAULT_ORDERS:
//
//   order.json      {"number": 7, "faults": [{"rank": 5, "kind": "busy_loop", "factor": 3, "path": "…"}]}, renamed into place
//   done.7.5        written by rank 5 just before it does it: nanoseconds since the epoch
//
// An order that was there when the process began is not for it: its attempt is another one.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace muster::faults {

struct Fault {
  int64_t number = 0;
  std::string kind;
  double factor = 1;   // of a slow rank: its compute time against what it would be
  double seconds = 0;  // of what ends by itself
  std::string path;    // of a file, for faults that need one
};

class FaultOrders {
 public:
  // Without a folder nothing is ever ordered.
  FaultOrders(std::string folder, int32_t rank);

  // A new order for this rank. Called once a step: costs one system call when there is none.
  std::optional<Fault> take();
  // The moment of truth, for whoever scores.
  void tell(const Fault& fault) const;

 private:
  std::optional<Fault> read() const;

  std::string folder_;
  int32_t rank_;
  int64_t last_change_ns_ = 0;
};

}  // namespace muster::faults
