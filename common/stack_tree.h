// Stacks of many ranks as one prefix tree: a node is a frame below its parent's, and has the ranks whose stacks pass through it. Workers
// make one of their ranks' stacks and the coordinator merges them, so that what travels and what is symbolised grows with the number of
// different stacks and not of ranks (Arnold et al. 2007, "Stack Trace Analysis for Large Scale Debugging").
//
// Threads of a rank are apart at the root, by name: "main", then what other threads are called. Plain memory, one thread at a time.
// Whatever comes from messages goes through of(), which refuses what is no tree or is beyond the bounds.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <absl/status/statusor.h>

#include "common/rank_set.h"
#include "common/stack_frame.h"

namespace muster {

constexpr size_t kStackTreeNodesMax = 65'536;  // more are cut off below, and counted
constexpr size_t kStackTreeModulesMax = 4'096;

class StackTree {
 public:
  // A frame that some stack has, with the module as an index into modules().
  struct Node {
    uint32_t parent = 0;  // index of a node before this one; its own index: a root
    uint32_t frame = 0;   // index into frames()
    RankSet ranks;        // whose stacks pass through it
    RankSet ends;         // whose stacks end here

    friend bool operator==(const Node&, const Node&) = default;
  };

  // The ranks that have one stack, of one thread name.
  struct Class {
    RankSet ranks;
    std::string thread;            // "main"
    std::vector<uint32_t> frames;  // indices into frames(), outermost first
  };

  // Of parts that came in a message. InvalidArgument names what is wrong.
  static absl::StatusOr<StackTree> of(std::vector<StackModule> modules,
                                      std::vector<StackFrame> frames, std::vector<Node> nodes);

  // All threads of all ranks of a sample that have stacks.
  void add(const StackSample& sample);
  void merge(const StackTree& other);

  const std::vector<StackModule>& modules() const { return modules_; }
  const std::vector<StackFrame>& frames() const { return frames_; }
  const std::vector<Node>& nodes() const { return nodes_; }
  // Stacks that found no room, here or on the way.
  int64_t dropped() const { return dropped_; }
  void add_dropped(int64_t stacks) { dropped_ += stacks; }

  // Of one thread name, largest first. All of them when `thread` is empty.
  std::vector<Class> classes(std::string_view thread = "main") const;

  // What frames are called; not known: empty. Symbols are part of the tree, and merging keeps those of either.
  void set_symbol(uint32_t frame, FrameSymbol symbol);
  const FrameSymbol& symbol(uint32_t frame) const;
  // "trainer_core/train.cc:210 in muster::trainer::run()", "libc.so.6+0x1234", or the frame's text.
  std::string frame_text(uint32_t frame) const;

  friend bool operator==(const StackTree&, const StackTree&) = default;

 private:
  std::vector<StackModule> modules_;
  std::vector<StackFrame> frames_;
  std::vector<FrameSymbol> symbols_;  // by frame; may be shorter
  std::vector<Node> nodes_;
  int64_t dropped_ = 0;
};

}  // namespace muster
