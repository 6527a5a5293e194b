// Adds up thousands of stack trees that arrive one by one in any order. Merging each into one
// growing tree moves that tree's sets of ranks each time: n² if neighbours do not follow each
// other. This class merges trees of similar size with each other, as a binary counter carries: n
// log n, with at most log₂ n + 1 trees at a time. For tens of workers StackTree::merge() is enough.
//
// A value. Plain memory, one thread at a time.
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

#include "common/stack_tree.h"

namespace muster {

class StackForest {
 public:
  void add(StackTree tree);
  // Returns all added trees merged into one.
  StackTree total() const;

 private:
  struct Part {
    StackTree tree;
    size_t trees = 0;  // trees merged into it
  };
  std::vector<Part> parts_;  // largest first; each has more trees than the next
};

}  // namespace muster
