#include "common/stacks/stack_tree.h"

#include <algorithm>
#include <tuple>

#include <absl/strings/str_cat.h>

#include "common/text/absl_view.h"
#include "common/text/escape.h"
#include "common/text/python_frame.h"

namespace muster {
namespace {

// The bound of a build id's text. A build id usually has 20 bytes; some linkers write longer ones.
constexpr size_t kBuildIdBytesMax = 128;
constexpr std::string_view kOuterFramesMissing = "[outer frames left out]";
constexpr std::string_view kModuleUnknown = "[module not known]";
constexpr std::string_view kThreadUnknown = "[thread without a name]";
// One frame for the thread's name and one for the mark of missing outer frames.
constexpr uint16_t kDepthMax = kStackDepthMax + 2;

std::string_view last_parts(std::string_view path, int count) {
  size_t at = path.size();
  while (count-- > 0 && at != std::string_view::npos && at > 0) at = path.rfind('/', at - 1);
  return path.empty() || at == std::string_view::npos ? path : path.substr(at + 1);
}

int fields_of(const FrameSymbol& symbol) {
  return (symbol.function.empty() ? 0 : 1) + (symbol.file.empty() ? 0 : 2);
}

// Prefers the symbol with more fields. The tie-break is arbitrary, but independent of the order of
// arrival.
bool is_more_complete(const FrameSymbol& symbol, const FrameSymbol& than) {
  return std::forward_as_tuple(-fields_of(symbol), symbol) <
         std::forward_as_tuple(-fields_of(than), than);
}

// Returns a + b, saturated, because messages may contain any number.
int64_t saturating_sum(int64_t a, int64_t b) {
  return a > std::numeric_limits<int64_t>::max() - b ? std::numeric_limits<int64_t>::max() : a + b;
}

absl::Status beyond(std::string_view what, size_t count, size_t max) {
  return absl::InvalidArgumentError(
      absl::StrCat("a stack tree has ", count, " ", av(what), ", more than ", max));
}

absl::Status check_counts(const StackTree::Parts& parts) {
  if (parts.modules.size() > kStackTreeModulesMax)
    return beyond("modules", parts.modules.size(), kStackTreeModulesMax);
  // A tree never needs more frames than nodes.
  if (parts.frames.size() > kStackTreeNodesMax)
    return beyond("frames", parts.frames.size(), kStackTreeNodesMax);
  if (parts.symbols.size() > parts.frames.size())
    return beyond("symbols", parts.symbols.size(), parts.frames.size());
  if (parts.nodes.size() > kStackTreeNodesMax)
    return beyond("nodes", parts.nodes.size(), kStackTreeNodesMax);
  size_t ranges = 0;
  for (const StackTree::Node& node : parts.nodes) ranges += node.ends.ranges().size();
  if (ranges > kStackTreeRangesMax) return beyond("ranges of ranks", ranges, kStackTreeRangesMax);
  if (parts.dropped < 0)
    return absl::InvalidArgumentError(
        absl::StrCat("a stack tree claims that ", parts.dropped, " stacks were dropped"));
  return absl::OkStatus();
}

absl::Status check_indices(const StackTree::Parts& parts) {
  const auto refuse = [](const auto&... what) {
    return absl::InvalidArgumentError(absl::StrCat(what...));
  };
  for (size_t i = 0; i < parts.frames.size(); ++i) {
    const uint32_t module = parts.frames[i].module;
    if (module != kNoModule && module >= parts.modules.size())
      return refuse("frame ", i, " of a stack tree is in module ", module, " of ",
                    parts.modules.size());
  }
  for (size_t i = 0; i < parts.nodes.size(); ++i) {
    const StackTree::Node& node = parts.nodes[i];
    if (node.parent > i)
      return refuse("node ", i, " of a stack tree has parent ", node.parent,
                    ", which is behind it");
    if (node.frame >= parts.frames.size())
      return refuse("node ", i, " of a stack tree has frame ", node.frame, " of ",
                    parts.frames.size());
    if (node.parent == i && parts.frames[node.frame].module != kNoModule)
      return refuse("root ", i, " of a stack tree is a place in a module and no thread's name");
  }
  return absl::OkStatus();
}

}  // namespace

class StackTree::Translation {
 public:
  Translation(StackTree& tree, const std::vector<StackModule>& modules)
      : tree_(tree), from_(modules), modules_(modules.size(), kNone) {}

  uint32_t frame(StackFrame frame) {
    if (frame.module != kNoModule) {
      frame.module = module(frame.module);
      if (frame.module == kNone) frame.text = kModuleUnknown;
    }
    return tree_.intern(std::move(frame));
  }

 private:
  static_assert(kNone == kNoModule);

  uint32_t module(uint32_t index) {
    if (index >= from_.size()) return kNone;
    if (modules_[index] == kNone) modules_[index] = tree_.intern(from_[index]);
    return modules_[index];
  }

  StackTree& tree_;
  const std::vector<StackModule>& from_;
  std::vector<uint32_t> modules_;
};

uint32_t StackTree::intern(const StackModule& module) {
  StackModule clean{printable(module.build_id, kBuildIdBytesMax),
                    printable(module.path, kModulePathBytesMax)};
  const bool has_id = !clean.build_id.empty();
  std::pair<bool, std::string> key{has_id, has_id ? clean.build_id : clean.path};
  const auto found = module_index_.find(key);
  if (found != module_index_.end()) {
    // If a file has two paths, the smaller path is used, so that the result does not depend on the
    // order of arrival.
    std::string& path = parts_.modules[found->second].path;
    if (clean.path < path) path = std::move(clean.path);
    return found->second;
  }
  if (parts_.modules.size() == kStackTreeModulesMax) return kNone;
  const auto index = static_cast<uint32_t>(parts_.modules.size());
  module_index_.emplace(std::move(key), index);
  parts_.modules.push_back(std::move(clean));
  return index;
}

uint32_t StackTree::intern(StackFrame frame) {
  if (frame.module != kNoModule) {
    frame.text.clear();
    const std::pair key{frame.module, frame.address};
    return intern(address_index_, key, std::move(frame));
  }
  frame.address = 0;
  std::string text = printable(frame.text, kFrameTextBytesMax);
  frame.text = text;
  return intern(text_index_, text, std::move(frame));
}

template <class Index, class Key>
uint32_t StackTree::intern(Index& index, const Key& key, StackFrame frame) {
  const auto found = index.find(key);
  if (found != index.end()) return found->second;
  if (parts_.frames.size() == kStackTreeNodesMax) return kNone;
  const auto number = static_cast<uint32_t>(parts_.frames.size());
  index.emplace(key, number);
  parts_.frames.push_back(std::move(frame));
  return number;
}

uint32_t StackTree::child(uint32_t parent, uint32_t frame) {
  if (frame == kNone) return kNone;
  const auto found = node_index_.find({parent, frame});
  if (found != node_index_.end()) return found->second;
  const auto depth = static_cast<uint16_t>(parent == kNone ? 1 : depths_[parent] + 1);
  if (parts_.nodes.size() == kStackTreeNodesMax || depth > kDepthMax) return kNone;
  const auto index = static_cast<uint32_t>(parts_.nodes.size());
  node_index_.emplace(std::pair{parent, frame}, index);
  parts_.nodes.push_back({.parent = parent == kNone ? index : parent, .frame = frame, .ends = {}});
  depths_.push_back(depth);
  return index;
}

void StackTree::close_stacks(uint32_t node, const RankSet& ranks, bool cut) {
  const bool is_full = node == kNone || ranges_ + ranks.ranges().size() > kStackTreeRangesMax;
  if (cut || is_full) parts_.dropped = saturating_sum(parts_.dropped, ranks.size());
  if (is_full) return;
  RankSet& ends = parts_.nodes[node].ends;
  const size_t before = ends.ranges().size();
  ends.add(ranks);
  ranges_ = ranges_ - before + ends.ranges().size();
}

absl::StatusOr<StackTree> StackTree::of(const Parts& parts) {
  if (auto status = check_counts(parts); !status.ok()) return status;
  if (auto status = check_indices(parts); !status.ok()) return status;
  StackTree tree;
  tree.take(parts);
  return tree;
}

void StackTree::merge(const StackTree& other) {
  if (&other == this) return;  // merging a set of ranks with itself changes nothing
  take(other.parts_);
}

void StackTree::take(const Parts& parts) {
  if (empty()) {
    address_index_.reserve(parts.frames.size());
    node_index_.reserve(parts.nodes.size());
    parts_.frames.reserve(parts.frames.size());
    parts_.nodes.reserve(parts.nodes.size());
    depths_.reserve(parts.nodes.size());
  }
  std::vector<char> has_ends(parts.nodes.size());
  for (size_t i = parts.nodes.size(); i-- > 0;) {
    if (!parts.nodes[i].ends.empty()) has_ends[i] = 1;
    if (has_ends[i] != 0) has_ends[parts.nodes[i].parent] = 1;
  }
  struct Place {
    uint32_t node = kNone;  // the deepest node that has room
    bool cut = false;       // the stack ends above its real end
  };
  Translation translation(*this, parts.modules);
  std::vector<uint32_t> frames(parts.frames.size(), kNone);
  std::vector<Place> places(parts.nodes.size());
  for (uint32_t i = 0; i < parts.nodes.size(); ++i) {
    if (has_ends[i] == 0) continue;
    const Node& node = parts.nodes[i];
    const bool is_root = node.parent == i;
    Place& place = places[i];
    if (!is_root) place = places[node.parent];
    if (!place.cut) {
      uint32_t& frame = frames[node.frame];
      if (frame == kNone) {
        frame = translation.frame(parts.frames[node.frame]);
        if (frame != kNone && node.frame < parts.symbols.size())
          set_symbol(frame, parts.symbols[node.frame]);
      }
      const uint32_t next = child(place.node, frame);
      place.cut = next == kNone;
      if (!place.cut) place.node = next;
    }
    if (!node.ends.empty()) close_stacks(place.node, node.ends, place.cut);
  }
  parts_.dropped = saturating_sum(parts_.dropped, parts.dropped);
}

void StackTree::add(const StackSample& sample) {
  Translation translation(*this, sample.modules);
  for (const RankStacks& rank : sample.ranks) {
    RankSet one;
    one.add(rank.rank);
    for (const ThreadStack& thread : rank.threads) {
      if (one.empty()) break;
      std::string_view name = thread.name;
      if (name.empty()) name = kThreadUnknown;
      uint32_t deepest = kNone;
      bool is_cut = false;
      const auto descend = [&](const StackFrame& frame) {
        const uint32_t next = is_cut ? kNone : child(deepest, translation.frame(frame));
        is_cut = next == kNone;
        if (!is_cut) deepest = next;
      };
      descend({.text = std::string(name)});
      if (thread.truncated) descend({.text = std::string(kOuterFramesMissing)});
      for (const StackFrame& frame : thread.frames) descend(frame);
      close_stacks(deepest, one, is_cut);
    }
  }
}

std::vector<RankSet> StackTree::passing() const {
  std::vector<RankSet> passing(parts_.nodes.size());
  for (size_t i = parts_.nodes.size(); i-- > 0;) {
    const Node& node = parts_.nodes[i];
    passing[i].add(node.ends);
    if (node.parent != i) passing[node.parent].add(passing[i]);
  }
  return passing;
}

std::vector<StackTree::Class> StackTree::classes(std::string_view thread) const {
  std::vector<Class> classes;
  for (uint32_t i = 0; i < parts_.nodes.size(); ++i) {
    const Node* node = &parts_.nodes[i];
    if (node->ends.empty()) continue;
    Class found{.ranks = node->ends, .thread = {}, .frames = {}};
    for (uint32_t at = i; node->parent != at; node = &parts_.nodes[at]) {
      found.frames.push_back(node->frame);
      at = node->parent;
    }
    const std::string& name = parts_.frames[node->frame].text;
    if (!thread.empty() && name != thread) continue;
    found.thread = name;
    std::reverse(found.frames.begin(), found.frames.end());
    classes.push_back(std::move(found));
  }
  std::stable_sort(classes.begin(), classes.end(), [](const Class& a, const Class& b) {
    const int64_t size_a = a.ranks.size(), size_b = b.ranks.size();
    if (size_a != size_b) return size_a > size_b;
    return a.ranks.ranges()[0].first < b.ranks.ranges()[0].first;
  });
  return classes;
}

void StackTree::set_symbol(uint32_t frame, const FrameSymbol& symbol) {
  if (frame >= parts_.frames.size()) return;
  FrameSymbol clean{.function = printable(symbol.function, kFrameTextBytesMax),
                    .file = printable(symbol.file, kModulePathBytesMax),
                    .line = std::max(symbol.line, 0)};
  if (fields_of(clean) == 0 || !is_more_complete(clean, this->symbol(frame))) return;
  if (parts_.symbols.size() <= frame) parts_.symbols.resize(frame + 1);
  parts_.symbols[frame] = std::move(clean);
}

const FrameSymbol& StackTree::symbol(uint32_t frame) const {
  static const FrameSymbol kUnknown;
  return frame < parts_.symbols.size() ? parts_.symbols[frame] : kUnknown;
}

std::string StackTree::frame_text(uint32_t index) const {
  if (index >= parts_.frames.size()) return "?";
  const StackFrame& frame = parts_.frames[index];
  if (frame.module == kNoModule) {
    const PythonFrame python = python_frame_of(frame.text);
    if (python.file.empty()) return frame.text;
    return absl::StrCat(av(short_python_path(python.file)), ":", python.line, " ",
                        av(python.function));
  }
  const FrameSymbol& symbol = this->symbol(index);
  const std::string& path = parts_.modules[frame.module].path;
  std::string text;
  if (!symbol.file.empty()) {
    text = absl::StrCat(av(last_parts(symbol.file, 2)), ":", symbol.line);
  } else {
    text = std::string(last_parts(path, 1));
    if (symbol.function.empty()) absl::StrAppend(&text, "+0x", absl::Hex(frame.address));
  }
  if (!symbol.function.empty()) absl::StrAppend(&text, " in ", symbol.function);
  return printable(text, kFrameTextBytesMax);
}

}  // namespace muster
