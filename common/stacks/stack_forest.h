// Adds up thousands of stack trees that arrive one by one in any order. Merging each tree into one
// growing tree would move the growing tree's rank sets each time: O(n²) if consecutive trees do not
// have neighbouring ranks. This class merges trees of similar size with each other, as a binary
// counter propagates carries: O(n log n), with at most log₂ n + 1 trees at a time. For tens of
// workers StackTree::merge() is enough.
//
// A value that owns only memory. Not thread-safe.
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

#include "common/stacks/stack_tree.h"

namespace muster {

class StackForest {
 public:
  void add(StackTree tree);
  // Returns all added trees merged into one.
  StackTree total() const;

 private:
  struct Part {
    StackTree tree;
    size_t trees = 0;  // number of trees merged into `tree`
  };
  std::vector<Part> parts_;  // largest first; each has more trees than the next
};

}  // namespace muster
