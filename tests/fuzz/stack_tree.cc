// Parts of a stack tree as in a message: rejected, or a tree whose classes, texts and merges have
// the properties that stack_tree.h guarantees.
//
// The input's bytes are numbers, and texts after their lengths: counts of modules, frames, symbols
// and nodes; modules; frames; symbols; nodes.
#include "common/stacks/stack_tree.h"

#include <limits>
#include <vector>

#include "common/text/escape.h"
#include "tests/fuzz/target.h"

namespace {

using muster::StackTree;

// Returns zeros after the end.
class Reader {
 public:
  explicit Reader(std::string_view bytes) : bytes_(bytes) {}

  uint8_t byte() {
    if (bytes_.empty()) return 0;
    const auto value = static_cast<uint8_t>(bytes_[0]);
    bytes_.remove_prefix(1);
    return value;
  }
  // Reads a byte, so that indices are often valid; 255 stands for the largest number.
  uint32_t number() {
    const uint8_t value = byte();
    return value == 255 ? std::numeric_limits<uint32_t>::max() : value;
  }
  std::string text() {
    const size_t wanted = byte();
    const size_t size = std::min(wanted, bytes_.size());
    std::string text(bytes_.substr(0, size));
    bytes_.remove_prefix(size);
    return text;
  }

 private:
  std::string_view bytes_;
};

StackTree::Parts parts_of(Reader reader) {
  StackTree::Parts parts;
  parts.modules.resize(reader.byte());
  parts.frames.resize(reader.byte());
  parts.symbols.resize(reader.byte());
  parts.nodes.resize(reader.byte());
  parts.dropped = reader.byte() == 255 ? std::numeric_limits<int64_t>::max() : 0;
  for (auto& module : parts.modules) {
    module.build_id = reader.text();
    module.path = reader.text();
  }
  for (auto& frame : parts.frames) {
    frame.module = reader.number();
    frame.address = reader.number();
    frame.text = reader.text();
  }
  for (auto& symbol : parts.symbols) {
    symbol.function = reader.text();
    symbol.file = reader.text();
    symbol.line = static_cast<int32_t>(reader.number());
  }
  for (auto& node : parts.nodes) {
    node.parent = reader.number();
    node.frame = reader.number();
    std::vector<muster::RankSet::Range> ranges(reader.byte() % 4);
    for (auto& range : ranges) {
      range.first = static_cast<int32_t>(reader.number());
      range.last = static_cast<int32_t>(reader.number());
    }
    node.ends = muster::RankSet::of(std::move(ranges));
  }
  return parts;
}

int64_t ends_of(const StackTree& tree) {
  int64_t ends = 0;
  for (const StackTree::Node& node : tree.nodes()) ends += node.ends.size();
  return ends;
}

}  // namespace

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using muster::trainer::fuzz_input;
  const auto tree = StackTree::of(parts_of(Reader(fuzz_input(data, size))));
  if (!tree.ok()) return 0;
  int64_t in_classes = 0;
  for (const StackTree::Class& found : tree->classes("")) {
    in_classes += found.ranks.size();
    MUSTER_CHECK(found.frames.size() <= muster::kStackDepthMax + 2);
    for (const uint32_t frame : found.frames) {
      const std::string text = tree->frame_text(frame);
      MUSTER_CHECK(text.size() <= muster::kFrameTextBytesMax);
      MUSTER_CHECK(muster::printable(text, text.size() + 1) == text) << text;
    }
  }
  MUSTER_CHECK(in_classes == ends_of(*tree));
  const auto passing = tree->passing();
  for (size_t i = 0; i < passing.size(); ++i) MUSTER_CHECK(!passing[i].empty()) << "node " << i;
  const auto again = StackTree::of(tree->parts());
  MUSTER_CHECK(again.ok() && *again == *tree) << again.status().message();
  StackTree merged = *tree;
  merged.merge(*again);
  MUSTER_CHECK(merged.nodes() == tree->nodes());
  return 0;
}
