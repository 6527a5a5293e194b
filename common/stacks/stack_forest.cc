#include "common/stacks/stack_forest.h"

namespace muster {

void StackForest::add(StackTree tree) {
  Part part{std::move(tree), 1};
  while (!parts_.empty() && parts_.back().trees <= part.trees) {
    parts_.back().tree.merge(part.tree);
    part = {std::move(parts_.back().tree), part.trees + parts_.back().trees};
    parts_.pop_back();
  }
  parts_.push_back(std::move(part));
}

StackTree StackForest::total() const {
  StackTree total;
  for (auto part = parts_.rbegin(); part != parts_.rend(); ++part) {
    StackTree larger = part->tree;
    larger.merge(total);
    total = std::move(larger);
  }
  return total;
}

}  // namespace muster
