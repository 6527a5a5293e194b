// Stacks of many ranks as one prefix tree. A node is a frame below its parent's frame and holds the
// ranks whose stacks end there. Workers build a tree of their ranks' stacks and the coordinator
// merges the trees, so messages and symbolisation grow with the number of different stacks and not
// of ranks (Arnold et al. 2007, "Stack Trace Analysis for Large Scale Debugging").
//
// Each thread name of a rank has a root of its own. The root's frame is the name: "main" for the
// first thread. Two threads of one rank with the same name and stack count as one.
//
// Merging is commutative and associative, except for the order of nodes, as long as the bounds
// below are not reached. Beyond a bound, a stack ends at its deepest frame that has a node, and is
// counted in dropped(); the remaining tree stays correct.
//
// A value type without external resources. Not thread-safe. The content of messages is read by
// of(), which rejects content that is not a tree or exceeds the bounds, and makes texts printable.
// Merging a tree of n nodes takes n lookups and rewrites each rank set that it extends: use
// StackForest to add up thousands of trees.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <absl/container/flat_hash_map.h>
#include <absl/status/statusor.h>

#include "common/job/rank_set.h"
#include "common/stacks/stack_frame.h"

namespace muster {

// A job of the built-in trainer has some hundreds of nodes for any number of ranks; a program whose
// ranks all have different stacks reaches the bound. A node takes some 200 bytes with its frame,
// symbol and lookups.
constexpr size_t kStackTreeNodesMax = 65'536;
constexpr size_t kStackTreeModulesMax = 4'096;
// Bound of the ranges in all rank sets together, 8 bytes each: enough for every second rank of
// 131,072 in each of 64 frames.
constexpr size_t kStackTreeRangesMax = 1 << 22;

class StackTree {
 public:
  // A frame below its parent's frame. passing() computes the ranks whose stacks contain the node.
  struct Node {
    uint32_t parent = 0;  // index of an earlier node; its own index for a root
    uint32_t frame = 0;   // index into frames()
    RankSet ends;         // ranks whose stacks end here

    friend bool operator==(const Node&, const Node&) = default;
  };

  // The content of a tree, as a message carries it.
  struct Parts {
    std::vector<StackModule> modules;
    std::vector<StackFrame> frames;
    std::vector<FrameSymbol> symbols;  // by frame; may have fewer entries than `frames`
    std::vector<Node> nodes;
    int64_t dropped = 0;

    friend bool operator==(const Parts&, const Parts&) = default;
  };

  // The ranks that share one stack, for one thread name.
  struct Class {
    RankSet ranks;
    std::string thread;            // "main"
    std::vector<uint32_t> frames;  // indices into frames(), outermost first

    friend bool operator==(const Class&, const Class&) = default;
  };

  // Returns the tree that the parts of a message describe, or InvalidArgument with the part that is
  // wrong. Joins duplicates and drops frames and modules that no stack uses, so indices may differ
  // from those of `parts`.
  static absl::StatusOr<StackTree> of(const Parts& parts);

  // Adds the stacks of all threads of all ranks in `sample`. A frame whose module is not in the
  // sample becomes an unknown frame.
  void add(const StackSample& sample);
  void merge(const StackTree& other);

  const Parts& parts() const { return parts_; }
  const std::vector<StackModule>& modules() const { return parts_.modules; }
  const std::vector<StackFrame>& frames() const { return parts_.frames; }
  const std::vector<Node>& nodes() const { return parts_.nodes; }
  // Returns the number of stacks that were cut or left out, counted by rank and thread.
  int64_t dropped() const { return parts_.dropped; }
  bool empty() const { return parts_.nodes.empty(); }

  // Returns, by node, the ranks whose stacks pass through it or end there.
  std::vector<RankSet> passing() const;
  // Returns the classes of one thread name, largest first, then by lowest rank. An empty `thread`
  // selects all threads.
  std::vector<Class> classes(std::string_view thread = "main") const;

  // Set and return the symbol of a frame. An empty symbol is unknown; merge() retains the more
  // complete of two symbols.
  void set_symbol(uint32_t frame, const FrameSymbol& symbol);
  const FrameSymbol& symbol(uint32_t frame) const;
  // Returns "loop/train.cc:210 in muster::trainer::run()" (with the last folder of the path),
  // "libc.so.6 in poll()", "libc.so.6+0x1234", "job/train.py:31 step" (a Python frame with the last
  // folder, or with the path below the folder of packages), or the frame's text. One printable line
  // of at most kFrameTextBytesMax bytes.
  std::string frame_text(uint32_t frame) const;

  friend bool operator==(const StackTree& a, const StackTree& b) { return a.parts_ == b.parts_; }

 private:
  static constexpr uint32_t kNone = std::numeric_limits<uint32_t>::max();

  // Translates frames of another tree to frames of this one. Adds their modules on first use.
  class Translation;

  // Adds the stacks of `parts`. Requires valid indices.
  void take(const Parts& parts);
  // Return the index of the existing or new entry, whose text is made printable; kNone if the bound
  // is reached.
  uint32_t intern(const StackModule& module);
  uint32_t intern(StackFrame frame);
  template <class Index, class Key>
  uint32_t intern(Index& index, const Key& key, StackFrame frame);
  uint32_t child(uint32_t parent, uint32_t frame);  // the node's index; parent kNone: a root
  // Ends the stacks of `ranks` at `node`. `cut`: the real stacks are deeper.
  void close_stacks(uint32_t node, const RankSet& ranks, bool cut);

  Parts parts_;
  // Lookups into parts_. A module's key is its build id, or its path if it has none.
  absl::flat_hash_map<std::pair<bool, std::string>, uint32_t> module_index_;
  absl::flat_hash_map<std::pair<uint32_t, uint64_t>, uint32_t> address_index_;  // (module, address)
  absl::flat_hash_map<std::string, uint32_t> text_index_;
  absl::flat_hash_map<std::pair<uint32_t, uint32_t>, uint32_t> node_index_;  // (parent, frame)
  std::vector<uint16_t> depths_;  // by node; a root's is 1
  size_t ranges_ = 0;             // ranges of all nodes' sets
};

}  // namespace muster
