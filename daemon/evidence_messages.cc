#include "daemon/evidence_messages.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <optional>
#include <utility>

#include <absl/strings/str_cat.h>

#include "common/job/limits.h"
#include "common/text/escape.h"
#include "daemon/activity_messages.h"

namespace muster::daemon {
namespace {

using muster::printable;

constexpr size_t kBuildIdBytesMax = 128;  // 64 bytes in hex; SHA-1 has 20
constexpr size_t kNameBytesMax = 64;      // names of groups, collectives and wait channels
constexpr size_t kProblemBytesMax = 256;  // one clause
// The bound of an age: a year is longer than any rank was silent, and does not overflow the clock.
constexpr int64_t kAgeNsMax = 365LL * 86'400 * 1'000'000'000;
// The maximum size of a field's tag and length.
constexpr size_t kFieldBytesMax = 6;

size_t field_bytes(const google::protobuf::MessageLite& message) {
  return message.ByteSizeLong() + kFieldBytesMax;
}

double seconds_from(double seconds) {
  return std::isfinite(seconds) ? std::max(0.0, seconds) : 0.0;
}

CollectiveKind kind_from(uint32_t kind) {
  return kind <= static_cast<uint32_t>(CollectiveKind::kSendRecv)
             ? static_cast<CollectiveKind>(kind)
             : CollectiveKind::kNone;
}

GroupEvidence group_from_proto(const v1::GroupEvidence& proto) {
  return {.name = printable(proto.name(), kNameBytesMax),
          .members = proto.members(),
          .id = proto.id(),
          .enqueued = proto.enqueued(),
          .started = proto.started(),
          .completed = proto.completed(),
          .kind = kind_from(proto.kind()),
          .dtype = proto.dtype(),
          .bytes = proto.bytes(),
          .collective = printable(proto.collective(), kNameBytesMax),
          .age = age_from(proto.age_ns()),
          .called = proto.called()};
}

void group_to_proto(const GroupEvidence& group, v1::GroupEvidence& proto) {
  proto.set_name(printable(group.name, kNameBytesMax));
  proto.set_members(group.members);
  proto.set_id(group.id);
  proto.set_enqueued(group.enqueued);
  proto.set_started(group.started);
  proto.set_completed(group.completed);
  proto.set_kind(static_cast<uint32_t>(group.kind));
  proto.set_dtype(group.dtype);
  proto.set_bytes(group.bytes);
  proto.set_collective(printable(group.collective, kNameBytesMax));
  proto.set_age_ns(group.age.count());
  proto.set_called(group.called);
}

RankEvidence rank_from_proto(const v1::RankEvidence& proto) {
  RankEvidence rank;
  rank.rank = std::max(proto.rank(), -1);
  rank.pid = std::max(proto.pid(), 0);
  rank.page_problem = printable(proto.page_problem(), kProblemBytesMax);
  rank.phase = static_cast<Phase>(proto.phase());
  rank.phase_age = age_from(proto.phase_age_ns());
  rank.step = std::clamp<int64_t>(proto.step(), -1, kStepMax);
  rank.progress_age = age_from(proto.progress_age_ns());
  rank.step_seconds = seconds_from(proto.step_seconds());
  rank.collective_wait_seconds = seconds_from(proto.collective_wait_seconds());
  rank.data_wait_seconds = seconds_from(proto.data_wait_seconds());
  for (const v1::GroupEvidence& group : proto.groups()) {
    if (std::ssize(rank.groups) == kProgressGroupsMax) break;
    rank.groups.push_back(group_from_proto(group));
  }
  rank.process_state = process_state_from(proto.process_state());
  rank.tracer_pid = std::max(proto.tracer_pid(), 0);
  rank.wait_channel = printable(proto.wait_channel(), kNameBytesMax);
  rank.memory = {proto.memory_used(), proto.memory_limit()};
  if (proto.has_activity()) rank.activity = activity_from_proto(proto.activity());
  rank.stack_problem = printable(proto.stack_problem(), kProblemBytesMax);
  rank.stack_note = printable(proto.stack_note(), kProblemBytesMax);
  rank.last_lines = lines_from_proto(proto.last_lines(), kEvidenceLinesMax, kEvidenceLineBytesMax);
  rank.files = lines_from_proto(proto.files(), kEvidenceFilesMax, kEvidenceLineBytesMax);
  return rank;
}

// The level of detail of the evidence in a message.
struct Detail {
  size_t lines;
  size_t line_bytes;
  bool idle_groups;
  bool silent_ranks;  // whether ranks without problems are included
};

constexpr std::array<Detail, 6> kDetails = {{{kEvidenceLinesMax, kEvidenceLineBytesMax, true, true},
                                             {5, 200, true, true},
                                             {1, 100, true, true},
                                             {0, 0, true, true},
                                             {0, 0, false, true},
                                             {0, 0, false, false}}};

bool has_problem(const RankEvidence& rank) {
  return !rank.page_problem.empty() || !rank.stack_problem.empty() || !rank.stack_note.empty();
}

void rank_to_proto(const RankEvidence& rank, const Detail& detail, v1::RankEvidence& proto) {
  proto.set_rank(rank.rank);
  proto.set_pid(rank.pid);
  proto.set_page_problem(printable(rank.page_problem, kProblemBytesMax));
  proto.set_phase(static_cast<uint32_t>(rank.phase));
  proto.set_phase_age_ns(rank.phase_age.count());
  proto.set_step(rank.step);
  proto.set_progress_age_ns(rank.progress_age.count());
  proto.set_step_seconds(rank.step_seconds);
  proto.set_collective_wait_seconds(rank.collective_wait_seconds);
  proto.set_data_wait_seconds(rank.data_wait_seconds);
  for (const GroupEvidence& group : rank.groups) {
    if (detail.idle_groups || group.waits()) group_to_proto(group, *proto.add_groups());
  }
  if (rank.process_state != '?')
    proto.set_process_state(static_cast<unsigned char>(rank.process_state));
  proto.set_tracer_pid(rank.tracer_pid);
  proto.set_wait_channel(printable(rank.wait_channel, kNameBytesMax));
  proto.set_memory_used(rank.memory.used);
  proto.set_memory_limit(rank.memory.limit);
  if (rank.activity.is_known) activity_to_proto(rank.activity, *proto.mutable_activity());
  proto.set_stack_problem(printable(rank.stack_problem, kProblemBytesMax));
  proto.set_stack_note(printable(rank.stack_note, kProblemBytesMax));
  lines_to_proto(rank.last_lines, detail.lines, detail.line_bytes, *proto.mutable_last_lines());
  if (detail.lines > 0)
    lines_to_proto(rank.files, kEvidenceFilesMax, kEvidenceLineBytesMax, *proto.mutable_files());
}

// Writes the evidence at a level of detail. Returns false if it does not fit; the part that fits is
// then written.
bool write_evidence(const std::vector<RankEvidence>& ranks, const Detail& detail, size_t bytes_max,
                    EvidenceMessages& proto) {
  size_t bytes = 0;
  for (const RankEvidence& rank : ranks) {
    if (!detail.silent_ranks && !has_problem(rank)) continue;
    rank_to_proto(rank, detail, *proto.Add());
    bytes += field_bytes(proto.Get(proto.size() - 1));
    if (bytes <= bytes_max) continue;
    proto.RemoveLast();
    return false;
  }
  return true;
}

// Chooses the parts of a tree that fit, and writes them in the tree's order.
class TreeWriter {
 public:
  explicit TreeWriter(const StackTree& tree)
      : tree_(tree),
        modules_(tree.modules().size(), kGone),
        frames_(tree.frames().size(), kGone),
        nodes_(tree.nodes().size(), kGone) {}

  // Selects the nodes to write, and drops the rarest ones. The size is an estimate: a stack that is
  // cut ends at another node, which then has more bytes.
  void choose(const std::vector<uint32_t>& by_worth, size_t bytes_max) {
    for (std::vector<uint32_t>* places : {&modules_, &frames_, &nodes_})
      std::fill(places->begin(), places->end(), kGone);
    bytes_left_ = bytes_max;
    for (const uint32_t node : by_worth) take(node);
  }

  void write(v1::StackTree& proto) {
    proto.Clear();
    for (uint32_t i = 0; i < modules_.size(); ++i) {
      if (modules_[i] == kGone) continue;
      modules_[i] = static_cast<uint32_t>(proto.modules_size());
      module_to_proto(tree_.modules()[i], *proto.add_modules());
    }
    for (uint32_t i = 0; i < frames_.size(); ++i) {
      if (frames_[i] == kGone) continue;
      frames_[i] = static_cast<uint32_t>(proto.frames_size());
      frame_to_proto(i, *proto.add_frames());
    }
    write_nodes(proto);
  }

 private:
  static constexpr uint32_t kGone = UINT32_MAX;  // not in the message

  void take(uint32_t index) {
    const StackTree::Node& node = tree_.nodes()[index];
    if (node.parent != index && nodes_[node.parent] == kGone) return;
    const uint32_t module = tree_.frames()[node.frame].module;
    const bool new_frame = frames_[node.frame] == kGone;
    const bool new_module = new_frame && module != kNoModule && modules_[module] == kGone;
    v1::StackTree tree;
    node_to_proto(index, node.ends, *tree.add_nodes());
    if (new_frame) frame_to_proto(node.frame, *tree.add_frames());
    if (new_module) module_to_proto(tree_.modules()[module], *tree.add_modules());
    const size_t bytes = tree.ByteSizeLong();
    if (bytes > bytes_left_) return;
    bytes_left_ -= bytes;
    // A placeholder until indices are assigned, which takes as many bytes as the largest index.
    nodes_[index] = frames_[node.frame] = kSomewhere;
    if (new_module) modules_[module] = kSomewhere;
  }

  // Writes the nodes. A stack that is cut ends at its deepest written frame.
  void write_nodes(v1::StackTree& proto) {
    const std::vector<StackTree::Node>& nodes = tree_.nodes();
    std::vector<RankSet> ends(nodes.size());
    int64_t dropped = tree_.dropped();
    for (uint32_t i = 0; i < nodes.size(); ++i) ends[i] = nodes[i].ends;
    for (uint32_t i = static_cast<uint32_t>(nodes.size()); i-- > 0;) {
      if (nodes_[i] != kGone) continue;
      dropped += nodes[i].ends.size();
      if (nodes[i].parent != i) ends[nodes[i].parent].add(ends[i]);
    }
    for (uint32_t i = 0; i < nodes.size(); ++i) {
      if (nodes_[i] == kGone) continue;
      nodes_[i] = static_cast<uint32_t>(proto.nodes_size());
      node_to_proto(i, ends[i], *proto.add_nodes());
    }
    proto.set_dropped(dropped);
  }

  void frame_to_proto(uint32_t index, v1::StackFrame& proto) const {
    const StackFrame& frame = tree_.frames()[index];
    if (frame.module != kNoModule) proto.set_module(modules_[frame.module] + 1);
    proto.set_address(frame.address);
    proto.set_text(frame.text);
    if (tree_.symbol(index) != FrameSymbol{})
      symbol_to_proto(tree_.symbol(index), *proto.mutable_symbol());
  }

  void node_to_proto(uint32_t index, const RankSet& ends, v1::StackTree::Node& proto) const {
    const StackTree::Node& node = tree_.nodes()[index];
    if (node.parent != index) proto.set_parent(nodes_[node.parent] + 1);
    proto.set_frame(frames_[node.frame]);
    if (!ends.empty()) rank_set_to_proto(ends, *proto.mutable_ends());
  }

  static constexpr uint32_t kSomewhere = kStackTreeNodesMax;

  const StackTree& tree_;
  size_t bytes_left_ = 0;
  // Indices in the message.
  std::vector<uint32_t> modules_, frames_, nodes_;
};

// Returns the nodes of main threads first, and then by descending number of ranks. A node follows
// its parent, which has at least the same ranks.
std::vector<uint32_t> by_worth(const StackTree& tree) {
  const std::vector<StackTree::Node>& nodes = tree.nodes();
  const std::vector<RankSet> passing = tree.passing();
  std::vector<bool> is_main(nodes.size());
  std::vector<int64_t> ranks(nodes.size());
  for (uint32_t i = 0; i < nodes.size(); ++i) {
    const uint32_t parent = nodes[i].parent;
    is_main[i] = parent == i ? tree.frames()[nodes[i].frame].text == "main" : is_main[parent];
    ranks[i] = passing[i].size();
  }
  std::vector<uint32_t> order(nodes.size());
  std::iota(order.begin(), order.end(), 0U);
  std::stable_sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
    return std::pair(bool{is_main[a]}, ranks[a]) > std::pair(bool{is_main[b]}, ranks[b]);
  });
  return order;
}

}  // namespace

Duration age_from(int64_t ns) { return Duration(std::clamp<int64_t>(ns, 0, kAgeNsMax)); }

char process_state_from(uint32_t state) {
  const bool letter = (state >= 'A' && state <= 'Z') || (state >= 'a' && state <= 'z');
  return letter ? static_cast<char>(state) : '?';
}

StackTraceSpec stack_traces_from_proto(const v1::StackTraces& proto) {
  return {.collect = proto.collect(),
          .to_cloud = proto.to_cloud(),
          .interval_seconds = proto.interval_seconds()};
}

RankSet rank_set_from_proto(const v1::RankSet& proto) {
  std::vector<RankSet::Range> ranges;
  for (int i = 0; i + 1 < proto.bounds_size(); i += 2)
    ranges.push_back({proto.bounds(i), proto.bounds(i + 1)});
  return RankSet::of(std::move(ranges));
}

void rank_set_to_proto(const RankSet& ranks, v1::RankSet& proto) {
  for (const RankSet::Range& range : ranks.ranges()) {
    proto.add_bounds(range.first);
    proto.add_bounds(range.last);
  }
}

StackModule module_from_proto(const v1::StackModule& proto) {
  return {.build_id = printable(proto.build_id(), kBuildIdBytesMax),
          .path = printable(proto.path(), kModulePathBytesMax)};
}

void module_to_proto(const StackModule& module, v1::StackModule& proto) {
  proto.set_build_id(printable(module.build_id, kBuildIdBytesMax));
  proto.set_path(printable(module.path, kModulePathBytesMax));
}

FrameSymbol symbol_from_proto(const v1::FrameSymbol& proto) {
  return {.function = printable(proto.function(), kFrameTextBytesMax),
          .file = printable(proto.file(), kModulePathBytesMax),
          .line = std::max(proto.line(), 0)};
}

void symbol_to_proto(const FrameSymbol& symbol, v1::FrameSymbol& proto) {
  proto.set_function(printable(symbol.function, kFrameTextBytesMax));
  proto.set_file(printable(symbol.file, kModulePathBytesMax));
  proto.set_line(symbol.line);
}

absl::StatusOr<StackTree> stack_tree_from_proto(const v1::StackTree& proto) {
  StackTree::Parts parts;
  for (const v1::StackModule& module : proto.modules())
    parts.modules.push_back(module_from_proto(module));
  for (const v1::StackFrame& frame : proto.frames()) {
    parts.frames.push_back({.module = frame.module() == 0 ? kNoModule : frame.module() - 1,
                            .address = frame.address(),
                            .text = frame.text()});
    parts.symbols.push_back(symbol_from_proto(frame.symbol()));
  }
  for (const v1::StackTree::Node& node : proto.nodes()) {
    const auto own = static_cast<uint32_t>(parts.nodes.size());
    if (node.parent() > own) {
      return absl::InvalidArgumentError(absl::StrCat("node ", own, " of a stack tree has parent ",
                                                     node.parent() - 1,
                                                     ", which is not before it"));
    }
    parts.nodes.push_back({.parent = node.parent() == 0 ? own : node.parent() - 1,
                           .frame = node.frame(),
                           .ends = rank_set_from_proto(node.ends())});
  }
  parts.dropped = proto.dropped();
  return StackTree::of(parts);
}

void stack_tree_to_proto(const StackTree& tree, size_t bytes_max, v1::StackTree& proto) {
  const std::vector<uint32_t> order = by_worth(tree);
  TreeWriter writer(tree);
  for (size_t budget = bytes_max;; budget = budget * 3 / 4) {
    writer.choose(order, budget);
    writer.write(proto);
    if (proto.ByteSizeLong() <= bytes_max || budget == 0) return;
  }
}

std::vector<RankEvidence> evidence_from_proto(const EvidenceMessages& proto, size_t ranks_max) {
  std::vector<RankEvidence> ranks;
  for (const v1::RankEvidence& rank : proto) {
    if (ranks.size() == ranks_max) break;
    ranks.push_back(rank_from_proto(rank));
  }
  return ranks;
}

void evidence_to_proto(const std::vector<RankEvidence>& ranks, size_t bytes_max,
                       EvidenceMessages& proto) {
  for (const Detail& detail : kDetails) {
    proto.Clear();
    if (write_evidence(ranks, detail, bytes_max, proto)) return;
  }
}

std::vector<std::string> lines_from_proto(const TextMessages& proto, size_t lines_max,
                                          size_t bytes_max) {
  std::vector<std::string> lines;
  const int count = std::min(proto.size(), static_cast<int>(lines_max));
  for (auto line = proto.end() - count; line != proto.end(); ++line)
    lines.push_back(printable(*line, bytes_max));
  return lines;
}

void lines_to_proto(const std::vector<std::string>& lines, size_t lines_max, size_t bytes_max,
                    TextMessages& proto) {
  const auto count = static_cast<ptrdiff_t>(std::min(lines.size(), lines_max));
  for (auto line = lines.end() - count; line != lines.end(); ++line)
    *proto.Add() = printable(*line, bytes_max);
}

}  // namespace muster::daemon
