// Adds up very many stack trees that arrive one by one in any order. Merging each into one growing tree moves that tree's sets of ranks each
// time, which is n² where neighbours do not follow each other; this merges trees of about as many parts with each other, as a binary
// counter carries: n log n, and at most log₂ n + 1 trees at a time. For thousands of workers; for tens of them StackTree::merge() will do.
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
  // All of them in one.
  StackTree total() const;

 private:
  struct Part {
    StackTree tree;
    size_t trees = 0;  // that are in it
  };
  std::vector<Part> parts_;  // the largest first, each of more trees than the next
};

}  // namespace muster
