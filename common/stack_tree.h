// Stacks of many ranks as one prefix tree: a node is a frame below its parent's, and knows the ranks whose stacks end there. Workers
// make one of their ranks' stacks and the coordinator merges them, so that what travels and what is symbolised grows with the number of
// different stacks and not of ranks (Arnold et al. 2007, "Stack Trace Analysis for Large Scale Debugging").
//
// Threads of a rank are apart at the root, whose frame is the thread's name: "main", then what other threads are called. Two threads of
// one rank with one name and one stack are one.
//
// Merging is commutative and associative but for the order of nodes, and as long as there is room. A stack that finds none ends at its
// deepest frame that has a place, and is counted in dropped(): the tree stays true of the frames that it has.
//
// A value. Plain memory, one thread at a time. Whatever comes from messages goes through of(), which refuses what is no tree or is
// beyond the bounds, and makes texts printable. Merging a tree of n nodes takes n look-ups, and moves the sets of ranks that it adds to: thousands
// of trees are added up by StackForest.
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

#include "common/rank_set.h"
#include "common/stack_frame.h"

namespace muster {

// A job of our trainer has some hundreds of nodes, however many ranks it has; a program whose ranks are all in different places fills this.
// A node takes some 200 bytes with its frame, symbol and look-ups.
constexpr size_t kStackTreeNodesMax = 65'536;
constexpr size_t kStackTreeModulesMax = 4'096;
// Of all sets of ranks together, 8 bytes each: enough for every second of 131,072 ranks in 64 places.
constexpr size_t kStackTreeRangesMax = 1 << 22;

class StackTree {
 public:
  // A frame that some stack has. Which ranks pass through it follows from those whose stacks end below; see passing().
  struct Node {
    uint32_t parent = 0;  // index of a node before this one; its own index: a root
    uint32_t frame = 0;   // index into frames()
    RankSet ends;         // whose stacks end here

    friend bool operator==(const Node&, const Node&) = default;
  };

  // What a tree is made of, as a message carries it.
  struct Parts {
    std::vector<StackModule> modules;
    std::vector<StackFrame> frames;
    std::vector<FrameSymbol> symbols;  // by frame; may be shorter
    std::vector<Node> nodes;
    int64_t dropped = 0;

    friend bool operator==(const Parts&, const Parts&) = default;
  };

  // The ranks that have one stack, of one thread name.
  struct Class {
    RankSet ranks;
    std::string thread;            // "main"
    std::vector<uint32_t> frames;  // indices into frames(), outermost first

    friend bool operator==(const Class&, const Class&) = default;
  };

  // Of parts that came in a message. InvalidArgument names what is wrong. What is there twice is joined, and what no stack has is left out,
  // so indices need not be those of the parts.
  static absl::StatusOr<StackTree> of(const Parts& parts);

  // All threads of all ranks of a sample that have stacks. A frame whose module is not in the sample is an unknown one.
  void add(const StackSample& sample);
  void merge(const StackTree& other);

  const Parts& parts() const { return parts_; }
  const std::vector<StackModule>& modules() const { return parts_.modules; }
  const std::vector<StackFrame>& frames() const { return parts_.frames; }
  const std::vector<Node>& nodes() const { return parts_.nodes; }
  // Stacks that were cut off or left out, counted by rank and thread.
  int64_t dropped() const { return parts_.dropped; }
  bool empty() const { return parts_.nodes.empty(); }

  // By node: the ranks whose stacks pass through it or end there.
  std::vector<RankSet> passing() const;
  // Of one thread name, largest first, then by lowest rank. All of them when `thread` is empty.
  std::vector<Class> classes(std::string_view thread = "main") const;

  // What frames are called; not known: empty. Merging keeps the fuller of both.
  void set_symbol(uint32_t frame, const FrameSymbol& symbol);
  const FrameSymbol& symbol(uint32_t frame) const;
  // "trainer_core/loop/train.cc:210 in muster::trainer::run()" (the last folder of the path), "libc.so.6 in poll()", "libc.so.6+0x1234", or the
  // frame's text. One printable line of at most kFrameTextBytesMax bytes.
  std::string frame_text(uint32_t frame) const;

  friend bool operator==(const StackTree& a, const StackTree& b) { return a.parts_ == b.parts_; }

 private:
  static constexpr uint32_t kNone = std::numeric_limits<uint32_t>::max();

  // Frames of elsewhere as frames of this tree. Their modules are taken over when they are first needed.
  class Translation;

  void take(const Parts& parts);  // whose indices are valid
  // Indices of what is there or is added, texts made printable; kNone: there is no room.
  uint32_t intern(const StackModule& module);
  uint32_t intern(StackFrame frame);
  template <class Index, class Key>
  uint32_t intern(Index& index, const Key& key, StackFrame frame);
  uint32_t child(uint32_t parent, uint32_t frame);  // parent kNone: a root
  // Ends the stacks of `ranks` at `node`. `cut`: that is not where they really end.
  void end_at(uint32_t node, const RankSet& ranks, bool cut);

  Parts parts_;
  // Look-ups of what is in parts_. A module is known by its build id, or by its path where it has none.
  absl::flat_hash_map<std::pair<bool, std::string>, uint32_t> module_index_;
  absl::flat_hash_map<std::pair<uint32_t, uint64_t>, uint32_t> place_index_;  // (module, address)
  absl::flat_hash_map<std::string, uint32_t> text_index_;
  absl::flat_hash_map<std::pair<uint32_t, uint32_t>, uint32_t> node_index_;  // (parent, frame)
  std::vector<uint16_t> depths_;  // by node; a root's is 1
  size_t ranges_ = 0;             // of all nodes' sets
};

}  // namespace muster
