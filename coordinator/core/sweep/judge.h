// Compares the measurements of a deep check with those of nodes of the same kind. Pure.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "coordinator/core/records/deep_check.h"

namespace muster::coordinator {

// The number of nodes of a kind, or of a node's own earlier results, that are a reference.
constexpr size_t kReferenceMin = 3;
// A value is slow only if it is also so many standard deviations below the median, as the median
// absolute deviation estimates them (factor 1.4826 for a normal distribution).
constexpr double kDeviationsMin = 5;

// The measurements of the nodes of each kind. Built once for all nodes of a sweep, so that the time
// for n nodes is that of sorting.
class References {
 public:
  struct Usual {
    double median = 0;
    double spread = 0;  // the estimated standard deviation
    size_t count = 0;
  };

  void add(std::string_view kind, const Measurements& measurements);
  // Adds those of an earlier check, which may have tested another folder: storage is left out.
  void add_earlier(std::string_view kind, const Measurements& measurements);
  // Adds one measurement alone.
  void add(std::string_view kind, const Measurement& measurement);
  bool has(std::string_view kind) const { return values_.contains(kind); }
  // Computes the results of usual(). Called after all add().
  void finish();
  // Returns null if no node of this kind has the measurement.
  const Usual* usual(std::string_view kind, std::string_view name) const;

 private:
  template <class T>
  using ByName = std::map<std::string, T, std::less<>>;

  ByName<ByName<std::vector<double>>> values_;  // by kind and name
  ByName<ByName<Usual>> usual_;
};

// Why a node is bad, as a clause; empty: it is good.
struct Judgement {
  std::string why{};
  bool excludes = false;
};

// Names the measurement of `own` that is the furthest below its reference: "gemm is 12.1 TFLOP/s;
// the median of the 8 nodes of its kind is 48.9 TFLOP/s". The first of these is the reference:
//
//   - the median of `swept`, the nodes of its kind in the same sweep, which include the node; they
//     are at least kReferenceMin others, and only they exclude the node
//   - the median of `known`, also with earlier results of other nodes, if kReferenceMin are known
//   - the median of `earlier`, passed results of the node, except for storage
Judgement slow_measurement(std::string_view kind, const Measurements& own, const References& swept,
                           const References& known, std::span<const Measurements* const> earlier);

// Keeps the better value of each measurement: a node is judged by the best of its tries.
void merge_best(Measurements& best, const Measurements& again);

}  // namespace muster::coordinator
